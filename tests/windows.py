"""Maintenance windows and reservations for tests, in seconds."""

from typing import Any

from scheduler.core import State
from scheduler.core.model.commands import RemoveWindow, SetWindow
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.window import Leave, Window, WindowKind
from tests.build import run

HOUR = 3_600


def window(
    name: str,
    *among: str,
    start_s: int = 0,
    end_s: int = 3_600,
    count: int = 0,
    tenant: str = "",
    jobs: tuple[str, ...] = (),
    leave: Leave | str = Leave.WAIT,
    reason: str = "",
) -> Window:
    """window("w", "z0-r0", start_s=60); a reservation when it is for somebody."""
    kind = WindowKind.RESERVATION if tenant or jobs else WindowKind.MAINTENANCE
    start_ns, end_ns = start_s * SECOND_NS, end_s * SECOND_NS
    terms = (tenant, jobs, Leave(leave), reason)
    return Window(name, kind, start_ns, end_ns, among, count, (), *terms)


def set_window(name: str, *among: str, is_change: bool = False, **keys: Any) -> SetWindow:
    """As `window`, asked for."""
    return SetWindow(window(name, *among, **keys), is_change)


def remove_window(name: str) -> RemoveWindow:
    return RemoveWindow(name)


def with_window(state: State, *among: str, **keys: Any) -> State:
    """From the second hour to the third, unless told otherwise."""
    keys = {"start_s": HOUR, "end_s": 2 * HOUR} | keys
    return run(state, set_window("w", *among, **keys))
