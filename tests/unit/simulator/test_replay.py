"""Replays small enough to follow by hand: ends, interruptions, repeatability."""

import json

import pytest

from muster.structs import replace
from placement.workload.request import SpareRule
from scheduler.core import SchedulingOptions, State, apply
from scheduler.core.model.events import (
    Event,
    GangResized,
    GangSwapped,
    HealthLoaded,
    HostMoved,
    JobRequeued,
    JobStarted,
    JobSubmitted,
    TenantsLoaded,
    WindowClosed,
    WindowOpened,
)
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.model.window import Window
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.health import HealthPolicy, HealthRule, LemonAction, LemonPolicy
from scheduler.core.policies.health_signals import SIGNALS, Effect, Threshold
from simulator.collectors.invariants import InvariantChecker
from simulator.failures import Outage
from simulator.timing import load_time_model
from simulator.traces.formats import muster
from simulator.traces.mapping import job_spec
from simulator.traces.record import SECOND_NS, TraceJob
from tests.replays import World, down, machine, replayed, trace_job, up
from tests.windows import window

HOUR = 3600


def kinds(log: list[Event]) -> list[str]:
    """What happened; costs other than the usual ones come as tenants."""
    return [type(event).__name__ for event in log if not isinstance(event, TenantsLoaded)]


def test_gangs_fill_whole_hosts() -> None:
    jobs = [trace_job("a", 0, 10, gpus=9), trace_job("b", 0, 10, gpus=1)]
    world = replayed(machine(3, gpus=8), jobs)
    started = {event.name: len(event.hosts) for event in world.of(JobStarted)}

    assert started == {"a": 2, "b": 1}


def test_a_time_limit_is_the_run_time_where_the_trace_has_none() -> None:
    def limit(**given: float) -> int | None:
        return job_spec(trace_job("a", 0, 10.2, **given), 1, SpareRule(hosts=0)).time_limit_s

    assert limit() == 11
    assert limit(limit_s=60) == 60


def test_a_job_larger_than_the_fabric_is_rejected_and_counted() -> None:
    jobs = [trace_job("huge", 0, 10, gpus=3), trace_job("a", 1, 10)]
    world = replayed(machine(2), jobs)

    assert world.tally.offered == 2
    assert dict(world.tally.refused) == {"infeasible": 1}
    assert set(world.rows) == {"a"}


def test_a_swap_costs_the_work_since_the_checkpoint_and_a_restart() -> None:
    """1 h of work, checkpoints every 1,000 s, failure at 2,500 s: 500 s are lost."""
    world = replayed(
        machine(3),
        [trace_job("a", 0, HOUR, gpus=2)],
        outages=[down(2_500, "z0-h0")],
        costs=Costs(checkpoint_s=1000, restart_s=300),
    )

    assert kinds(world.log)[3:] == ["HostMoved", "GangSwapped", "JobEnded"]
    assert world.ends_s() == {"a": 2_500 + 300 + (HOUR - 2_000)}
    totals = world.metrics.totals(3)
    assert totals["restarts"] == 1
    assert totals["goodput"] == pytest.approx(HOUR / 4_400)
    assert totals["utilization"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("hosts", "failures", "checkpoint_s", "end_s"),
    [
        # A second before the end: the end of that attempt must not complete it.
        (2, [(HOUR - 1, "z0-h0")], 1800, HOUR - 1 + 300 + 1800),
        # In the restart: the restart alone is lost.
        (3, [(2_000, "z0-h0"), (2_100, "z0-h1")], 1800, 2_100 + 300 + 1_800),
        (2, [(5, "z0-h1")], 1800, HOUR),  # on a host that no gang holds
    ],
)
def test_what_failures_cost(
    hosts: int, failures: list[tuple[int, str]], checkpoint_s: int, end_s: int
) -> None:
    outages = [down(*failure) for failure in failures]
    costs = Costs(checkpoint_s=checkpoint_s, restart_s=300)
    world = replayed(machine(hosts), [trace_job("a", 0, HOUR)], outages=outages, costs=costs)

    assert world.ends_s() == {"a": end_s}
    assert world.rows["a"].run_ns == HOUR * SECOND_NS
    assert world.rows["a"].attempts == 1 + len(failures) - (end_s == HOUR)


def test_a_gang_without_a_host_to_swap_in_waits_for_the_repair() -> None:
    world = replayed(
        machine(2),
        [trace_job("a", 0, HOUR, gpus=2)],
        outages=[down(2_500, "z0-h0"), up(10_000, "z0-h0")],
        costs=Costs(checkpoint_s=1000, restart_s=300),
    )

    told = ["HostMoved", "JobRequeued", "HostMoved", "JobStarted", "JobEnded"]
    assert kinds(world.log)[3:] == told
    assert world.ends_s() == {"a": 10_000 + 300 + (HOUR - 2_000)}
    totals = world.metrics.totals(2)
    assert totals["wait_s"]["mean"] == 0  # to the first start
    assert totals["utilization"] == pytest.approx((2_500 + 1_900) / 11_900)


def test_a_spare_that_fails_is_not_held_any_more() -> None:
    world = replayed(
        machine(2),
        [trace_job("a", 0, 100)],
        outages=[down(40, "z0-h1")],
        spares=SpareRule(hosts=1),
    )

    assert world.ends_s() == {"a": 100}
    assert world.metrics.spent().hosts.holding == (100 + 40) * SECOND_NS
    assert world.metrics.spent().hosts.running == 100 * SECOND_NS


def test_a_gang_stands_still_while_the_decision_lasts() -> None:
    world = replayed(
        machine(2),
        [trace_job("a", 0, 100)],
        outages=[down(50, "z0-h0")],
        costs=Costs(checkpoint_s=0, restart_s=0),
        decision_ns=10 * SECOND_NS,
    )

    assert world.starts_s() == {"a": 10}
    assert world.ends_s() == {"a": 60 + 60}  # 40 s done, stopped from 50 to 60
    spent = world.metrics.spent().hosts
    assert spent.running == 100 * SECOND_NS
    assert spent.holding == 110 * SECOND_NS


def test_who_arrives_during_a_decision_is_in_the_next() -> None:
    jobs = [trace_job("a", 0, 50), trace_job("b", 5, 50, priority=9)]
    world = replayed(machine(1), jobs, decision_ns=10 * SECOND_NS)

    assert world.starts_s() == {"a": 10, "b": 70}


def test_a_fabric_that_stays_down_ends_the_replay_with_jobs_left() -> None:
    world = replayed(machine(1), [trace_job("a", 0, 50)], outages=[down(10, "z0-h0")])

    assert world.rows == {}
    assert world.metrics.unfinished == 1


def test_names_in_a_trace_may_come_back() -> None:
    world = replayed(machine(1), [trace_job("a", 0, 5, line=1), trace_job("a", 9, 5, line=2)])

    assert [event.uid for event in world.of(JobSubmitted)] == ["trace-1", "trace-2"]
    assert world.metrics.completed == 2


def test_small_jobs_share_a_host_where_that_is_asked_for() -> None:
    """Two hosts of 8: four jobs of 4 GPUs at once, or two and then two."""
    jobs = [trace_job(name, 0, 100, gpus=4) for name in "abcd"]
    alone = replayed(machine(2, 8), jobs)
    beside = replayed(machine(2, 8), jobs, shares_hosts=True)
    assert sorted(alone.starts_s().values()) == [0, 0, 100, 100]
    assert sorted(beside.starts_s().values()) == [0, 0, 0, 0]
    totals = [world.metrics.totals(2) for world in (alone, beside)]
    assert [each["utilization"] for each in totals] == [1.0, 1.0]
    assert [each["gpu_utilization"] for each in totals] == [0.5, 1.0]


@pytest.mark.parametrize("has_model", [False, True])
def test_a_job_on_a_part_of_a_failed_host_does_its_work_elsewhere(has_model: bool) -> None:
    times = load_time_model("default") if has_model else None
    jobs = [trace_job(name, 0, 1_000, gpus=3) for name in "ab"]
    costs = Costs(checkpoint_s=100, restart_s=10)
    outages = [down(450, "z0-h0"), up(9_000, "z0-h0")]
    world = replayed(
        machine(2, 8), jobs, outages=outages, costs=costs, times=times, shares_hosts=True
    )
    starts = world.of(JobStarted)
    assert [event.hosts for event in starts] == [("z0-h0",)] * 2 + [("z0-h1",)] * 2
    assert [event.gpus for event in starts] == [(0, 1, 2), (4, 5, 6)] * 2
    checker, state = InvariantChecker(), State.empty()
    for event in world.log:
        state = apply(state, event)
        checker.feed(event, state)
    checker.check(world.tally, world.metrics)
    if not has_model:
        assert world.ends_s() == dict.fromkeys("ab", 450 + 10 + 600)


# --- elastic gangs in a replay -------------------------------------------------------

SAVED_ALWAYS = Costs(checkpoint_s=0, restart_s=0)


def shaped(run_s: int, dp: object, **keys: object) -> TraceJob:
    """A job of the format muster, of data-parallel ranks alone."""
    job = {"submit_s": 0, "run_s": run_s, "name": "a", "spares": 0, "traffic": {"dp": 1}}
    (found,) = muster.read([(1, json.dumps(job | {"parallelism": {"dp": dp}} | keys))])
    assert isinstance(found, TraceJob)
    return found


ELASTIC = {"min": 1, "max": 4}


def resized(hosts: int, *jobs: TraceJob, outages: tuple = ()) -> World:
    options = SchedulingOptions(resize_every_s=60)
    return replayed(machine(hosts), jobs, outages=outages, costs=SAVED_ALWAYS, options=options)


def test_work_of_an_elastic_gang_is_shared_among_the_hosts_that_it_has() -> None:
    """1,000 s on four hosts are 4,000 host-seconds: 400 are done when one fails at 100 s,
    and three hosts take 1,200 s for the rest."""
    world = resized(2, shaped(1_000, ELASTIC))
    assert (world.ends_s(), world.metrics.resizes) == ({"a": 2_000}, 0)
    world = resized(4, shaped(1_000, ELASTIC), outages=(down(100, "z0-h3"),))
    assert world.ends_s() == {"a": 100 + 1_200}
    assert (world.metrics.resizes, world.metrics.restarts) == (1, 1)


def test_a_gang_that_grows_is_done_sooner() -> None:
    """Two of four hosts until x ends at 1,800 s, when by the scheduler's own costs it has just
    saved; all four for what is left."""
    world = resized(4, trace_job("x", 0, 1_800, 2), shaped(10_000, ELASTIC))
    (grown,) = world.of(GangResized)
    grown_s = grown.time_ns // SECOND_NS
    assert (grown.dp, world.metrics.resizes) == (4, 1)
    assert 1_800 <= grown_s < 3_700
    assert world.ends_s()["a"] == grown_s + (40_000 - 2 * grown_s) / 4


def end_with_copies_s(checkpoint: dict[str, int], *failing: str) -> float:
    """When a job of four hosts ends if these fail after 557 s."""
    outages = [down(558, host) for host in failing]  # its start is decided for a second
    job, costs = shaped(3_600, 4, checkpoint=checkpoint), Costs(checkpoint_s=1_000, restart_s=300)
    world = replayed(machine(8), [job], outages=outages, costs=costs, decision_ns=SECOND_NS)
    return world.ends_s()["a"]


# --- copies of checkpoints in the memory of peers ------------------------------------


@pytest.mark.parametrize(
    ("checkpoint", "again_s"),
    [
        ({}, 557),
        ({"interval_s": 100}, 57),
        ({"peers": 1, "peer_interval_s": 10}, 7),
        ({"peers": 1, "interval_s": 500, "peer_interval_s": 50}, 7),
    ],
)
def test_only_what_was_not_saved_is_done_again(checkpoint: dict[str, int], again_s: int) -> None:
    assert end_with_copies_s(checkpoint, "z0-h0") == 1 + 3_600 + again_s + 1 + 300


def test_with_the_copy_the_memory_is_lost() -> None:
    """Four hosts copy half a turn apart: the first to the third, and back."""
    checkpoint = {"peers": 1, "interval_s": 500, "peer_interval_s": 10}
    assert end_with_copies_s(checkpoint, "z0-h0", "z0-h1") == 1 + 3_600 + 7 + 1 + 300
    assert end_with_copies_s(checkpoint, "z0-h0", "z0-h2") == 1 + 3_600 + 57 + 1 + 300


# --- under a health policy: what comes back has passed its tests, or is another machine

HOST = "z0-h0"


def moves(health: HealthPolicy, *times_s: int) -> list[HostMove]:
    """What a host goes through that is down and up again at these times, in turn."""
    outages = [Outage(t * SECOND_NS, HOST, n % 2 == 0, "crash") for n, t in enumerate(times_s)]
    world = replayed(machine(2), [trace_job("a", 0, 1_000)], outages=outages, health=health)
    assert isinstance(world.log[1], HealthLoaded)
    return [event.move for event in world.of(HostMoved)]


def test_a_repaired_host_passes_its_burn_in_and_one_that_goes_back_is_replaced() -> None:
    burnt_in = moves(HealthPolicy(has_burn_in=True), 100, 200)
    assert burnt_in == [HostMove.FAIL, HostMove.TEST, HostMove.PASS]
    lemons = LemonPolicy(at_least=1, out_count=2, action=LemonAction.RMA)
    found = moves(HealthPolicy(lemons=lemons), 100, 200, 300, 400)
    assert found[-3:] == [HostMove.RETURN, HostMove.INSTALL, HostMove.PASS]


def announced(
    effect: Effect, *, is_true: bool, has_burn_in: bool = False
) -> tuple[list[HostMove], int, int]:
    """Report a signal of a gang's host 30 s before it fails, or is found to be well. Return its
    moves, the swaps without need, and how often the gang began."""
    rule = replace(SIGNALS["link-flap"], thresholds=(Threshold(3, 3600, effect),))
    told = Outage(105 * SECOND_NS, HOST, True, "gpu", "link-flap")
    ends = [(135, is_true, ""), (200, False, "")] if is_true else [(135, False, "link-flap")]
    world = replayed(
        machine(3),
        [trace_job("a", 0, 1_000, 2)],
        outages=[told, *(Outage(t * SECOND_NS, HOST, d, "gpu", s) for t, d, s in ends)],
        costs=Costs(checkpoint_s=10, restart_s=1),
        health=HealthPolicy(rules=(HealthRule("link-flap", rule),), has_burn_in=has_burn_in),
    )
    moves = [event.move for event in world.of(HostMoved)]
    return moves, world.false_swaps, len(world.of(JobStarted, GangSwapped))


def test_a_gang_that_leaves_in_time_is_not_stopped_by_the_failure() -> None:
    assert announced(Effect.NOTE, is_true=True)[0] == [HostMove.FAIL, HostMove.REPAIR]
    leaves = announced(Effect.RETIRE, is_true=True)
    assert leaves == ([HostMove.RETIRE, HostMove.REPAIR], 0, 2)


def test_a_host_that_was_left_for_nothing_comes_back_and_is_counted() -> None:
    left = announced(Effect.RETIRE, is_true=False)
    assert left == ([HostMove.RETIRE, HostMove.REPAIR], 1, 2)
    assert announced(Effect.SUSPECT, is_true=False) == ([HostMove.SUSPECT], 0, 1)
    left = announced(Effect.RETIRE, is_true=False, has_burn_in=True)
    assert left == ([HostMove.RETIRE, HostMove.TEST, HostMove.PASS], 1, 2)


# --- windows, opened and closed by the virtual clock alone ---------------------------

HOSTS = [f"z0-h{i}" for i in range(4)]


def two_gangs(*windows: Window, limit_s: float | None = None) -> World:
    """Two gangs of two hosts for 100 s each, on four."""
    jobs = [trace_job(name, 0, 100, 2, limit_s) for name in "ab"]
    return replayed(machine(4), jobs, windows=lambda _: windows)


def at_s(world: World, kind: type[Event]) -> list[float]:
    return [event.time_ns / SECOND_NS for event in world.of(kind)]


def test_a_job_waits_for_the_end_of_maintenance() -> None:
    world = two_gangs(window("w", *HOSTS[:2], start_s=50, end_s=300))
    assert at_s(world, JobStarted) == [0, 100]
    assert at_s(world, WindowOpened) == [50]
    world = two_gangs(window("w", *HOSTS, start_s=0, end_s=70))
    assert at_s(world, WindowClosed) == [70]
    assert at_s(world, JobStarted) == [70, 70]


def test_a_gang_in_the_way_is_requeued_and_comes_back() -> None:
    """Both say that they take 40 s, and take 100."""
    leaving = window("w", *HOSTS[:2], start_s=50, end_s=60, leave="requeue")
    world = two_gangs(leaving, limit_s=40)
    assert at_s(world, JobRequeued) == [50]
    assert at_s(world, JobStarted) == pytest.approx([0, 0, 60])
