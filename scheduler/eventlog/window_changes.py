"""What an event did to a window: the log as those see it who watch windows.

Who holds the hosts of a window is no change of the window: a watch of jobs tells of that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from scheduler.core import State
from scheduler.core.model.events import Event, WindowClosed, WindowOpened, WindowRemoved, WindowSet
from scheduler.core.model.lifecycle import WindowState
from scheduler.core.model.window import Booking


class WindowChangeKind(StrEnum):
    """What can happen to a window."""

    CREATED = "created"
    UPDATED = "updated"
    OPENED = "opened"
    CLOSED = "closed"
    REMOVED = "removed"


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


_KINDS: dict[type[Event], WindowChangeKind] = {
    WindowOpened: WindowChangeKind.OPENED,
    WindowClosed: WindowChangeKind.CLOSED,
    WindowRemoved: WindowChangeKind.REMOVED,
}


def window_changed(before: State, event: Event, after: State) -> WindowChange | None:
    """The window that `event` changed, if any. Cost: 0.1 us where it is about none."""
    if isinstance(event, WindowSet):
        name = event.window.name
        is_new = name not in before.windows
        kind = WindowChangeKind.CREATED if is_new else WindowChangeKind.UPDATED
    elif isinstance(event, WindowOpened | WindowClosed | WindowRemoved):
        name, kind = event.name, _KINDS[type(event)]
    else:
        return None
    was, now = before.windows.get(name), after.windows.get(name)
    return _change(kind, event.time_ns, was, now, after)


def _change(
    kind: WindowChangeKind, time_ns: int, was: Booking | None, now: Booking | None, after: State
) -> WindowChange:
    booking = now or was
    if booking is None:  # pragma: no cover - apply refuses such an event
        raise KeyError(kind)
    if now is None:
        booking = replace(booking, state=WindowState.OVER, since_ns=time_ns)
    return WindowChange(after.version, time_ns, kind, was, booking, after)
