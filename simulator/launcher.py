"""A stand-in for the launcher: gangs run for the time that the trace gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from scheduler.core import State
from scheduler.core.fold.attempts import (
    AttemptLeft,
    EffectReader,
    Launcher,
    PlacedGang,
    attempt_changes,
    carry_out,
)
from scheduler.core.model.commands import CancelJob, EndJob
from scheduler.core.model.events import Event, JobEnded
from scheduler.core.model.lifecycle import JobState
from simulator.kernel import SimulationKernel
from simulator.sim_events import END, GangFinished
from simulator.timing import FlatTiming, ModelledTiming
from simulator.traces.record import TraceOutcome

IN_TRACE = "as in the trace"


class SimulatedLauncher(Launcher):
    """Stands in for the launcher: reads the log, and reports ends of attempts through `end`.

    An attempt ends when its job's remaining work is done, as `timing` has it; one that is
    interrupted keeps what was checkpointed. Work is host-time, so that a gang with half the
    replicas takes twice as long: a step takes the same samples in all, and a replica works through
    its share at the same rate whatever their number. A job ends as its trace says that it did;
    `unsuccessful`: jobs that have just failed or been cancelled so, until they are forgotten.
    Memory: O(live jobs).
    """

    def __init__(
        self,
        kernel: SimulationKernel,
        end: Callable[[EndJob | CancelJob], None],
        timing: FlatTiming | ModelledTiming,
        effects: EffectReader,
    ) -> None:
        self.unsuccessful: set[str] = set()
        self._kernel = kernel
        self._end = end
        self._timing = timing
        self._effects = effects
        self._state = State.empty()
        self._attempt: dict[str, int] = {}
        self._outcome: dict[str, TraceOutcome] = {}  # of those that do not complete
        self._entry: dict[str, int] = {}
        self._silent: set[str] = set()
        kernel.on(GangFinished, self._ends)

    def expect(self, name: str, outcome: TraceOutcome) -> None:
        """Note an admitted job, and how it ended in its trace."""
        match outcome:
            case TraceOutcome.FAILED | TraceOutcome.CANCELLED:
                self._outcome[name] = outcome
            case TraceOutcome.COMPLETED | TraceOutcome.UNKNOWN:
                pass
            case _:
                assert_never(outcome)

    def adopt(self, state: State) -> None:
        """Go on with the gangs that hold hosts in `state`, all of which are expected; the log goes
        on from there."""
        self._effects.adopt(state)
        self._state = state
        for job in state.holding:
            run = PlacedGang.of(job, state.built_fabric)
            self.begin(run)
            if run.stop_ns is not None:
                self._cancel(run.name)
                self._timing.halt(run.name, run.stop_ns)
        self.reschedule_ends()

    def feed(self, event: Event, state: State) -> None:
        """Start, stop and end gangs as the log says. `state`: right after `event`."""
        if isinstance(event, JobEnded) and event.outcome is JobState.FAILED:
            self.unsuccessful.add(event.name)
        self._state = state
        for change in attempt_changes(self._effects.read(event, state)):
            carry_out(self, change)
            self.reschedule_ends()

    def forget(self, event: Event) -> None:
        """Forget a job that is over, once all have read `event`."""
        if isinstance(event, JobEnded):
            self._attempt.pop(event.name, None)
            self._outcome.pop(event.name, None)
            self.unsuccessful.discard(event.name)
            self._timing.forget(event.name)

    def fail_silently(self, host: str) -> None:
        """Fail a host without notice: its gang stops."""
        self._silent.add(host)
        index = self._state.built_fabric.index_by_name[host]
        for job in self._state.holders(index):
            if index in job.hosts:
                self._halt(job.name)
                self.reschedule_ends()

    def revive(self, host: str) -> None:
        """Note that a host is known to have failed, or works again."""
        self._silent.discard(host)

    def begin(self, run: PlacedGang) -> None:
        """Start an attempt, which has its hosts, at once."""
        self._timing.begin(run)
        self._attempt[run.name] = run.attempt
        self._await_end(run.name)
        if self._silent and not self._silent.isdisjoint(run.hosts):
            self._halt(run.name)

    def stop(self, run: PlacedGang) -> None:
        """Stop an attempt because of a failure."""
        self._halt(run.name)

    def leave(self, left: AttemptLeft) -> None:
        """Take note that an attempt is over."""
        self._cancel(left.run.name)
        self._timing.leave(left)

    def _await_end(self, name: str) -> None:
        end_ns = max(self._timing.end_ns(name, self._kernel.now_ns), self._kernel.now_ns)
        self._entry[name] = self._kernel.at(end_ns, GangFinished(name, self._attempt[name]), END)

    def _ends(self, due: GangFinished) -> None:
        outcome = self._outcome.get(due.name)
        if outcome is not None:
            self.unsuccessful.add(due.name)
        if outcome is TraceOutcome.CANCELLED:
            self._end(CancelJob(due.name, IN_TRACE))
        elif outcome is TraceOutcome.FAILED:
            self._end(EndJob(due.name, JobState.FAILED, due.attempt, IN_TRACE))
        else:
            self._end(EndJob(due.name, JobState.COMPLETED, due.attempt))

    def _halt(self, name: str) -> None:
        self._cancel(name)
        self._timing.halt(name, self._kernel.now_ns)

    def _cancel(self, name: str) -> None:
        """An end that is no longer due must not come: the attempt did not get there."""
        entry = self._entry.pop(name, None)
        if entry is not None:
            self._kernel.cancel(entry)

    def reschedule_ends(self) -> None:
        """Schedule the ends of gangs anew whose pace has changed."""
        for name in self._timing.changed():
            self._cancel(name)
            self._await_end(name)
