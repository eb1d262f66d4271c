"""What is measured around a write and a decision; nobody is asked what it is for.

    queue    from a command's arrival until the writer takes it up
    admit    checking one command           commit   checking one plan
    append   making a batch durable
    decide   finding a plan                 solve    placing one gang

The same names stand in metrics and in traces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from time import perf_counter_ns
from types import TracebackType
from typing import Any, Protocol

from placement.hostset import HostSet
from placement.request import Placement
from scheduler.changes import Change
from scheduler.core import Job, State
from scheduler.core.decide import Find
from scheduler.core.events import Event
from scheduler.core.job import SECOND_NS
from scheduler.observe.incidents import Incidents
from scheduler.observe.numbers import Counts, Histogram, Histograms
from scheduler.observe.tally import Tally

STAGE_BOUNDS_S = tuple(
    scale * step for scale in (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0) for step in (1, 2.5, 5)
)
BATCH_BOUNDS = tuple(2**power for power in range(11))


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

    def record(self, name: str, parent: Any, began_ns: int, ended_ns: int) -> None:
        """A span that is over. Times by `perf_counter_ns`."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One durable event with the states around it. `actor`: who asked for it. `change`:
    what it did to a job."""

    before: State
    event: Event
    after: State
    actor: str
    change: Change | None


@dataclass(frozen=True, slots=True)
class Mark:
    """When something arrived, and where it stands in its trace (None: in none)."""

    began_ns: int
    parent: Any


class Instruments:
    """Everything that is measured of one writer. `tracer` None: no traces.

    Stages are measured on the event loop and, DECIDE and SOLVE, in the deciding thread;
    each is measured in one of them only.
    """

    def __init__(self, tracer: Tracer | None = None, incidents: Incidents | None = None) -> None:
        self.tracer = tracer
        self.incidents = incidents or Incidents()
        self.tally = Tally()
        self.stages_s = Histograms(STAGE_BOUNDS_S)
        self.batches = Histogram(BATCH_BOUNDS)
        self.conflicts = Counts()

    def mark(self) -> Mark:
        """Here and now."""
        return Mark(perf_counter_ns(), self.tracer.here() if self.tracer else None)

    def passed(self, stage: Stage, mark: Mark) -> None:
        """`stage` lasted from `mark` until now."""
        self._add(stage, mark.began_ns, perf_counter_ns(), (mark,))

    def timed(self, stage: Stage, marks: Sequence[Mark]) -> _Timed:
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

    def finding(self, find: Find) -> Find:
        """The same, measured."""

        def measured(job: Job, free: HostSet, most: int) -> Placement | None:
            with self.inside(Stage.SOLVE):
                return find(job, free, most)

        return measured

    def wrote(self, steps: Sequence[Step]) -> None:
        """These events are durable."""
        self.batches.add(len(steps))
        self.heard(steps)

    def heard(self, steps: Sequence[Step]) -> None:
        """These events happened, whoever wrote them."""
        for step in steps:
            self.tally.feed(step.before, step.event)
            self.incidents.feed(step.after.version, step.event)

    def conflicted(self) -> None:
        """A plan fell."""
        self.conflicts[()] += 1

    def _add(self, stage: Stage, began_ns: int, ended_ns: int, marks: Sequence[Mark]) -> None:
        self.stages_s[stage.value,].add((ended_ns - began_ns) / SECOND_NS)
        if self.tracer:
            for mark in marks:
                self.tracer.record(stage.value, mark.parent, began_ns, ended_ns)


@dataclass(slots=True)
class _Timed:
    """A block that is measured, also when it fails."""

    done: Callable[[Stage, int, int, Sequence[Mark]], None]
    stage: Stage
    marks: Sequence[Mark]
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
