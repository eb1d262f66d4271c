"""Replays small enough to follow by hand: ends, interruptions, repeatability."""

import json

import pytest

from placement.workload.request import SpareRule
from scheduler.core import HostState, JobState, SchedulingOptions, State, apply, replay
from scheduler.core.model.commands import CancelJob, Command, EndJob, MoveHost, SubmitJob
from scheduler.core.model.events import (
    Event,
    FabricLoaded,
    GangResized,
    JobEnded,
    JobStarted,
    JobSubmitted,
    TenantsLoaded,
)
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.policies.costs import Costs
from simulator.collectors.invariants import InvariantChecker
from simulator.timing import load_time_model
from simulator.traces.formats import muster
from simulator.traces.mapping import job_spec
from simulator.traces.record import SECOND_NS, TraceJob
from tests.replays import World, down, machine, replayed, run_script, trace_job, up

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


# --- scripts -------------------------------------------------------------------


def submit(name: str, hosts: int) -> SubmitJob:
    return SubmitJob(job_spec(trace_job(name, 0, 60, hosts), 1, SpareRule(hosts=0)), f"uid-{name}")


def test_a_script_sends_each_command_at_its_time() -> None:
    script: list[tuple[int, Command]] = [
        (10, submit("a", 2)),
        (10, submit("b", 1)),
        (40, EndJob("a", JobState.COMPLETED)),
        (45, CancelJob("nobody")),  # refused, which leaves no trace
        (46, submit("huge", 9)),
        (50, CancelJob("b")),
    ]
    log = run_script(machine(2), script)

    assert [(e.time_ns, type(e)) for e in log] == [
        (10, FabricLoaded),
        (10, JobSubmitted),
        (10, JobSubmitted),
        (10, JobStarted),
        (40, JobEnded),
        (40, JobStarted),
        (50, JobEnded),
    ]


def test_a_scripted_drain_moves_the_gang_and_empties_the_host() -> None:
    script: list[tuple[int, Command]] = [
        (10, submit("a", 1)),
        (20, MoveHost("z0-h0", HostMove.DRAIN)),
    ]
    log = run_script(machine(2), script)

    assert kinds(log)[-2:] == ["HostMoved", "GangSwapped"]
    assert replay(log).host(0).state is HostState.CORDONED


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


def elastic(submit_s: int, run_s: int, least: int, most: int) -> TraceJob:
    job = {
        **{"submit_s": submit_s, "run_s": run_s, "name": "e", "spares": 0},
        **{"parallelism": {"dp": {"min": least, "max": most}}, "traffic": {"dp": 1}},
    }
    (found,) = muster.read([(1, json.dumps(job))])
    assert isinstance(found, TraceJob)
    return found


def resized(hosts: int, *jobs: TraceJob, outages: tuple = ()) -> World:
    options = SchedulingOptions(resize_every_s=60)
    return replayed(machine(hosts), jobs, outages=outages, costs=SAVED_ALWAYS, options=options)


def test_half_the_replicas_take_twice_as_long() -> None:
    world = resized(2, elastic(0, 1_000, 1, 4))
    assert world.ends_s()["e"] == 2_000
    assert world.metrics.resizes == 0


def test_a_host_that_fails_costs_its_share() -> None:
    """1,000 s on four hosts are 4,000 host-seconds: 400 are done when one fails at 100 s,
    and three hosts take 1,200 s for the rest."""
    world = resized(4, elastic(0, 1_000, 1, 4), outages=(down(100, "z0-h3"),))
    assert world.ends_s()["e"] == 100 + 1_200
    assert (world.metrics.resizes, world.metrics.restarts) == (1, 1)


def test_a_gang_that_grows_is_done_sooner() -> None:
    """Two of four hosts until x ends at 1,800 s, when by the scheduler's own costs it has just
    saved; all four for what is left."""
    world = resized(4, trace_job("x", 0, 1_800, 2), elastic(0, 10_000, 1, 4))
    (grown,) = world.of(GangResized)
    grown_s = grown.time_ns // SECOND_NS
    assert (grown.dp, world.metrics.resizes) == (4, 1)
    assert 1_800 <= grown_s < 3_700
    assert world.ends_s()["e"] == grown_s + (40_000 - 2 * grown_s) / 4
