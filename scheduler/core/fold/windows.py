"""What the events of windows make of the state and of hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import assert_never

from muster.structs import replace
from placement.fabric.hostset import HostSet
from scheduler.core.collections.persistent_map import PersistentMap
from scheduler.core.fold.effects import EventEffect, hosts_change
from scheduler.core.fold.index import with_windows
from scheduler.core.model.events import (
    WindowClosed,
    WindowEvent,
    WindowOpened,
    WindowRemoved,
    WindowSet,
)
from scheduler.core.model.lifecycle import WINDOW_MOVES, WindowMove, WindowState, after
from scheduler.core.model.state import State
from scheduler.core.model.window import Booking

_MOVES = {
    WindowOpened: WindowMove.OPEN,
    WindowClosed: WindowMove.CLOSE,
    WindowRemoved: WindowMove.REMOVE,
}


def applied(state: State, event: WindowEvent) -> State:
    """Return the state after an event of windows.

    Raises: KeyError on a window that is not there, or a move that its table forbids.
    """
    windows = state.windows
    overlay = windows if isinstance(windows, PersistentMap) else PersistentMap(windows)
    if isinstance(event, WindowSet):
        return _with(state, overlay.having(event.window.name, _set(state, event)), event)
    before = overlay[event.name]
    moved = after(WINDOW_MOVES, before.state, _MOVES[type(event)])
    if moved is WindowState.OVER:
        return _with(state, overlay.without(event.name), event)
    then = replace(before, state=moved, since_ns=event.time_ns)
    return _with(state, overlay.having(event.name, then), event)


def effects(before: State, event: WindowEvent, after: State) -> Iterator[EventEffect]:
    """Yield the effect of `event` on the hosts that its window closes."""
    match event:
        case WindowSet():
            hosts = _closed_by(after, event.window.name)
        case WindowOpened():
            hosts = _closed_by(after, event.name)
        case WindowClosed() | WindowRemoved():
            hosts = _closed_by(before, event.name)
        case _:
            assert_never(event)
    yield from hosts_change(before, event, after, hosts)


def _set(state: State, event: WindowSet) -> Booking:
    hosts = state.loaded_fabric.indices(event.window.hosts)
    before = state.windows.get(event.window.name)
    if before is None:
        made = (event.time_ns, event.time_ns, event.time_ns, state.version + 1)
        return Booking(event.window, hosts, WindowState.PENDING, *made)
    then = after(WINDOW_MOVES, before.state, WindowMove.SET)
    changed = replace(before, window=event.window, indices=hosts, state=then)
    return replace(changed, change_ns=event.time_ns)


def _with(state: State, windows: Mapping[str, Booking], event: WindowEvent) -> State:
    is_same = _shares(state.windows) == _shares(windows)
    links_ns = state.links_ns if is_same else event.time_ns
    return with_windows(state, windows, links_ns)


def _shares(windows: Mapping[str, Booking]) -> list[tuple[tuple[str, ...], float]]:
    """Links that open windows leave a share of."""
    open_now = (b.window for b in windows.values() if b.is_closing)
    return [(window.links, window.share) for window in open_now if window.links and window.share]


def _closed_by(state: State, name: str) -> HostSet:
    booking = state.windows.get(name)
    return booking.hosts if booking is not None and booking.is_closing else 0
