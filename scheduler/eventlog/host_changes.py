"""What an event did to hosts: the log as those see it who watch hosts.

Who holds a host is no change of the host: a watch of jobs tells of that. A window that opens
or closes changes hosts by the thousand, and a draining host changes when its gang leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from scheduler.core import JobState, State
from scheduler.core.model.events import (
    Event,
    FabricLoaded,
    GangResized,
    GangSwapped,
    HostMoved,
    WindowClosed,
    WindowOpened,
    WindowRemoved,
    WindowSet,
)
from scheduler.core.model.state import Host


@dataclass(frozen=True, slots=True, eq=False)
class HostsChange:
    """Hosts, by index, that are another in `state`, the one after the event."""

    version: int
    time_ns: int
    indices: tuple[int, ...]
    state: State


def hosts_changed(before: State, event: Event, after: State) -> HostsChange | None:
    """Hosts whose state or reason `event` changed. Cost: 1 us where there can be none."""
    touched = _touched(before, event, after)
    if not touched:
        return None
    was, now = _Shown(before), _Shown(after)
    changed = tuple(i for i in hostset.members(touched) if was.of(i) != now.of(i))
    return HostsChange(after.version, event.time_ns, changed, after) if changed else None


def _touched(before: State, event: Event, after: State) -> HostSet:
    """Hosts that `event` may have changed."""
    match event:
        case FabricLoaded():
            return 0
        case HostMoved():
            return 1 << after.loaded_fabric.index_by_name[event.host]
        case WindowSet():
            return _closed_by(after, event.window.name)
        case WindowOpened() | WindowClosed() | WindowRemoved():
            return _closed_by(before, event.name) | _closed_by(after, event.name)
    out = after.unhealthy | before.unhealthy | after.closed
    if not out:
        return 0
    touched = before.held ^ after.held
    if isinstance(event, GangSwapped | GangResized):  # a block's host may be a spare by now
        touched |= _blocks(before, event.name) ^ _blocks(after, event.name)
    return touched & out


def _blocks(state: State, name: str) -> HostSet:
    return hostset.of(state.jobs[name].hosts)


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
