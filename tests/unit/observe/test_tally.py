"""Counts of what has happened, as a fold over events."""

from pathlib import Path

import pytest

from placement.workload.request import Objective, StepBound, TierCut
from scheduler.core import JobState, State, replay
from scheduler.core.decide import decide
from scheduler.core.fold.apply import apply, effects
from scheduler.core.model.commands import Command, ReportHost
from scheduler.core.model.events import (
    Event,
    FabricLoaded,
    GangResized,
    GangSwapped,
    HostMoved,
    HostSwap,
    JobEnded,
    JobPreempted,
    JobRequeued,
)
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import HostMove, Mover, RequeueCause
from scheduler.core.model.scheduling_options import SchedulingOptions
from scheduler.eventlog.store import open_store
from scheduler.observe.counters import Histogram
from scheduler.observe.history import Failure, FailureHistory
from scheduler.observe.incidents import KEPT, IncidentKind, Incidents, look_back
from scheduler.observe.proof import CutProof, gap, objective_gap, proof
from scheduler.observe.tally import EventTally, size_class, tally
from tests.build import (
    HOUR_NS,
    admitted,
    cancel,
    committed,
    drain,
    end,
    exactly,
    fabric,
    fabric_spec,
    fail,
    repair,
    submit,
)
from tests.replays import measured, run_script
from tests.serving import url

SMALL = fabric()


def _log(*steps: Command | None, step_ns: int = SECOND_NS) -> list[Event]:
    """Commands a second apart; None decides."""
    log: list[Event] = [FabricLoaded(0, SMALL.spec)]
    state, now_ns = replay(log), 0
    for step in steps:
        now_ns += step_ns
        events = (
            admitted(state, step, now_ns)
            if step is not None
            else committed(state, decide(state, now_ns, SchedulingOptions()), now_ns)
        )
        state = replay(events, state)
        log += events
    return log


def _host(state: State, name: str, block: int = 0) -> str:
    return state.loaded_fabric.hosts[state.jobs[name].hosts[block]]


def _of_a_gang_of_two(event: Event) -> EventTally:
    """Count one event of a gang `a` that runs on two hosts."""
    state, found = replay(_log(submit("a", 2), None)), EventTally()
    found.feed(state, event, effects(state, event, apply(state, event)))
    return found


def test_waits_are_those_of_first_starts_by_size() -> None:
    log = _log(submit("a", 2), submit("b", 1), None)
    found = tally(log)
    assert {key: h.total for key, h in found.waits_s.items()} == {("9-64",): 2.0, ("1-8",): 1.0}
    assert +found.submitted == {("default",): 2}
    assert found.events["JobStarted",] == 2


def _failure_of_gang(gpus: int) -> Failure:
    """Return the failure that stops a gang of so many GPUs of one host after ten minutes."""
    steps = (submit("a", gpus=gpus), None)
    host = _host(replay(_log(*steps)), "a")
    log = _log(*steps, fail(host), None, None, step_ns=600 * SECOND_NS)
    history, state = FailureHistory(HOUR_NS), replay(log[:1])
    for event in log[1:]:
        before, state = state, replay([event], state)
        history.feed(before, event, state)
    (failure,) = history.failures(state, log[-1].time_ns)
    return failure


def test_a_failure_costs_a_gang_on_a_part_of_a_host_its_own_gpus_alone() -> None:
    part, whole = _failure_of_gang(2), _failure_of_gang(8)
    assert (part.gpus, whole.gpus) == (2, SMALL.gpus_per_host)
    assert (4 * part.lost.rework, 4 * part.lost.restart) == (whole.lost.rework, whole.lost.restart)
    assert part.lost.rework > 0
    assert part.lost.restart > 0


def test_a_gang_that_starts_again_from_the_queue_is_a_restart_without_a_wait() -> None:
    host = SMALL.hosts[0]
    steps = (submit("a", 8), None, fail(host), None, repair(host), None)
    found = tally(_log(*steps, step_ns=600 * SECOND_NS))
    assert +found.requeues == {("failure",): 1}
    assert +found.restarts == {("queue",): 1}
    assert sum(found.waits_s["9-64",].counts) == 1
    assert sum(found.placements.values()) == 2
    assert +found.failures == {("gpu-lost",): 1}
    assert +found.repairs == {(): 1}


def test_a_swap_says_why_and_from_where() -> None:
    for spares, source in [(1, "spare"), (0, "free")]:
        begun = (submit("a", 3, spares=exactly(spares)), None)
        host = _host(replay(_log(*begun)), "a")
        failed = tally(_log(*begun, fail(host), None))
        drained = tally(_log(*begun, drain(host), None))
        assert +failed.swaps == {("failure",): 1}
        assert +drained.swaps == {("drain",): 1}
        assert +failed.swapped_hosts == +drained.swapped_hosts == {(source,): 1}
        assert +failed.restarts == {("swap",): 1}


def test_resizes_and_requeues_are_counted_by_cause() -> None:
    for hosts, how in [(1, "shrunk"), (3, "grown")]:
        found = _of_a_gang_of_two(GangResized(9, "a", 2, hosts, SMALL.hosts[:hosts], (), ()))
        assert +found.resizes == {(how,): 1}
        assert +found.restarts == {("resize",): 1}
    for event, cause in (
        (JobPreempted(9, "a", "b", "for b"), "preempted"),
        (JobRequeued(9, "a", "window w opened", RequeueCause.MAINTENANCE), "maintenance"),
        (JobRequeued(9, "a", "no host", RequeueCause.FAILURE), "failure"),
    ):
        assert +_of_a_gang_of_two(event).requeues == {(cause,): 1}


def test_ends_are_told_apart() -> None:
    begun = (submit("a"), submit("b"), submit("c"), None)
    found = tally(_log(*begun, end("a"), end("b", JobState.FAILED), cancel("c")))
    assert found.ended == {("default", how): 1 for how in ("completed", "failed", "cancelled")}


def test_a_signal_on_record_and_an_agent_that_comes_back_are_no_failure() -> None:
    signals = ("thermal", "agent-awaited", "agent-back")
    found = tally(_log(*(ReportHost("z0-r0-h0", signal) for signal in signals)))
    assert +found.notes == {("thermal",): 1}
    assert found.events["HostMoved",] == 2
    assert not +found.failures
    assert not +found.repairs


def test_it_agrees_with_the_metrics_of_a_replay() -> None:
    """Two folds that share no code, on the log of a simulated cluster."""
    script = [(0, submit("a", 4)), (1, submit("b", 8)), (HOUR_NS, fail("z0-r0-h0"))]
    script += [(2 * HOUR_NS, repair("z0-r0-h0")), (3 * HOUR_NS, end("a")), (5 * HOUR_NS, end("b"))]
    log = run_script(SMALL, script)
    other, mine = measured(log), tally(log)
    assert sum(mine.submitted.values()) == other.submitted == 2
    assert sum(mine.failures.values()) == other.host_failures == 1
    assert sum(mine.restarts.values()) == other.restarts > 0
    assert mine.ended["default", "completed"] == other.completed == 2
    assert sum(h.total for h in mine.waits_s.values()) == pytest.approx(
        other.totals(8)["wait_s"]["mean"] * 2
    )


def test_classes_of_size_and_histograms_count_at_or_below() -> None:
    names = ["1-8", "1-8", "9-64", "2049-8192", "8193+"]
    assert [size_class(gpus) for gpus in (1, 8, 9, 8_192, 8_193)] == names
    histogram = Histogram((1, 5))
    for value in (0.5, 1, 1.1, 5, 6):
        histogram.add(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.total == pytest.approx(13.6)


def test_proofs() -> None:
    for cut, bound, what, open_ in [
        (0, 0, CutProof.OPTIMAL, 0),
        (9, 9, CutProof.OPTIMAL, 0),
        (10, 9, CutProof.BOUNDED, 0.1),
        (9, 0, CutProof.NONE, 1),
    ]:
        cuts = (TierCut("zone", cut),)
        assert proof(cuts, bound) is what
        assert gap(cuts, bound) == pytest.approx(open_)
        by_cut = objective_gap(Objective.CUT, cuts, bound, StepBound(3.0, 2.0))
        assert by_cut == (None if what is CutProof.NONE else pytest.approx(open_))
        assert objective_gap(Objective.TIME, cuts, bound, StepBound(3.0, 2.0)) == 0.5
        assert objective_gap(Objective.TIME, cuts, bound, StepBound(3.0)) is None  # as after a swap
        assert objective_gap(Objective.SPREAD, cuts, bound, None) is None


# --- what has gone wrong of late -----------------------------------------------------


def _failure(version: int) -> HostMoved:
    return HostMoved(
        version, f"h{version}", HostMove.FAIL, "nic-down", "", Mover.SIGNAL, "nic-down"
    )


def test_the_newest_come_first_and_old_ones_go() -> None:
    found = Incidents()
    for version in range(KEPT + 5):
        found.feed(version, _failure(version))
    newest = found.newest()
    assert len(newest) == KEPT
    assert (newest[0].version, newest[-1].version) == (KEPT + 4, 5)
    assert (newest[0].subject, newest[0].detail) == (f"h{KEPT + 4}", "nic-down")


def test_a_swap_names_its_hosts_and_what_is_as_it_should_be_is_no_incident() -> None:
    found = Incidents()
    found.feed(1, JobEnded(1, "a", JobState.COMPLETED))
    found.feed(2, HostMoved(2, "h", HostMove.CORDON))
    found.feed(3, GangSwapped(3, "a", 2, (HostSwap(0, "h0", "h5"), HostSwap(1, "h1", "h6")), ()))
    (one,) = found.newest()
    assert (one.kind, one.detail) == (IncidentKind.GANG_SWAPPED, "h0 by h5, h1 by h6")


def test_a_restart_remembers_what_went_before(tmp_path: Path) -> None:
    store = open_store(url(tmp_path))
    try:
        store.append(0, [FabricLoaded(0, fabric_spec()), _failure(2), _failure(3)])
        found = look_back(store, 3)
    finally:
        store.close()
    assert [one.version for one in found.newest()] == [3, 2]
