"""A stand-in for the launcher: gangs run for the time that the trace gives them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from scheduler.core import State
from scheduler.core.commands import EndJob
from scheduler.core.events import Event
from scheduler.core.lifecycle import JobState
from simulator.engine import END
from simulator.gangs import Began, Gangs, Left, Run, Stopped
from simulator.kernel import Kernel


class Launcher:
    """Reads the log and reports ends through `end`.

    An attempt ends when its job's remaining work is done; one that is interrupted
    keeps what was checkpointed. Work is host-time, so that a gang with half the replicas
    takes twice as long: a step takes the same samples in all, and a replica works through
    its share at the same rate whatever their number. Memory: O(live jobs).
    """

    def __init__(
        self, kernel: Kernel, end: Callable[[EndJob], None], state: Callable[[], State]
    ) -> None:
        self._kernel = kernel
        self._end = end
        self._state = state
        self._gangs = Gangs()
        self._work_host_ns: dict[str, int] = {}
        self._entry: dict[str, int] = {}

    def expect(self, name: str, run_ns: int, hosts: int) -> None:
        """The job `name` runs so long on so many hosts, when nothing comes between."""
        self._work_host_ns[name] = run_ns * hosts

    def feed(self, event: Event) -> None:
        """Start, stop and end gangs as the log says; `event` is the state's newest."""
        for change in self._gangs.feed(event):
            match change:
                case Began(run):
                    self._start(run)
                case Stopped(run):
                    self._cancel(run)
                case Left(run, _, is_complete):
                    self._cancel(run)
                    if is_complete:
                        del self._work_host_ns[run.name]

    def _start(self, run: Run) -> None:
        state = self._state()
        done_host_ns = state.jobs[run.name].goodput.hosts.productive
        work_ns = -(-(self._work_host_ns[run.name] - done_host_ns) // len(run.hosts))
        ahead_ns = state.tenants.preemption.costs.overhead_ns(run.attempt) + work_ns
        report = EndJob(run.name, JobState.COMPLETED, run.attempt)
        self._entry[run.name] = self._kernel.at(
            run.start_ns + ahead_ns, partial(self._end, report), END
        )

    def _cancel(self, run: Run) -> None:
        """An end that is no longer due must not come: the attempt did not get there."""
        entry = self._entry.pop(run.name, None)
        if entry is not None:
            self._kernel.cancel(entry)
