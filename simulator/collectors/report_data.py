"""Everything that a page shows of a run, from one pass over its log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from placement.fabric.tree import Fabric
from scheduler.core.fold.attempts import attempt_changes
from scheduler.core.fold.effects import EventEffect
from scheduler.core.model.events import Event, JobStarted
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.state import State
from simulator.collectors.failure_counts import FailureCounts
from simulator.collectors.invariants import InvariantViolated
from simulator.collectors.metrics import JobRow
from simulator.collectors.size_classes import SizeClasses
from simulator.collectors.timeline import Timeline
from simulator.timing import TimeAccount

FORMAT = 4  # of what `data` returns; pages read no other
MOST_LONGEST = 10


class ReportData:
    """Data for the pages of a report: feed it a log in order, and the rows of ended jobs. Memory:
    O(hosts + live jobs)."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._sizes = SizeClasses(fabric)
        self._faults = FailureCounts()
        self._timeline: Timeline | None = None
        self._zero_ns = 0
        self._now_ns = 0
        self._longest: list[JobRow] = []

    def feed(self, event: Event, done: Sequence[EventEffect], state: State) -> None:
        """Count one event, which had these effects. `state`: right after it. Cost: O(hosts of its
        gang)."""
        if self._timeline is None:
            self._zero_ns = event.time_ns
            self._timeline = Timeline(self._fabric, event.time_ns)
        self._now_ns = event.time_ns
        self._timeline.feed(event.time_ns, done, state)
        self._faults.feed(event.time_ns, done, tuple(attempt_changes(done)))
        if isinstance(event, JobStarted):
            self._sizes.started(event)

    def ended(self, row: JobRow) -> None:
        """Take one job that is over."""
        self._sizes.ended(row)
        shortest_ns = self._longest[-1].wait_ns or 0 if len(self._longest) == MOST_LONGEST else -1
        if (row.wait_ns or 0) > shortest_ns:
            longest = sorted([*self._longest, row], key=lambda each: -(each.wait_ns or 0))
            self._longest = longest[:MOST_LONGEST]

    def data(self, settled: TimeAccount) -> dict[str, Any]:
        """Return the run from its first event to its last, as plain values. `settled`: host time of
        attempts that are over, by the accounts of jobs. Raises: InvariantViolated when the parts do
        not add up to all hosts all the time."""
        if self._timeline is None:
            raise ValueError("a log begins with its fabric; this one is empty")
        end_ns = max(self._now_ns, self._zero_ns + 1)
        span_ns = end_ns - self._zero_ns
        return {
            "format": FORMAT,
            "span_s": span_ns / SECOND_NS,
            "hosts": self._fabric.host_count,
            "gpus_per_host": self._fabric.gpus_per_host,
            "outer_tier": self._fabric.tiers[0].name if self._fabric.tiers else "",
            "timeline": self._timeline.data(end_ns),
            "host_s": self._host_s(end_ns, settled),
            "sizes": self._sizes.data(),
            "faults": self._faults.data(end_ns),
            "longest_waits": [_row(row) for row in self._longest],
        }

    def _host_s(self, end_ns: int, settled: TimeAccount) -> dict[str, float]:
        """Where the host-time of the run went. The parts add up to hosts x span."""
        states = self._timeline.host_ns(end_ns) if self._timeline else {}
        running_ns = states.pop("running")
        parts = {
            "kept": settled.productive,
            "unsuccessful": settled.unsuccessful,
            "repeated": settled.rework,
            "unnoticed": settled.detection,
            "restarting": settled.restart,
            "saving": settled.checkpoint,
            "slowed": settled.network,
            "not_over": running_ns - settled.running,
            **states,
        }
        all_ns = self._fabric.host_count * (end_ns - self._zero_ns)
        if sum(parts.values()) != all_ns or min(parts.values()) < 0:
            raise InvariantViolated(f"host-ns of the fabric: {all_ns:,}, and the parts are {parts}")
        return {name: part / SECOND_NS for name, part in parts.items()}


def _row(row: JobRow) -> dict[str, Any]:
    return {
        "job": row.name,
        "hosts": row.hosts,
        "wait_s": (row.wait_ns or 0) / SECOND_NS,
        "run_s": row.run_ns / SECOND_NS,
        "attempts": row.attempts,
        "outcome": row.outcome.value,
    }
