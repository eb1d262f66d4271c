"""What is measured around a write and a decision; nobody is asked what it is for.

    queue    from a command's arrival until the writer takes it up
    admit    checking one command           commit   checking one plan
    append   making a batch durable
    decide   finding a plan                 solve    placing one gang

The same names stand in metrics and in traces.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from time import perf_counter_ns
from types import TracebackType
from typing import Any, NamedTuple, Protocol

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
    """What takes time between a call and its answer."""

    QUEUE = "queue"
    ADMIT = "admit"
    COMMIT = "commit"
    APPEND = "append"
    DECIDE = "decide"
    SOLVE = "solve"


class Tracer(Protocol):
    """Where spans go; see tracing."""

    def here(self) -> Any:
        """Where the caller stands in its trace."""

    def span(self, name: str) -> AbstractContextManager[object]:
        """A span below the one that is open here."""

    def call(self, method: str, context: Any) -> AbstractContextManager[object]:
        """The span of a call, below the one that its metadata names. `context`: gRPC's."""

    def record(self, name: str, parent: Any, began_ns: int, ended_ns: int) -> None:
        """A span that is over. Times by `perf_counter_ns`."""


class StageMark(NamedTuple):
    """When something arrived, and where it stands in its trace (None: in none)."""

    began_ns: int
    parent: Any


class AppliedEvent(NamedTuple):
    """One durable event with the states around it. `actor`: who asked for it, `mark`: when,
    None when another server wrote it. `effects`: what it did to jobs, hosts and windows."""

    before: State
    event: Event
    after: State
    actor: str
    mark: StageMark | None
    effects: tuple[EventEffect, ...]


class Instruments:
    """Everything that is measured of one writer. `tracer` None: no traces.

    Stages are measured on the event loop and, SOLVE, in the deciding thread; each is
    measured in one of them only.
    """

    def __init__(self, tracer: Tracer | None = None) -> None:
        self.tracer = tracer
        self.beats = Heartbeats()
        self.incidents = Incidents()
        self.tally = EventTally()
        self.stages_s = Histograms(STAGE_BOUNDS_S, Stage)
        self._of_stage = {stage: self.stages_s[stage.value,] for stage in Stage}
        self.batches = Histogram(BATCH_BOUNDS)
        self.conflicts = Counts({(): 0})
        self.calls = Counts()  # by method and code
        self.calls_s = Histograms(STAGE_BOUNDS_S)  # by method

    def mark(self) -> StageMark:
        """Here and now."""
        return StageMark(perf_counter_ns(), self.tracer.here() if self.tracer else None)

    def passed(self, stage: Stage, mark: StageMark) -> None:
        """`stage` lasted from `mark` until now."""
        self._add(stage, mark.began_ns, perf_counter_ns(), (mark,))

    def timed(self, stage: Stage, marks: Sequence[StageMark]) -> _Timed:
        """Measure a block: once, however many callers wait for it."""
        return _Timed(self._add, stage, marks)

    def deciding(self) -> AbstractContextManager[object]:
        """A decision with all that follows from it is one trace."""
        return self.tracer.span("decision") if self.tracer else ExitStack()

    def inside(self, stage: Stage) -> AbstractContextManager[object]:
        """Measure a block that itself has stages; its span is open meanwhile."""
        stack = ExitStack()
        if self.tracer:
            stack.enter_context(self.tracer.span(stage.value))
        stack.enter_context(self.timed(stage, ()))
        return stack

    def finding(self, find: Placer) -> Placer:
        """The same, measured."""

        def measured(job: Job, free: HostSet, most: int) -> Placement | None:
            with self.inside(Stage.SOLVE):
                return find(job, free, most)

        return measured

    def solved(self, times_ns: Sequence[tuple[int, int]]) -> None:
        """A placement was looked for from when to when, by another process."""
        mark = self.mark()
        for began_ns, ended_ns in times_ns:
            self._add(Stage.SOLVE, began_ns, ended_ns, (mark,))

    def wrote(self, steps: Sequence[AppliedEvent]) -> None:
        """These events are durable."""
        self.batches.add(len(steps))
        self.heard(steps)
        if log.isEnabledFor(logging.INFO):
            now_ns = perf_counter_ns()
            for step in steps:
                log.info(_words(step.event), extra=_facts(step, now_ns))

    def heard(self, steps: Sequence[AppliedEvent]) -> None:
        """These events happened, whoever wrote them."""
        for step in steps:
            self.tally.feed(step.before, step.event, step.effects)
            self.incidents.feed(step.after.version, step.event)

    def conflicted(self) -> None:
        """A plan fell."""
        self.conflicts[()] += 1

    def _add(self, stage: Stage, began_ns: int, ended_ns: int, marks: Sequence[StageMark]) -> None:
        self._of_stage[stage].add((ended_ns - began_ns) / SECOND_NS)
        if self.tracer:
            for mark in marks:
                self.tracer.record(stage.value, mark.parent, began_ns, ended_ns)


@dataclass(slots=True)
class _Timed:
    """A block that is measured, also when it fails."""

    done: Callable[[Stage, int, int, Sequence[StageMark]], None]
    stage: Stage
    marks: Sequence[StageMark]
    began_ns: int = field(default=0, init=False)

    def __enter__(self) -> None:
        self.began_ns = perf_counter_ns()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.done(self.stage, self.began_ns, perf_counter_ns(), self.marks)


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
    if step.mark is not None:
        facts["duration_ms"] = round((now_ns - step.mark.began_ns) / 1e6, 3)
    return facts
