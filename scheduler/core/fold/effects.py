"""What one event did to jobs, hosts, links and windows, as values: the log as its readers see it.

Watches, metrics and simulated runs read these instead of events, so that an event says in
one place what it means. Who holds a host is no change of the host, nor of a window over it:
that is a change of the job.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from muster.structs import struct
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from scheduler.core.model.events import Event
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import HostMove, JobState, Mover, RequeueCause
from scheduler.core.model.state import Host, State


class JobChangeKind(StrEnum):
    """Kind of change of a job."""

    SUBMITTED = "submitted"
    UPDATED = "updated"
    HELD = "held"
    RELEASED = "released"
    ELIGIBLE = "eligible"
    STARTED = "started"
    LAUNCHED = "launched"
    SAVED = "saved"
    HUNG = "hung"
    ROLE_RESTARTED = "role_restarted"
    INTERRUPTED = "interrupted"
    SPARE_LOST = "spare_lost"
    SPARES_CHANGED = "spares_changed"
    SWAPPED = "swapped"
    RESIZED = "resized"
    REQUEUED = "requeued"
    ENDED = "ended"


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


@struct(frozen=True, slots=True, eq=False)
class HostsChange:
    """Hosts, by index, whose state or reason is another in `state`, the one after the event.
    A window that opens or closes changes hosts by the thousand, and a draining host changes
    when its gang leaves. `removed`: hosts that the fabric does not have any more, each by name,
    with the domains that it was in."""

    version: int
    time_ns: int
    indices: tuple[int, ...]
    state: State
    removed: tuple[tuple[str, ...], ...] = ()


class HostTransition(NamedTuple):
    """A host made a move of its lifecycle. `signal`: the report that moved it, if one did;
    `detail`: what the move's reason adds to that."""

    host: str
    move: HostMove
    cause: Mover
    signal: str
    detail: str = ""


class HostReport(NamedTuple):
    """A signal about a host, or a domain, was recorded."""

    host: str
    signal: str


EventEffect = JobChange | HostsChange | HostTransition | HostReport


def job_change(
    before: State, event: Event, after: State, name: str, kind: JobChangeKind
) -> JobChange:
    """Return the change of the job of that name, which lives or has just ended."""
    was, job = before.jobs.get(name), after.jobs.get(name)
    if job is None and was is not None:  # it has ended: found by its uid among those at hand
        job = after.ended.get(was.uid)
    if job is None:  # pragma: no cover - an event always leaves its job at hand
        raise KeyError(name)
    return JobChange(after.version, event.time_ns, kind, job, after.loaded_fabric, was)


def hosts_change(
    before: State, event: Event, after: State, touched: HostSet
) -> Iterator[HostsChange]:
    """Return the change of those hosts among `touched` that an operator sees changed."""
    if not touched:
        return
    was, now = _Shown(before), _Shown(after)
    changed = tuple(i for i in hostset.members(touched) if was.of(i) != now.of(i))
    if changed:
        yield HostsChange(after.version, event.time_ns, changed, after)


class _Shown:
    """The hosts of one state as an operator sees them."""

    def __init__(self, state: State) -> None:
        self._state = state
        gangs = state.in_state(JobState.RUNNING, JobState.INTERRUPTED) if state.index.closed else ()
        self._blocks = hostset.of(host for job in gangs for host in job.hosts)

    def of(self, index: int) -> tuple[Host, str | None]:
        shown = self._state.shown(index, hostset.has(self._blocks, index))
        return shown, self._state.host(index).cordon
