"""Twins: changes in words, failures fitted to a past, and the figures and words of a study."""

from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from placement.fabric.reader import from_spec
from placement.workload.request import AUTO, Parallelism, Request
from scheduler.core import JobSpec, SchedulingOptions, State, Tenants, replay
from scheduler.core.model.events import FabricLoaded, JobStarted, JobSubmitted
from scheduler.core.model.window import WindowKind
from scheduler.core.policies.health import PreventionAction
from scheduler.core.policies.job_terms import RunSpec
from simulator.failures.cause import FailureCause, Precursor, RepairTime
from simulator.failures.process import outages
from simulator.twin.answer import sentence
from simulator.twin.changes import Scenario, scenario
from simulator.twin.fork import ClusterFork
from simulator.twin.outages import CAUSE, fit_failures
from simulator.twin.prices import load_prices, uplink_gbps
from simulator.twin.study import SeedMean
from tests.refusals import file_refusal, refusal
from tests.replays import replayed
from tests.twins import DAY_NS, MONDAY_NS, cluster, jobs

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


# --- failures of whole racks and zones, fitted to what hosts' records keep of them ---

RACKED = cluster(zones=4, hosts=16)  # racks of 8


def lived(*causes: FailureCause, days: float = 20) -> tuple[State, int]:
    """A cluster some days on, in which these failed."""
    broke = sorted(
        outage
        for cause in causes
        for outage in takewhile(lambda o: o.time_ns < days * DAY_NS, outages(cause, RACKED, 2))
    )
    trace = list(jobs(days, 4))
    more = {"tenants": Tenants(), "has_assumed_limits": True}
    log = replayed(RACKED, trace, outages=broke, **more).log
    log = [event for event in log if event.time_ns <= MONDAY_NS]
    return replay(log), log[-1].time_ns


def test_racks_that_failed_fail_again_at_their_rate() -> None:
    racks = FailureCause("switch", 20, RepairTime(6), scope="rack")
    state, now_ns = lived(racks, FailureCause("gpu", 5, RepairTime(6)))
    fitted = fit_failures(state, now_ns)
    (group,) = fitted.groups
    assert group.tier == "rack"
    assert group.seen >= 2
    assert group.domain_days == pytest.approx(8 * (now_ns - state.faults.since_ns) / DAY_NS)
    assert any("whole racks failed" in each for each in fitted.sentences())
    days = 400
    found = list(takewhile(lambda o: o.time_ns < days * DAY_NS, fitted.outages(state, 1)))
    down = [outage for outage in found if outage.is_down]
    together = [outage for outage in down if outage.cause != CAUSE]
    by_time = {
        time: [o for o in together if o.time_ns == time] for time in {o.time_ns for o in together}
    }
    assert all(len(hosts) >= 6 for hosts in by_time.values())  # but those that are out already
    expected = 8 * days * group.per_1000_days / 1000
    assert len(by_time) == pytest.approx(expected, rel=0.35)
    rate = len(down) / 64 / days
    assert rate == pytest.approx(max(fitted.per_host_day, group.per_host_day), rel=0.35)


def test_hosts_that_fail_each_for_itself_make_no_group() -> None:
    state, now_ns = lived(FailureCause("gpu", 10, RepairTime(6)))
    assert state.faults.failures > 5
    assert fit_failures(state, now_ns).groups == ()


def test_failures_that_followed_a_signal_follow_it_again() -> None:
    told = FailureCause("gpu", 30, RepairTime(6), precursor=Precursor("link-flap", 0.8, 0.5, 6))
    state, now_ns = lived(told)
    fitted = fit_failures(state, now_ns)
    (count,) = fitted.announced
    assert count.signal == "link-flap"
    assert 0 < count.failures < count.ended
    assert count.failed_ns / count.failures < DAY_NS / 2
    assert any("failures followed link-flap, which had" in each for each in fitted.sentences())
    days = 4_000
    found = list(takewhile(lambda o: o.time_ns < days * DAY_NS, fitted.outages(state, 1)))
    reports = [o for o in found if o.signal == "link-flap" and o.is_down]
    failures = [o for o in found if not o.signal and o.is_down]
    due = fitted.per_host_day * RACKED.host_count * days
    assert len(failures) == pytest.approx(due, rel=0.1)
    announced = due * count.failures / fitted.failures
    assert len(reports) == pytest.approx(announced * count.ended / count.failures, rel=0.15)


# --- means, intervals, money and words of a study ------------------------------------


def test_an_interval_is_students() -> None:
    found = SeedMean.of([1.0, 2.0, 3.0])
    assert found.mean == 2
    assert found.half == pytest.approx(4.303 / 3**0.5)
    assert SeedMean.of([5.0]).data() == {"mean": 5, "low": None, "high": None}


def test_money_is_what_the_file_says(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(
        "currency: EUR\ngpu_hour: 2\nhost_month: 730\nuplink_gbps_month: 73\n"
        "spare_host_month: 73\nrepair: 100\nrepair_contract_month: 7.3\n"
    )
    fabric = cluster()
    run = {"all_gpu_h": 1280, "spare_gpu_h": 80, "repairs": 3, "effective_gpu_h": 1000}
    bill = load_prices(str(path)).of(run, fabric, horizon_h=10)
    # 16 hosts of 8 GPUs at 400 Gbit/s, 7:1, for 10 hours
    assert uplink_gbps(fabric) == pytest.approx(16 * 8 * 400 / 7)
    assert bill == pytest.approx(
        {
            "gpus": 2560,
            "hosts": 160,
            "uplinks": 51_200 / 7,
            "spares": 1,
            "repairs": 300,
            "repair_contract": 1.6,
            "total": 3022.6 + 51_200 / 7,
            "per_effective_gpu_h": (3022.6 + 51_200 / 7) / 1000,
        }
    )


def test_a_faulty_price_is_named(tmp_path: Path) -> None:
    for text, said in (
        ("host_month: 3\n", "gpu_hour"),
        ("gpu_hour: -1\n", "prices.yaml:1: gpu_hour: must be from 0"),
        ("gpu_hour: 1\nhost: 3\n", "prices.yaml:2: host: unknown key 'host'"),
    ):
        assert said in file_refusal(load_prices, tmp_path / "prices.yaml", text)


def estimate(mean: float, half: float | None) -> dict[str, float | None]:
    return SeedMean(mean, half).data()


def answer(more: tuple[float, float | None], waits: tuple[float, float | None]) -> dict[str, Any]:
    figures = {"effective_gpu_h": (1000, 5), "effective_share": (0.8, 0.1), "wait_mean_s": (600, 5)}
    base = {
        "name": "as it is",
        "figures": {name: estimate(*values) for name, values in figures.items()},
        "money": {"per_effective_gpu_h": estimate(2.5, 0.1)},
    }
    other = {
        **base,
        "name": "policy fifo",
        "money": {"per_effective_gpu_h": estimate(2.25, 0.1)},
        "money_differences": {"per_effective_gpu_h": estimate(-0.25, 0.01)},
        "differences": {"effective_gpu_h": estimate(*more), "wait_mean_s": estimate(*waits)},
    }
    return {
        "scenarios": [base, other],
        "seeds": [0] if more[1] is None else [0, 1, 2],
        "horizon_s": 30 * 86_400,
        "currency": "EUR",
    }


@pytest.mark.parametrize(
    ("more", "waits", "said"),
    [
        ((50, 10), (-60, 5), "does 50 more effective GPU-hours in 30 d 00 h, 5.00 %; jobs wait"),
        ((50, 10), (-60, 5), "jobs wait 1 min less on average."),
        ((-50, 10), (60, 90), "does 50 fewer effective GPU-hours in 30 d 00 h, 5.00 %;"),
        ((-50, 10), (60, 90), "jobs wait 1 min longer on average, which may be chance."),
        ((5, 10), (0, 0), "no more and no fewer effective GPU-hours in 30 d 00 h than 3 seeds"),
        ((0, 0), (0, 0), "does as many effective GPU-hours in 30 d 00 h as without; jobs wait as"),
        ((7, None), (0, None), "does +7 effective GPU-hours in 30 d 00 h, under one seed"),
        ((50, 10), (0, 0), "An effective GPU-hour costs 2.250 EUR, where it is 2.500 now."),
    ],
)
def test_the_answer_is_a_sentence(
    more: tuple[float, float | None], waits: tuple[float, float | None], said: str
) -> None:
    text = sentence(answer(more, waits))
    assert text.startswith("With policy fifo, the cluster does ")
    assert said in text
