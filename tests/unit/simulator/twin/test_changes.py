"""Changes in words: what they do to the state, and what is said of those that cannot be."""

from dataclasses import replace
from pathlib import Path

import pytest

from placement.fabric.reader import from_spec
from placement.workload.request import AUTO, Parallelism, Request
from scheduler.core import JobSpec, SchedulingOptions, State
from scheduler.core.fold.apply import replay
from scheduler.core.model.events import FabricLoaded, JobStarted, JobSubmitted
from scheduler.core.model.window import WindowKind
from scheduler.core.policies.health import PreventionAction
from scheduler.core.policies.job_terms import RunSpec
from simulator.twin.changes import Scenario, scenario
from simulator.twin.fork import ClusterFork
from tests.refusals import refusal
from tests.twins import DAY_NS, MONDAY_NS, cluster

FABRIC = cluster()
HORIZON_NS = 30 * DAY_NS


def fork(state: State | None = None) -> ClusterFork:
    state = state or replay([FabricLoaded(MONDAY_NS, FABRIC.spec)])
    return ClusterFork(state, MONDAY_NS + DAY_NS, (), 0, SchedulingOptions(), "test")


def changed(*texts: str, of: ClusterFork | None = None, has_times: bool = True) -> Scenario:
    return scenario(of or fork(), texts, HORIZON_NS, has_times=has_times)


def test_spares_of_a_zone_are_shared_by_all() -> None:
    request = Request(Parallelism(dp=16), (("dp", 1),), spares=replace(AUTO, hosts=0))
    spec = JobSpec("j", request, run=RunSpec(("true",)))
    start = JobStarted(MONDAY_NS, "j", 1, FABRIC.hosts[:2], (), (), 0)
    log = (FabricLoaded(MONDAY_NS, FABRIC.spec), JobSubmitted(MONDAY_NS, "u", spec), start)
    found = changed("spares 2 a zone", of=fork(replay(log)))
    assert found.state.tenants.spares.per_zone == 2
    assert found.state.jobs["j"].spec.request.spares.is_auto
    assert found.state.jobs["j"].spec.run is None
    assert found.state.index.special == ("j",)
    assert found.has_auto_spares


def test_several_changes_make_one_scenario() -> None:
    found = changed()
    assert (found.state, found.options, found.name) == (fork().state, fork().options, "as it is")
    found = changed(
        "policy  conservative",
        "prevention swap",
        "oversubscription 4:1",
        "drain z1 on 2026-12-02T06:00 for 8h",
        "drain z0-r0-h0,z0-r0-h1 at +2d for 1h",
    )
    assert found.options.policy == "conservative"
    assert found.state.health.prevention.action is PreventionAction.SWAP
    before, after = (f.tiers[0].uplink_bytes_per_s[0] for f in (FABRIC, found.state.built_fabric))
    assert after == pytest.approx(before * 7 / 4)
    assert found.state.built_fabric.hosts == FABRIC.hosts
    first, second = (booking.window for booking in found.state.windows.values())
    assert (first.kind, len(first.hosts)) == (WindowKind.MAINTENANCE, 8)
    assert first.start_ns == MONDAY_NS + 2 * DAY_NS + 6 * 3600 * 10**9
    assert second.hosts == ("z0-r0-h0", "z0-r0-h1")
    assert second.start_ns == MONDAY_NS + 3 * DAY_NS


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("more hosts", "must be like one of these, not 'more hosts': spares 2 a zone;"),
        ("spares two a zone", "must be like one of these"),
        ("spares 8 a zone", "the smallest zone has 8 hosts: nothing would be left to run on"),
        ("policy fastest", "must be one of production, easy, fifo, conservative, not 'fastest'"),
        ("policy production", "the policy is production already"),
        ("oversubscription 0", "must be from 0.01 to 1000"),
        ("policy fifo from week 6", "must be like one of these, not 'policy fifo from week 6'"),
        ("drain z1 from week 6 for 8h", "week 6 is behind the horizon of 30 d 00 h"),
        ("drain z1 from week 0 for 8h", "weeks count from 1"),
        ("drain z9 on 2026-12-02 for 8h", "z9"),
        ("drain z1 on tomorrow for 8h", "must be a date and time"),
        ("drain z1 on 2026-12-02 for long", "must be a duration"),
        ("drain z1 on 2026-11-02 for 8h", "2026-11-02 has passed"),
        ("drain z1 on 2027-12-02 for 8h", "behind the horizon of 30 d 00 h"),
        ("oversubscription 4", "needs --times"),
        ("policy fifo;policy easy", "policy is given twice"),
        ("prevention off", "prevention is off already"),
    ],
)
def test_a_change_that_cannot_be_is_named(text: str, said: str) -> None:
    told = refusal(changed, *text.split(";"), has_times=text != "oversubscription 4")
    assert told.startswith("--change: ")
    assert said in told


def test_uplinks_of_a_fabric_that_lists_its_domains() -> None:
    tiers = [{"name": "zone"}, {"name": "host"}]
    domains = [{"name": "a", "hosts": 2, "oversubscription": 2}, {"name": "b", "hosts": 2}]
    listed = from_spec({"name": "odd", "gpus_per_host": 8, "tiers": tiers, "domains": domains})
    state = replay([FabricLoaded(MONDAY_NS, listed.spec)])
    found = changed("oversubscription 4", of=fork(state)).state.built_fabric
    before = listed.tiers[0].uplink_bytes_per_s
    assert found.tiers[0].uplink_bytes_per_s.tolist() == [before[0] / 2, before[1] / 4]


def test_quotas_of_a_tenants_file(tmp_path: Path) -> None:
    path = tmp_path / "other.yaml"
    path.write_text("tenants:\n  - {name: default, limit_gpus: 64}\n")
    found = changed(f"quotas {path}")
    assert found.state.tenants.by_name["default"].limit_gpus == 64
    path.write_text("tenants:\n  - {name: default, limit_gpus: many}\n")
    assert "other.yaml:2: tenants.0.limit_gpus" in refusal(changed, f"quotas {path}")
