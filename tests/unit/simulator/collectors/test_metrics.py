"""The totals, each worked out by hand from a log."""

from dataclasses import replace

import pytest

from scheduler.core import JobState, Tenants
from scheduler.core.model.job import SECOND_NS
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.tenants import Preemption, PriorityClass
from simulator.collectors.metrics import Metrics, percentile
from simulator.report.text import duration
from simulator.timing import EMPTY, TimeModel, load_time_model
from simulator.traces.record import TraceOutcome
from tests.build import submit
from tests.replays import machine, measured, replayed, run_script, trace_job

COSTS = Costs(checkpoint_s=30, restart_s=5)


def test_the_totals_of_three_jobs() -> None:
    """One host: a runs 10..110, b waits 90 s for 5 s of work, c waits 95 s for 50 s."""
    jobs = [trace_job("a", 10, 100), trace_job("b", 20, 5), trace_job("c", 20, 50)]
    alone = replayed(machine(1), jobs, "fifo").metrics.totals(1)

    assert alone["jobs"] == alone["completed"] == 3
    assert alone["makespan_s"] == 155
    assert alone["wait_s"] == {
        "mean": pytest.approx((0 + 90 + 95) / 3),
        "p50": 90,
        "p95": pytest.approx(94.5),
        "p99": pytest.approx(94.9),
    }
    # b: (90 + 5) / 10, its run counted as 10 s; c: (95 + 50) / 50
    assert alone["bounded_slowdown"]["mean"] == pytest.approx((1 + 9.5 + 2.9) / 3)
    assert alone["utilization"] == 1.0
    assert alone["goodput"] == 1.0
    assert alone["events"] == 1 + 3 * 3


@pytest.mark.parametrize("times", [None, load_time_model("default")])
def test_jobs_end_as_in_their_trace_and_only_completed_ones_count(times: TimeModel | None) -> None:
    """A quarter of the time held is that of a job that completes."""
    ends = (TraceOutcome.COMPLETED, TraceOutcome.FAILED, TraceOutcome.CANCELLED)
    jobs = [replace(trace_job(f"j{end}", 0, 7200), outcome=end) for end in ends]
    jobs.append(replace(trace_job("late", 0, 7200), outcome=TraceOutcome.FAILED))
    world = replayed(machine(4), jobs, times=times)
    totals = world.metrics.totals(4)

    outcomes = {name: row.outcome.value for name, row in world.rows.items()}
    assert outcomes == {f"j{end}": end.value for end in ends} | {"late": "failed"}
    assert (totals["completed"], totals["failed"], totals["cancelled"]) == (1, 2, 1)
    assert totals["goodput"] == pytest.approx(0.25, abs=1e-3)
    parts = world.metrics.parts()
    assert parts["ettr"] == pytest.approx(0.25, abs=1e-3)
    lost_s = parts["host_s"]["unsuccessful"] + parts["host_s"]["rework"]
    assert lost_s == pytest.approx(3 * 7200, abs=20)
    assert sum((row.host_time for row in world.rows.values()), EMPTY) == world.metrics.accounts()[1]


def test_a_job_that_the_end_of_the_replay_cancels_was_productive() -> None:
    jobs = [replace(trace_job("a", 0, 9000), outcome=TraceOutcome.FAILED)]
    world = replayed(machine(1), [*jobs, trace_job("late", 8000, 5)], until_s=7200)

    assert [row.outcome for row in world.rows.values()] == [JobState.CANCELLED]
    assert world.ends_s() == {"a": 7200}
    assert world.metrics.totals(1)["goodput"] == 1.0
    empty = Metrics().totals(4)
    assert empty["utilization"] == empty["goodput"] == empty["makespan_s"] == 0


def test_percentiles_lie_between_the_nearest_ranks() -> None:
    found = [percentile([1.0, 2.0, 3.0, 4.0], percent) for percent in (0, 50, 95, 99, 100)]
    assert found == pytest.approx([1.0, 2.5, 3.85, 3.97, 4.0])
    assert percentile([], 50) == 0.0


def test_durations_have_two_units() -> None:
    for seconds, text in {
        0: "0 s",
        4.1: "4.1 s",
        60: "1 min",
        3599: "1 h 00 min",
        11_100: "3 h 05 min",
        86_400: "1 d 00 h",
        92 * 86_400 + 4 * 3600: "92 d 04 h",
    }.items():
        assert duration(seconds) == text


def test_what_a_preempted_gang_repeats() -> None:
    """Two hosts are evicted after 100 s, 10 of them since the last checkpoint."""
    classes = (PriorityClass("spot", -1, is_preemptible=True),)
    tenants = Tenants(classes=classes, preemption=Preemption(min_run_s=0, costs=COSTS))
    low, high = submit("low", 2, gpus=1, priority_class="spot"), submit("high", 1, gpus=1)
    log = run_script(machine(2), [(0, low), (100 * SECOND_NS, high)], tenants=tenants)
    metrics = measured(log)

    assert metrics.preemptions == 1
    assert metrics.preempted_host_ns == 2 * 10 * SECOND_NS


def test_the_largest_job_is_told_by_what_it_took() -> None:
    jobs = [trace_job("a", 0, 100), trace_job("b", 0, 50, gpus=2), trace_job("c", 1, 20, gpus=2)]
    metrics = replayed(machine(2), jobs, "fifo").metrics

    told = {"job": "b", "hosts": 2, "wait_s": 100.0, "took_s": 50.0, "attempts": 1}
    assert metrics.largest_job() == told
    assert Metrics().largest_job() is None
