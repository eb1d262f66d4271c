"""Another fabric for a cluster that runs: what is taken, what is refused and why."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from placement.fabric.constraints import Constraints
from scheduler.core import Code, SchedulingOptions, State
from scheduler.core.admission.fabric import FabricChange, FabricObstacle, fabric_change
from scheduler.core.model.commands import ChangeFabric, LoadTenants, MoveLink, ReportLink
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import LinkMove
from scheduler.core.model.records.failure_rates import sizing
from scheduler.core.names import DEFAULT_TENANT
from scheduler.core.policies.spares import SparePolicy
from scheduler.core.policies.tenants import GuaranteedCell, Tenant, Tenants
from tests.build import (
    admitted,
    cancel,
    drain,
    exactly,
    fabric,
    fail,
    hosts_of,
    loaded,
    refused,
    run,
    settled,
    spares_of,
    submit,
)
from tests.windows import set_window, with_window

Edit = Callable[[dict[str, list[str]]], object]
RACKS = {f"z{z}-r{r}": [f"z{z}-r{r}-h{h}" for h in (0, 1)] for z in (0, 1) for r in (0, 1)}
EMPTY = loaded(fabric(zones=2, racks=2, hosts=2))
HOUR = 3_600


def to(*edits: Edit, renames: tuple[tuple[str, str], ...] = (), **keys: Any) -> ChangeFabric:
    """The small fabric with its racks edited, each in the zone that its name begins with."""
    racks = deepcopy(RACKS)
    for edit in edits:
        edit(racks)
    zones = dict.fromkeys(name.partition("-")[0] for name in racks)
    spec = {
        "name": "small",
        "gpus_per_host": 8,
        "nic_gbps": 400,
        "tiers": [{"name": "zone", "oversubscription": 7}, {"name": "rack"}, {"name": "host"}],
        "domains": [
            {
                "name": zone,
                "domains": [
                    {"name": rack, "hosts": hosts}
                    for rack, hosts in racks.items()
                    if rack.startswith(f"{zone}-")
                ],
            }
            for zone in zones
        ],
        **keys,
    }
    return ChangeFabric(spec, renames)


def seen(state: State, command: ChangeFabric) -> FabricChange:
    return fabric_change(state, command)


def in_the_way(state: State, command: ChangeFabric) -> list[tuple[FabricObstacle, str, str]]:
    return [(each.obstacle, each.subject, each.job) for each in seen(state, command).refusals]


def test_the_same_fabric_written_otherwise_numbers_hosts_alike() -> None:
    state = run(EMPTY, to())
    assert state.built_fabric.hosts == EMPTY.built_fabric.hosts
    change = seen(EMPTY, to())
    lists = (change.added, change.removed, change.moved, change.changed, change.links)
    assert lists == ((),) * 5
    assert run(state, to()).version == state.version == EMPTY.version + 1


def test_other_storage_and_power_are_among_the_differences() -> None:
    keys = {"storage": {"write_gb_per_s": 20}, "power_kw": 10.2, "power_caps_kw": {"rack": 62}}
    assert seen(EMPTY, to(**keys)).settings == (
        "storage none -> {write_gb_per_s: 20}",
        "power_kw none -> 10.2",
        "power_caps_kw none -> {rack: 62}",
    )


def test_domains_with_the_same_hosts_are_renamed() -> None:
    def rename(racks: dict[str, list[str]]) -> None:
        for rack in ("z1-r0", "z1-r1"):
            racks[rack.replace("z1", "west")] = racks.pop(rack)

    state = settled(run(EMPTY, submit("a", 8)))
    change = seen(state, to(rename))
    assert change.renames == (("z1", "west"), ("z1-r0", "west-r0"), ("z1-r1", "west-r1"))
    assert (change.moved, change.added_domains, change.removed_domains) == ((), (), ())
    assert change.refusals == ()
    assert hosts_of(run(state, to(rename)), "a") == hosts_of(state, "a")


def test_links_and_windows_follow_a_renamed_domain() -> None:
    def rename(racks: dict[str, list[str]]) -> None:
        racks["z1-x"] = racks.pop("z1-r0")

    state = run(
        with_window(EMPTY, "z1-r0", "z0-r0-h[0-1]"),
        ReportLink("z1-r0", 0.5),
        MoveLink("z1-r1", LinkMove.CORDON),
    )
    after = run(state, to(rename))
    window = after.windows["w"].window
    assert (window.among, window.hosts[2:]) == (
        ("z1-x", "z0-r0-h[0-1]"),
        ("z1-r0-h0", "z1-r0-h1"),
    )
    assert (after.link("z1-x").share, after.link("z1-r1").use) == (0.5, state.link("z1-r1").use)
    assert "z1-r0" not in after.links
    less = run(after, to(rename, lambda r: r["z1-x"].remove("z1-r0-h1"), lambda r: r.pop("z1-r1")))
    assert less.windows["w"].window.hosts == ("z0-r0-h0", "z0-r0-h1", "z1-r0-h0")
    assert list(less.links) == ["z1-x"]


@pytest.mark.parametrize(
    ("renames", "wrong"),
    [
        ((("nobody", "x"),), "no host and no domain 'nobody' in the present fabric"),
        ((("z0-r0-h1", "x"),), "no host and no domain 'x' in the new fabric"),
        ((("z0-r0-h0", "new"),), "z0-r0-h0 is in the new fabric as well"),
        ((("z0-r0-h1", "z0-r0-h0"),), "z0-r0-h0 is in the present fabric already"),
        ((("z0-r0-h1", "z0-n"),), "one of z0-r0-h1 and z0-n is a host, the other a domain"),
        ((("z0-r0-h1", "new"), ("z0-r0-h1", "new")), "a name is renamed twice"),
    ],
)
def test_what_cannot_be_renamed(renames: tuple[tuple[str, str], ...], wrong: str) -> None:
    def edit(racks: dict[str, list[str]]) -> None:
        racks["z0-r0"] = ["z0-r0-h0", "new"]
        racks["z0-n"] = ["more"]

    refusal = refused(EMPTY, to(edit, renames=renames))
    assert (refusal.code, refusal.violations[0].message) == (Code.INVALID, wrong)


def test_what_is_wrong_in_the_file_is_said_with_its_path() -> None:
    command = to(lambda r: r.__setitem__("z0-r0", []))
    refusal = refused(EMPTY, ChangeFabric({**command.spec, "nic_gbps": -1}))
    assert refusal.violations[0].field == "file.nic_gbps"


def test_hosts_of_a_gang_and_its_spares_must_be_drained_first() -> None:
    state = settled(run(EMPTY, submit("a", 2, spares=exactly(1))))
    hosts, spare = hosts_of(state, "a"), spares_of(state, "a")[0]
    away = to(*(lambda r, h=h: r[h[:5]].remove(h) for h in (*hosts, spare)))  # type: ignore[misc]
    gang, idle = FabricObstacle.GANG, FabricObstacle.SPARE
    assert in_the_way(state, away) == [(gang, h, "a") for h in hosts] + [(idle, spare, "a")]
    refusal = refused(state, away)
    assert refusal.code is Code.PRECONDITION
    assert f"host {hosts[0]} is not in the new fabric, and job a runs there: drain it first" in (
        refusal.message
    )
    moved = settled(run(state, *map(drain, (*hosts, spare))))
    assert in_the_way(moved, away) == []
    after = run(moved, away)
    assert hosts_of(after, "a") == hosts_of(moved, "a")
    assert spare not in spares_of(after, "a")
    assert after.account(DEFAULT_TENANT).held == len(hosts_of(after, "a")) + len(
        spares_of(after, "a")
    )


def test_a_gang_keeps_names_places_and_gpus_of_its_hosts() -> None:
    state = settled(run(EMPTY, submit("a", 8)))
    name = "z0-r0-h0"
    called = to(lambda r: r["z0-r0"].__setitem__(0, "x"), renames=((name, "x"),))
    assert in_the_way(state, called) == [(FabricObstacle.GANG, name, "a")]
    moved = to(lambda r: r["z1-r1"].append(r["z0-r0"].pop(0)))
    assert "would be in another domain" in seen(state, moved).refusals[0].detail
    fewer = to(gpus_per_host=4)
    kinds = {each.obstacle for each in seen(state, fewer).refusals}
    assert kinds >= {FabricObstacle.GANG}
    assert in_the_way(state, to(nic_gbps=800)) == []  # a gang has what its hosts have now


def test_a_job_that_waits_must_still_be_able_to_start() -> None:
    state = run(EMPTY, submit("big", 7), submit("zoned", 4, where=Constraints(same="zone")))
    less = to(lambda r: r.pop("z1-r1"))
    assert in_the_way(state, less) == [(FabricObstacle.JOB, "big", "big")]
    assert "job big waits, and could not start there" in refused(state, less).message
    pods = to(tiers=[{"name": "pod"}, {"name": "su"}, {"name": "host"}])
    assert in_the_way(run(EMPTY, submit("z", 2)), pods) == []
    assert in_the_way(run(state, cancel("big")), less) == []


def test_reservations_and_guarantees_are_kept() -> None:
    held = run(EMPTY, set_window("r", "z1-r1", end_s=HOUR, jobs=("x",)))
    less = to(lambda r: r.pop("z1-r1"))
    assert [each[:2] for each in in_the_way(held, less)] == [
        (FabricObstacle.RESERVED, "z1-r1-h0"),
        (FabricObstacle.RESERVED, "z1-r1-h1"),
    ]
    cells = (GuaranteedCell("zone", 1, 4),)
    tenants = Tenants((Tenant(DEFAULT_TENANT), Tenant("t", guaranteed_gpus=32, cells=cells)))
    promised = run(EMPTY, LoadTenants(tenants))
    small = to(lambda r: r.pop("z1-r1"), lambda r: r.pop("z0-r1"))
    assert [each[:2] for each in in_the_way(promised, small)] == [
        (FabricObstacle.PROMISE, "tenants")
    ]


def test_it_is_tied_to_the_fabric_that_is_known() -> None:
    more = to(lambda r: r["z0-r0"].append("n"))
    stale = ChangeFabric(more.spec, etag="another")
    assert refused(EMPTY, stale).code is Code.STALE
    known = ChangeFabric(more.spec, etag=EMPTY.built_fabric.digest)
    after = run(EMPTY, known)
    assert after.built_fabric.host_count == 9
    assert admitted(after, ChangeFabric(more.spec)) == ()
    assert refused(after, stale).code is Code.STALE


def test_promises_survive_but_for_hosts_that_are_gone() -> None:
    """Policy conservative, with a window that tells hosts apart."""
    limits = SchedulingOptions(policy="conservative")
    booked = run(EMPTY, set_window("m", "z1", start_s=HOUR, end_s=2 * HOUR))
    jobs = (submit("a", 8, limit_s=600), submit("b", 8, limit_s=600), submit("c", 2, limit_s=60))
    state = settled(run(booked, *jobs), options=limits)
    assert state.reserved
    assert state.shares
    after = run(state, to(lambda r: r["z0-r0"].__setitem__(slice(0, 0), ["n0", "n1"])))
    assert dict(after.reserved) == dict(state.reserved)
    for name, kinds in state.shares.items():
        assert after.shares[name] == tuple((host + 2, count) for host, count in kinds)
    assert settled(after, options=limits).jobs["c"].hosts


def test_failures_are_counted_for_the_hosts_that_there_were() -> None:
    day_ns = 86_400 * SECOND_NS
    policy = SparePolicy(0.01, prior_host_days=100)
    state = run(EMPTY, fail("z0-r0-h0"), now_ns=day_ns)
    grown = run(
        state, to(lambda r: r["z0-r0"].extend(f"n{i}" for i in range(8))), now_ns=10 * day_ns
    )
    rate = sizing(policy, grown.faults, 16, 10 * day_ns).failures_per_host_day
    assert rate == sizing(policy, state.faults, 8, 10 * day_ns).failures_per_host_day
    later = sizing(policy, grown.faults, 16, 20 * day_ns).failures_per_host_day
    seen_days = 8 * 10 - 9 + 16 * 10 - 10
    assert later == pytest.approx((0.01 * 100 + 1) / (100 + seen_days), rel=1e-9)
    west = run(grown, to(lambda r: [r.pop(x) for x in ("z0-r0", "z0-r1")]), now_ns=20 * day_ns)
    assert (west.faults.down, west.faults.by_zone, west.faults.failures) == (0, (0,), 1)


def test_an_elastic_job_that_waits_has_the_sizes_of_the_new_fabric() -> None:
    state = run(EMPTY, submit("e", 16, dp=16, min_dp=2))
    assert max(state.jobs["e"].sizes) == 8
    more = run(state, to(lambda r: r["z0-r0"].extend(f"n{i}" for i in range(8))))
    assert max(more.jobs["e"].sizes) == 16
    assert more.jobs["e"].dp == min(more.jobs["e"].sizes)
