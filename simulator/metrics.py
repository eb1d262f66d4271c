"""What a replay amounts to: folds over the event log, nothing else.

Wait: submit to first start. Bounded slowdown: (end - submit) / run, at least 1, with a
run below 10 s counted as 10 s (Feitelson 2001). Utilization: host-seconds in which
ranks ran, over hosts x makespan. Goodput: host-seconds of progress that was kept, over
host-seconds held, spares and stopped gangs included.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from scheduler.core.costs import Costs
from scheduler.core.events import (
    Event,
    GangResized,
    GangSwapped,
    HostMoved,
    JobEnded,
    JobPreempted,
    JobStarted,
    JobSubmitted,
)
from scheduler.core.job import SECOND_NS
from scheduler.core.lifecycle import HostMove, JobState
from simulator.gangs import Gangs, Left

FLOOR_NS = 10 * SECOND_NS
PERCENTILES = (50, 95, 99)


@dataclass(frozen=True, slots=True)
class JobRow:
    """One ended job. `run_ns`: its productive time; `host_ns`: hosts x time they ran."""

    name: str
    submit_ns: int
    start_ns: int | None
    end_ns: int
    hosts: int
    attempts: int
    run_ns: int
    host_ns: int
    outcome: JobState

    @property
    def wait_ns(self) -> int | None:
        return None if self.start_ns is None else self.start_ns - self.submit_ns

    @property
    def slowdown(self) -> float:
        return max(1.0, (self.end_ns - self.submit_ns) / max(self.run_ns, FLOOR_NS))


@dataclass(slots=True)
class _Open:
    """What is known of a live job."""

    submit_ns: int
    start_ns: int | None = None
    hosts: int = 0
    attempts: int = 0
    run_ns: int = 0
    host_ns: int = 0


class Metrics:
    """Feed it a log, in order; read it at any time.

    `on_row` is called with each job as it ends. Memory: two numbers per ended job, for
    the percentiles, and an entry per live one.
    """

    def __init__(self, costs: Costs, on_row: Callable[[JobRow], None] | None = None) -> None:
        self.events = 0
        self.submitted = 0
        self.completed = 0
        self.restarts = 0
        self.resizes = 0
        self.host_failures = 0
        self.preemptions = 0
        self.preempted_host_ns = 0  # work that preempted gangs have to repeat
        self.running_host_ns = 0
        self.held_host_ns = 0
        self.productive_host_ns = 0
        self.first_submit_ns: int | None = None
        self.last_end_ns: int | None = None
        self._costs = costs
        self._on_row = on_row
        self._gangs = Gangs()
        self._open: dict[str, _Open] = {}
        self._waits_s = array("d")
        self._slowdowns = array("d")
        self._now_ns = 0

    def feed(self, event: Event) -> None:
        """Count one event. Cost: O(hosts of its gang)."""
        self.events += 1
        self._advance(event.time_ns)
        for change in self._gangs.feed(event):
            if isinstance(change, Left):
                self._left(change, isinstance(event, JobPreempted))
        match event:
            case JobSubmitted():
                self._submitted(event)
            case JobStarted():
                self._started(event)
            case GangSwapped() | GangResized():
                self.restarts += 1
                self.resizes += isinstance(event, GangResized)
                self._open[event.name].attempts = event.attempt
            case JobEnded():
                self._ended(event)
            case HostMoved(move=HostMove.FAIL):
                self.host_failures += 1
            case _:
                pass

    def _advance(self, now_ns: int) -> None:
        """Hosts are counted by what they did until now."""
        elapsed_ns = now_ns - self._now_ns
        self.running_host_ns += elapsed_ns * self._gangs.running
        self.held_host_ns += elapsed_ns * self._gangs.held
        self._now_ns = now_ns

    def _submitted(self, event: JobSubmitted) -> None:
        self.submitted += 1
        if self.first_submit_ns is None:
            self.first_submit_ns = event.time_ns
        self._open[event.spec.name] = _Open(event.time_ns)

    def _started(self, event: JobStarted) -> None:
        job = self._open[event.name]
        job.attempts, job.hosts = event.attempt, len(event.hosts)
        if job.start_ns is None:
            job.start_ns = event.time_ns
            self._waits_s.append((event.time_ns - job.submit_ns) / SECOND_NS)
        else:
            self.restarts += 1

    def _left(self, left: Left, is_preempted: bool) -> None:
        run, hosts = left.run, len(left.run.hosts)
        kept_ns = self._costs.productive_ns(run.attempt, left.ran_ns, left.is_complete)
        job = self._open[run.name]
        job.run_ns += kept_ns
        job.host_ns += left.ran_ns * hosts
        self.productive_host_ns += kept_ns * hosts
        if is_preempted:
            self.preemptions += 1
            self.preempted_host_ns += (left.ran_ns - kept_ns) * hosts

    def _ended(self, event: JobEnded) -> None:
        job = self._open.pop(event.name)
        row = JobRow(
            event.name,
            job.submit_ns,
            job.start_ns,
            event.time_ns,
            job.hosts,
            job.attempts,
            job.run_ns,
            job.host_ns,
            event.outcome,
        )
        self.last_end_ns = event.time_ns
        if event.outcome is JobState.COMPLETED:
            self.completed += 1
            self._slowdowns.append(row.slowdown)
        if self._on_row:
            self._on_row(row)

    @property
    def makespan_ns(self) -> int:
        """First submit to last end; 0 when nothing ended."""
        if self.first_submit_ns is None or self.last_end_ns is None:
            return 0
        return self.last_end_ns - self.first_submit_ns

    @property
    def unfinished(self) -> int:
        """Jobs that are still live."""
        return len(self._open)

    def totals(self, hosts: int) -> dict[str, Any]:
        """The totals of a replay on a fabric of that many hosts."""
        waits = sorted(self._waits_s)
        capacity_ns = hosts * self.makespan_ns
        return {
            "jobs": self.submitted,
            "completed": self.completed,
            "makespan_s": self.makespan_ns / SECOND_NS,
            "wait_s": {
                "mean": _mean(waits),
                **{f"p{p}": percentile(waits, p) for p in PERCENTILES},
            },
            "bounded_slowdown": {"mean": _mean(self._slowdowns)},
            "utilization": _ratio(self.running_host_ns, capacity_ns),
            "goodput": _ratio(self.productive_host_ns, self.held_host_ns),
            "restarts": self.restarts,
            "events": self.events,
        }


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Between the two nearest ranks, in proportion (numpy's default); 0 of nothing."""
    if not ordered:
        return 0.0
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
