"""Gangs beside the traffic of others: what is left of uplinks, and who lands where."""

from dataclasses import replace

import pytest

from placement.objective.cut import busy_shares, is_narrow
from placement.objective.step_time import step_time
from scheduler.core import SchedulingOptions, State
from scheduler.core.defrag.faster import propose_faster
from scheduler.core.defrag.proposal import GangMover, candidates
from scheduler.core.model.commands import ReportLink
from scheduler.core.policies.costs import Costs
from scheduler.core.restart.restart import search_restart
from scheduler.core.rules.network.neighbours import loads, subtract_loads
from scheduler.core.rules.network.neighbours import running as neighbours
from scheduler.core.tenancy.quota import domain_masks
from tests.build import (
    cordon,
    fabric,
    fail,
    hosts_of,
    job,
    loaded,
    run,
    running,
    schedule,
    settled,
    started,
    submit,
    uncordon,
)
from tests.unit.core.test_links import trained

# Four zones of four hosts, 7:1 above them.
EMPTY = loaded(fabric(zones=4, racks=2, hosts=2))
ALONE = SchedulingOptions(neighbours=False)


def zones(state: State, name: str) -> set[str]:
    return {host[:2] for host in hosts_of(state, name)}


def test_a_gang_keeps_busy_what_it_sends_in_a_step() -> None:
    state = started(EMPTY, trained("a", 6))
    gang, built = job(state, "a"), EMPTY.loaded_fabric
    assert gang.present.step is not None
    busy = busy_shares(built, gang.request, gang.hosts, gang.present.step.seconds)
    step = step_time(built, gang.request, gang.hosts)
    [dp] = [axis for axis in step.axes if axis.load.traffic.axis == "dp"]
    assert max(busy.values()) == pytest.approx(
        dp.load.on("zone uplink") / gang.present.step.seconds
    )
    assert len(busy) == len(zones(state, "a")) == 2
    assert loads(built, neighbours(state)) == busy
    assert all(is_narrow(built, link) for link in busy)
    assert not is_narrow(built, (1, 0))  # hosts cannot fill the uplink of a rack
    without_a_model = started(EMPTY, submit("a", 6))
    assert loads(built, neighbours(without_a_model)) == {}


def test_what_is_left_is_shared_alike() -> None:
    built = EMPTY.loaded_fabric
    left = subtract_loads(built, {(0, 1): 1.0, (0, 2): 0.001})
    assert left.links == (((0, 1), 0.5),)
    assert subtract_loads(built, {}) is built
    assert subtract_loads(left, {(0, 1): 1.0}).links == (((0, 1), 0.25),)


def test_two_gangs_that_would_share_a_hot_uplink_land_apart() -> None:
    """Zones of six. By the cut alone the second takes what the first has left of its zones."""
    first = started(loaded(fabric(zones=4, racks=3, hosts=2)), trained("a", 8))
    blind = schedule(run(first, trained("b", 10)), 0, ALONE)
    aware = schedule(run(first, trained("b", 10)), 0)
    assert zones(blind, "b") & zones(blind, "a")
    assert not zones(aware, "b") & zones(aware, "a")
    now = subtract_loads(first.loaded_fabric, loads(first.loaded_fabric, neighbours(first)))
    shared_s, apart_s = (
        step_time(now, job(state, "b").request, job(state, "b").hosts).seconds
        for state in (blind, aware)
    )
    assert apart_s < 0.7 * shared_s
    gang = job(aware, "b")  # its step and the bound are those of the gang alone
    assert gang.present.step is not None
    alone_s = step_time(aware.loaded_fabric, gang.request, gang.hosts).seconds
    assert gang.present.step.least_seconds <= gang.present.step.seconds == alone_s


def test_nobody_goes_out_of_the_way_of_one_into_that_of_two() -> None:
    """What b would gain, a and c would lose: the better of both for all GPUs is taken."""
    state = loaded(fabric(zones=4, racks=3, hosts=2))
    state = settled(run(state, trained("a", 8), trained("c", 8)))
    aware = schedule(run(state, trained("b", 8)), 0)
    blind = schedule(run(state, trained("b", 8)), 0, ALONE)

    def lost(after: State) -> float:
        built, gangs = after.loaded_fabric, neighbours(after)
        total = 0.0
        for gang in gangs:
            others = loads(built, [g for g in gangs if g is not gang])
            assert gang.step is not None
            slow_s = step_time(subtract_loads(built, others), gang.request, gang.hosts).seconds
            total += gang.gpus * (1 - gang.step.seconds / slow_s)
        return total

    assert running(aware) == running(blind) == {"a", "b", "c"}
    assert lost(aware) <= lost(blind) + 1e-9


def test_gangs_of_one_decision_see_each_other() -> None:
    state = loaded(fabric(zones=4, racks=3, hosts=2))
    state = schedule(run(state, trained("a", 8), trained("b", 8)))
    assert running(state) == {"a", "b"}
    assert not zones(state, "a") & zones(state, "b")


# --- swaps -------------------------------------------------------------------


def beside_a_talker() -> State:
    """b fills z0. a talks between z1 and z2; z1 and z3 have a host free each."""
    empty = loaded(fabric(zones=4, racks=3, hosts=2))
    hosts = empty.loaded_fabric.hosts  # six of each zone
    state = settled(run(empty, *map(cordon, hosts[6:]), trained("b", 6)))
    state = settled(run(state, *map(uncordon, hosts[7:15]), trained("a", 8)))
    assert (zones(state, "a"), zones(state, "b")) == ({"z1", "z2"}, {"z0"})
    return run(state, uncordon(hosts[6]), uncordon(hosts[18]))


def test_a_swap_goes_where_no_neighbour_talks() -> None:
    failed = run(beside_a_talker(), fail("z0-r0-h0"))
    blind, aware = settled(failed, options=ALONE), settled(failed)
    assert zones(blind, "b") == {"z0", "z1"}
    assert zones(aware, "b") == {"z0", "z3"}


def test_the_ladder_counts_what_neighbours_take() -> None:
    """The price of a swap is in the step that the gang has beside the others."""
    failed = run(beside_a_talker(), fail("z0-r0-h0"))
    search = search_restart(failed, job(failed, "b"), 0, SchedulingOptions())
    z1 = [failed.loaded_fabric.index_by_name["z1-r0-h0"], *job(failed, "b").hosts[1:]]
    alone = replace(search.prices, fabric=failed.loaded_fabric)
    assert search.prices.slower(z1) > 1.2 * alone.slower(z1) > 0


def test_defragmentation_moves_no_gang_behind_a_busy_uplink() -> None:
    """A block of b in z3 would cut as little in z1, over an uplink that a keeps busy."""
    state = settled(run(beside_a_talker(), fail("z0-r0-h0")))
    z3 = domain_masks(state.loaded_fabric, "zone")[3]
    there = candidates(state, z3, 0, Costs())
    assert [gang.job.name for gang in there] == ["b"]
    [move] = GangMover(state, ALONE, 0).moves(there, z3, 1, None) or ()
    assert state.loaded_fabric.hosts[move.swap.moves[0].joined] == "z1-r0-h0"
    assert GangMover(state, SchedulingOptions(), 0).moves(there, z3, 1, None) is None


def test_a_slow_gang_is_not_moved_behind_an_uplink_that_is_busier_than_its_own_is_weak() -> None:
    """b waits for the uplink of z3 at 70 %. That of z1 is whole, but a keeps it busy."""
    state = settled(run(beside_a_talker(), fail("z0-r0-h0")))
    assert zones(state, "b") == {"z0", "z3"}
    state = run(state, ReportLink("z3", 0.7))
    [move] = propose_faster(state, 0, ALONE, Costs(600, 60)).moves
    joined = {state.loaded_fabric.hosts[each.joined] for each in move.swap.moves}
    assert "z1-r0-h0" in joined
    assert not propose_faster(state, 0, SchedulingOptions(), Costs(600, 60)).moves
