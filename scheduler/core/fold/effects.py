"""What one event did to jobs, hosts and windows, as values: the log as its readers see it.

Watches, metrics and simulated runs read these instead of events, so that an event says in
one place what it means. Who holds a host is no change of the host, nor of a window over it:
that is a change of the job.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, assert_never

from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from scheduler.core.model.events import (
    Defragmented,
    Event,
    FabricLoaded,
    GangResized,
    GangSwapped,
    HealthLoaded,
    HostMoved,
    HostSignalled,
    HostsJudged,
    JobEnded,
    JobPreempted,
    JobRequeued,
    JobsReserved,
    JobStarted,
    JobSubmitted,
    JobUpdated,
    SparesChanged,
    TenantsLoaded,
    WindowClosed,
    WindowOpened,
    WindowRemoved,
    WindowSet,
)
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import HostMove, JobState, Mover, RequeueCause, WindowState
from scheduler.core.model.state import Host, State
from scheduler.core.model.window import Booking


class JobChangeKind(StrEnum):
    """What can happen to a job."""

    SUBMITTED = "submitted"
    UPDATED = "updated"
    STARTED = "started"
    INTERRUPTED = "interrupted"
    SPARE_LOST = "spare_lost"
    SPARES_CHANGED = "spares_changed"
    SWAPPED = "swapped"
    RESIZED = "resized"
    REQUEUED = "requeued"
    ENDED = "ended"


class WindowChangeKind(StrEnum):
    """What can happen to a window."""

    CREATED = "created"
    UPDATED = "updated"
    OPENED = "opened"
    CLOSED = "closed"
    REMOVED = "removed"


class JobChange(NamedTuple):
    """One change of one job: the job after it and before it, None for a new one. `fabric`
    names its hosts. `cause`: of REQUEUED."""

    version: int
    time_ns: int
    kind: JobChangeKind
    job: Job
    fabric: Fabric
    before: Job | None = None
    cause: RequeueCause | None = None


@dataclass(frozen=True, slots=True, eq=False)
class HostsChange:
    """Hosts, by index, whose state or reason is another in `state`, the one after the event.
    A window that opens or closes changes hosts by the thousand, and a draining host changes
    when its gang leaves."""

    version: int
    time_ns: int
    indices: tuple[int, ...]
    state: State


@dataclass(frozen=True, slots=True, eq=False)
class WindowChange:
    """One change of one window; `booking` is the window after it, of one that is over as it
    was. `before`: as it was, None for a new one. `state`: the one after the event."""

    version: int
    time_ns: int
    kind: WindowChangeKind
    before: Booking | None
    booking: Booking
    state: State


class HostTransition(NamedTuple):
    """A host made a move of its lifecycle. `signal`: the report that moved it, if one did."""

    host: str
    move: HostMove
    cause: Mover
    signal: str


class HostReport(NamedTuple):
    """A signal about a host, or a domain, is on record."""

    host: str
    signal: str


EventEffect = JobChange | HostsChange | WindowChange | HostTransition | HostReport


def effects(before: State, event: Event, after: State) -> tuple[EventEffect, ...]:
    """What `event`, which led from one state to the other, did; of jobs first.

    Cost: 2 us, and some per host that a window covers or a gang leaves where hosts are out.
    """
    return tuple(_effects(before, event, after))


def _effects(before: State, event: Event, after: State) -> Iterator[EventEffect]:
    match event:
        case FabricLoaded() | TenantsLoaded() | HealthLoaded() | HostsJudged():
            return
        case JobsReserved() | Defragmented():
            return
        case JobSubmitted():
            yield _job(before, event, after, event.spec.name, JobChangeKind.SUBMITTED)
        case JobUpdated():
            yield _job(before, event, after, event.name, JobChangeKind.UPDATED)
        case JobStarted():
            yield _job(before, event, after, event.name, JobChangeKind.STARTED)
            yield from _hosts(before, event, after, before.held ^ after.held)
        case GangSwapped():
            yield _job(before, event, after, event.name, JobChangeKind.SWAPPED)
            yield from _hosts(before, event, after, _gang_moved(before, event.name, after))
        case GangResized():
            yield _job(before, event, after, event.name, JobChangeKind.RESIZED)
            yield from _hosts(before, event, after, _gang_moved(before, event.name, after))
        case SparesChanged():
            yield _job(before, event, after, event.name, JobChangeKind.SPARES_CHANGED)
            yield from _hosts(before, event, after, before.held ^ after.held)
        case JobRequeued():
            change = _job(before, event, after, event.name, JobChangeKind.REQUEUED)
            yield change._replace(cause=event.cause)
            yield from _hosts(before, event, after, before.held ^ after.held)
        case JobPreempted():
            change = _job(before, event, after, event.name, JobChangeKind.REQUEUED)
            yield change._replace(cause=RequeueCause.PREEMPTED)
            yield from _hosts(before, event, after, before.held ^ after.held)
        case JobEnded():
            yield _job(before, event, after, event.name, JobChangeKind.ENDED)
            yield from _hosts(before, event, after, before.held ^ after.held)
        case HostMoved():
            index = after.loaded_fabric.index_by_name[event.host]
            yield from _stopped(before, event, after, index)
            yield HostTransition(event.host, event.move, event.cause, event.signal)
            yield from _shown(before, event, after, 1 << index)
        case HostSignalled():
            yield HostReport(event.host, event.signal)
        case WindowSet():
            name = event.window.name
            is_new = name not in before.windows
            kind = WindowChangeKind.CREATED if is_new else WindowChangeKind.UPDATED
            yield _window(before, event, after, name, kind)
            yield from _shown(before, event, after, _closed_by(after, name))
        case WindowOpened():
            yield _window(before, event, after, event.name, WindowChangeKind.OPENED)
            yield from _shown(before, event, after, _closed_by(after, event.name))
        case WindowClosed():
            yield _window(before, event, after, event.name, WindowChangeKind.CLOSED)
            yield from _shown(before, event, after, _closed_by(before, event.name))
        case WindowRemoved():
            yield _window(before, event, after, event.name, WindowChangeKind.REMOVED)
            yield from _shown(before, event, after, _closed_by(before, event.name))
        case _:
            assert_never(event)


def _job(before: State, event: Event, after: State, name: str, kind: JobChangeKind) -> JobChange:
    job = after.find(name)
    if job is None:  # pragma: no cover - an event always leaves its job at hand
        raise KeyError(name)
    fabric, was = after.loaded_fabric, before.jobs.get(name)
    return JobChange(after.version, event.time_ns, kind, job, fabric, was)


def _stopped(before: State, event: HostMoved, after: State, index: int) -> Iterator[JobChange]:
    """The job that lost a host by a failure, if any."""
    job = before.holder(index) if event.move is HostMove.FAIL else None
    if job is not None:
        is_block = index in job.hosts
        kind = JobChangeKind.INTERRUPTED if is_block else JobChangeKind.SPARE_LOST
        yield _job(before, event, after, job.name, kind)


def _window(
    before: State, event: Event, after: State, name: str, kind: WindowChangeKind
) -> WindowChange:
    was, now = before.windows.get(name), after.windows.get(name)
    booking = now or was
    if booking is None:  # pragma: no cover - apply refuses such an event
        raise KeyError(name)
    if now is None:
        booking = replace(booking, state=WindowState.OVER, since_ns=event.time_ns)
    return WindowChange(after.version, event.time_ns, kind, was, booking, after)


def _gang_moved(before: State, name: str, after: State) -> HostSet:
    """Hosts that a gang took or left; a block's host may be a spare by now."""
    blocks = hostset.of(before.jobs[name].hosts) ^ hostset.of(after.jobs[name].hosts)
    return before.held ^ after.held | blocks


def _hosts(before: State, event: Event, after: State, touched: HostSet) -> Iterator[HostsChange]:
    """Of hosts that a gang took or left, those that are out show it."""
    yield from _shown(
        before, event, after, touched & (before.unhealthy | after.unhealthy | after.closed)
    )


def _shown(before: State, event: Event, after: State, touched: HostSet) -> Iterator[HostsChange]:
    """The hosts among `touched` that an operator sees changed."""
    if not touched:
        return
    was, now = _Shown(before), _Shown(after)
    changed = tuple(i for i in hostset.members(touched) if was.of(i) != now.of(i))
    if changed:
        yield HostsChange(after.version, event.time_ns, changed, after)


def _closed_by(state: State, name: str) -> HostSet:
    booking = state.windows.get(name)
    return booking.hosts if booking is not None and booking.is_closing else 0


class _Shown:
    """The hosts of one state as an operator sees them."""

    def __init__(self, state: State) -> None:
        self._state = state
        gangs = state.in_state(JobState.RUNNING, JobState.INTERRUPTED) if state.closed else ()
        self._blocks = hostset.of(host for job in gangs for host in job.hosts)

    def of(self, index: int) -> tuple[Host, str | None]:
        shown = self._state.shown(index, hostset.has(self._blocks, index))
        return shown, self._state.host(index).cordon
