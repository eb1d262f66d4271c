"""What is measured around a write and a decision; nobody is asked what it is for.

queue    from a command's arrival until the writer takes it up
admit    checking one command           commit   checking one plan
append   making a batch durable
decide   finding a plan                 solve    placing one gang
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from time import perf_counter_ns
from typing import Any, NamedTuple

from placement.fabric.hostset import HostSet
from placement.workload.request import Placement
from scheduler.core import Job, State
from scheduler.core.capacity.placer import Placer
from scheduler.core.fold.effects import EventEffect
from scheduler.core.model.events import (
    Event,
    HostMoved,
    HostSignalled,
    JobSubmitted,
    WindowEvent,
    WindowSet,
)
from scheduler.core.model.job import SECOND_NS
from scheduler.observe.counters import Counts, Histogram, Histograms
from scheduler.observe.incidents import Incidents
from scheduler.observe.supervision import Heartbeats
from scheduler.observe.tally import EventTally

STAGE_BOUNDS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
BATCH_BOUNDS = tuple(2**power for power in range(11))


log = logging.getLogger("muster.log")


class Stage(StrEnum):
    """A part of the time between a call and its answer."""

    QUEUE = "queue"
    ADMIT = "admit"
    COMMIT = "commit"
    APPEND = "append"
    DECIDE = "decide"
    SOLVE = "solve"


class AppliedEvent(NamedTuple):
    """One durable event with the states around it. `actor`: who asked for it, `arrived_ns`:
    when, by `perf_counter_ns`; None when another server wrote it. `effects`: what it did to jobs,
    hosts and windows."""

    before: State
    event: Event
    after: State
    actor: str
    arrived_ns: int | None
    effects: tuple[EventEffect, ...]


class Instruments:
    """All measurements of one writer.

    Stages are measured on the event loop and, SOLVE, in the deciding thread; each is measured in
    one of them only.
    """

    def __init__(self) -> None:
        self.beats = Heartbeats()
        self.incidents = Incidents()
        self.tally = EventTally()
        self.stages_s = Histograms(STAGE_BOUNDS_S, Stage)
        self._of_stage = {stage: self.stages_s[stage.value,] for stage in Stage}
        self.batches = Histogram(BATCH_BOUNDS)
        self.conflicts = Counts({(): 0})
        self.calls = Counts()  # by method and code
        self.calls_s = Histograms(STAGE_BOUNDS_S)  # by method

    def record_stage(self, stage: Stage, began_ns: int) -> None:
        """Record that `stage` lasted from then until now."""
        self._add(stage, began_ns, perf_counter_ns())

    @contextmanager
    def timed(self, stage: Stage) -> Iterator[None]:
        """Return a context that measures a block, also one that fails: once, however many callers
        wait for it."""
        began_ns = perf_counter_ns()
        try:
            yield
        finally:
            self.record_stage(stage, began_ns)

    def finding(self, find: Placer) -> Placer:
        """Return the placer `find` with its time measured."""

        def measured(job: Job, free: HostSet, most: int) -> Placement | None:
            with self.timed(Stage.SOLVE):
                return find(job, free, most)

        return measured

    def solved(self, times_ns: Sequence[tuple[int, int]]) -> None:
        """Record that another process made a placement between these times."""
        for began_ns, ended_ns in times_ns:
            self._add(Stage.SOLVE, began_ns, ended_ns)

    def record_written(self, steps: Sequence[AppliedEvent]) -> None:
        """Count durable events that this server wrote, and log them."""
        self.batches.add(len(steps))
        self.record_events(steps)
        if log.isEnabledFor(logging.INFO):
            now_ns = perf_counter_ns()
            for step in steps:
                log.info(_words(step.event), extra=_facts(step, now_ns))

    def record_events(self, steps: Sequence[AppliedEvent]) -> None:
        """Count events, whichever server wrote them."""
        for step in steps:
            self.tally.feed(step.before, step.event, step.effects)
            self.incidents.feed(step.after.version, step.event)

    def count_conflict(self) -> None:
        """Count a plan that conflicted."""
        self.conflicts[()] += 1

    def _add(self, stage: Stage, began_ns: int, ended_ns: int) -> None:
        self._of_stage[stage].add((ended_ns - began_ns) / SECOND_NS)


def _words(event: Event) -> str:
    """`job started` of JobStarted."""
    if isinstance(event, HostMoved):
        return f"host moved: {event.move}"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(event).__name__).lower()


def _facts(step: AppliedEvent, now_ns: int) -> dict[str, Any]:
    """For the log: what happened to whom at whose wish, and how long it took to be durable."""
    event = step.event
    facts: dict[str, Any] = {"version": step.after.version, "event": type(event).__name__}
    if isinstance(event, HostMoved | HostSignalled):
        facts["host"] = event.host
    elif isinstance(event, JobSubmitted):
        facts["job"] = event.spec.name
    elif isinstance(event, WindowEvent):
        facts["window"] = event.window.name if isinstance(event, WindowSet) else event.name
    elif name := getattr(event, "name", ""):
        facts["job"] = name
    facts["actor"] = step.actor or "scheduler"
    if step.arrived_ns is not None:
        facts["duration_ms"] = round((now_ns - step.arrived_ns) / 1e6, 3)
    return facts
