"""What the events of windows make of the state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from operator import or_

from scheduler.core.collections.persistent_map import PersistentMap
from scheduler.core.model.events import WindowClosed, WindowOpened, WindowRemoved, WindowSet
from scheduler.core.model.lifecycle import WINDOW_MOVES, WindowMove, WindowState, after
from scheduler.core.model.state import State
from scheduler.core.model.window import Booking

WindowEvent = WindowSet | WindowOpened | WindowClosed | WindowRemoved

_MOVES = {
    WindowOpened: WindowMove.OPEN,
    WindowClosed: WindowMove.CLOSE,
    WindowRemoved: WindowMove.REMOVE,
}


def booked(state: State, event: WindowEvent) -> State:
    """The state after `event`.

    Raises: KeyError on a window that is not there, or a move that its table forbids.
    """
    windows = state.windows
    overlay = windows if isinstance(windows, PersistentMap) else PersistentMap(windows)
    if isinstance(event, WindowSet):
        return _with(state, overlay.having(event.window.name, _set(state, event)))
    before = overlay[event.name]
    then = after(WINDOW_MOVES, before.state, _MOVES[type(event)])
    if then is WindowState.OVER:
        return _with(state, overlay.without(event.name))
    return _with(
        state, overlay.having(event.name, replace(before, state=then, since_ns=event.time_ns))
    )


def _set(state: State, event: WindowSet) -> Booking:
    hosts = state.loaded_fabric.indices(event.window.hosts)
    before = state.windows.get(event.window.name)
    if before is None:
        made = (event.time_ns, event.time_ns, event.time_ns, state.version + 1)
        return Booking(event.window, hosts, WindowState.PENDING, *made)
    then = after(WINDOW_MOVES, before.state, WindowMove.SET)
    changed = replace(before, window=event.window, indices=hosts, state=then)
    return replace(changed, change_ns=event.time_ns)


def _with(state: State, windows: Mapping[str, Booking]) -> State:
    closed = reduce(or_, (b.hosts for b in windows.values() if b.is_closing), 0)
    return replace(state, windows=windows, closed=closed)
