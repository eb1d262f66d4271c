"""Which gangs hold which hosts: a fold over what the events of a log did.

Launchers follow it, the one that has agents start processes (scheduler.launch) and the
simulator's, and so do the metrics of a replay: what is started, what is charged to a job and
what is counted for it are one and the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, assert_never

from muster.structs import struct
from placement.fabric.tree import Fabric
from scheduler.core.fold.apply import effects
from scheduler.core.fold.effects import (
    EventEffect,
    HostReport,
    HostsChange,
    HostTransition,
    JobChange,
    JobChangeKind,
)
from scheduler.core.model.events import Event
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.state import State


class EffectReader:
    """Reads the effects of a log event by event, from its first one, or from the one after the
    state `before`. Several may share one: the first who asks for an event has it read."""

    def __init__(self, before: State | None = None) -> None:
        self._state = State.empty() if before is None else before
        self._done: tuple[EventEffect, ...] = ()

    def adopt(self, state: State) -> None:
        """Continue from this state."""
        self._state, self._done = state, ()

    def read(self, event: Event, state: State) -> tuple[EventEffect, ...]:
        """Return the effects of an event. `state`: right after it. Cost: 2 us."""
        if state is not self._state:
            before, self._state = self._state, state
            self._done = effects(before, event, state)
        return self._done


@struct(frozen=True, slots=True)
class PlacedGang:
    """One attempt of a job that holds hosts, with the names of these hosts. `job`: as the newest
    change of this attempt has left it, with its `Attempt`."""

    job: Job
    hosts: tuple[str, ...]
    spares: tuple[str, ...]

    @staticmethod
    def of(job: Job, fabric: Fabric) -> PlacedGang:
        """Return the gang of a job that holds hosts of `fabric`."""
        return PlacedGang(job, fabric.names(job.hosts), fabric.names(job.spares))

    @property
    def name(self) -> str:
        return self.job.spec.name

    @property
    def attempt(self) -> int:
        return self.job.attempt

    @property
    def start_ns(self) -> int:
        return self.job.present.start_ns

    @property
    def stop_ns(self) -> int | None:
        """When a failure stopped it; None = none has."""
        return self.job.present.stop_ns

    @property
    def gpus(self) -> tuple[int, ...]:
        """GPUs of its only host that it has, where other jobs may have the rest; else empty."""
        return self.job.present.gpus


@struct(frozen=True, slots=True)
class AttemptBegan:
    run: PlacedGang


@struct(frozen=True, slots=True)
class AttemptStopped:
    """A host failed: the gang stops and keeps its hosts."""

    run: PlacedGang


@struct(frozen=True, slots=True)
class AttemptLeft:
    """The attempt is over, and its gang leaves its hosts. `ran_ns`: how long its ranks ran.
    `next_state`: what its job is now."""

    run: PlacedGang
    ran_ns: int
    next_state: JobState

    @property
    def is_complete(self) -> bool:
        return self.next_state is JobState.COMPLETED


Change = AttemptBegan | AttemptStopped | AttemptLeft


class Launcher(Protocol):
    """Starts and stops ranks as the log says of gangs. How attempts end comes back as commands."""

    def begin(self, run: PlacedGang) -> None:
        """Start all ranks of an attempt."""

    def stop(self, run: PlacedGang) -> None:
        """Stop what still runs of an attempt that a failure stopped; it keeps its hosts."""

    def leave(self, left: AttemptLeft) -> None:
        """End an attempt that is over: its hosts are not its own any more."""


def carry_out(launcher: Launcher, change: Change) -> None:
    match change:
        case AttemptBegan(run):
            launcher.begin(run)
        case AttemptStopped(run):
            launcher.stop(run)
        case AttemptLeft():
            launcher.leave(change)
        case _:
            assert_never(change)


def attempt_changes(done: Iterable[EventEffect]) -> Iterator[Change]:
    """Yield what one event did to attempts, of its effects. Cost: O(hosts of the gang)."""
    for effect in done:
        match effect:
            case JobChange():
                yield from _changes(effect)
            case HostsChange() | HostTransition() | HostReport():
                pass
            case _:
                assert_never(effect)


def _changes(change: JobChange) -> Iterator[Change]:
    job, before, fabric = change.job, change.before, change.fabric
    held = before if before is not None and before.gang is not None else None
    match change.kind:
        case JobChangeKind.STARTED:
            yield AttemptBegan(PlacedGang.of(job, fabric))
        case JobChangeKind.SWAPPED | JobChangeKind.RESIZED:
            if held is not None:
                yield _attempt_left(held, change)
            yield AttemptBegan(PlacedGang.of(job, fabric))
        case JobChangeKind.REQUEUED | JobChangeKind.ENDED:
            if held is not None:  # else it ended while it waited
                yield _attempt_left(held, change)
        case JobChangeKind.INTERRUPTED:
            if held is None or held.present.stop_ns is None:  # else a further host failed
                yield AttemptStopped(PlacedGang.of(job, fabric))
        case JobChangeKind.SUBMITTED | JobChangeKind.UPDATED | JobChangeKind.SPARES_CHANGED:
            return
        case JobChangeKind.LAUNCHED | JobChangeKind.SAVED | JobChangeKind.HUNG:
            return
        case JobChangeKind.ROLE_RESTARTED | JobChangeKind.SPARE_LOST:
            return
        case JobChangeKind.HELD | JobChangeKind.RELEASED | JobChangeKind.ELIGIBLE:
            return
        case _:
            assert_never(change.kind)


def _attempt_left(held: Job, change: JobChange) -> AttemptLeft:
    run = PlacedGang.of(held, change.fabric)
    end_ns = change.time_ns if run.stop_ns is None else run.stop_ns
    return AttemptLeft(run, end_ns - run.start_ns, change.job.state)
