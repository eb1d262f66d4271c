"""Windows as text for people."""

from __future__ import annotations

from collections.abc import Sequence

from placement.fabric.hostlist import fold
from scheduler.cli.render.messages import host_ranges, plain, time_text
from scheduler.cli.render.tables import Column, ListTable
from scheduler.cli.render.text import columns, counted
from scheduler.core.wording import share_text
from scheduler.v1 import window_pb2

_SHOWN = 8


WINDOWS = ListTable(
    (
        Column("NAME", lambda window: window.name),
        Column("KIND", lambda window: _kind(window)),
        Column("STATE", lambda window: _state(window)),
        Column("START", lambda window: time_text(window.start_time)),
        Column("END", lambda window: time_text(window.end_time)),
        Column("HOSTS", lambda window: str(len(window.chosen_hosts) or "-"), is_right=True),
        Column("LINKS", lambda window: " ".join(window.links) or "-"),
        Column("HELD", lambda window: str(window.held_hosts or "-"), is_right=True),
        Column("RESERVED FOR", lambda window: _whom(window)),
        Column("HOST LIST", lambda window: fold(window.chosen_hosts) or "-", is_wide=True),
        Column("REASON", lambda window: window.reason, is_text=True),
    ),
    "no windows",
)


def windows_text(windows: Sequence[window_pb2.Window]) -> str:
    return WINDOWS.text(windows)


def window_text(window: window_pb2.Window) -> str:
    rows = [
        ("name", window.name),
        ("kind", _kind(window)),
        ("state", _state(window)),
        ("start", time_text(window.start_time)),
        ("end", time_text(window.end_time)),
        ("hosts", _hosts(window)),
        ("for", _whom(window)),
        ("leave", plain(window_pb2.WindowLeave.Name(window.leave), "WINDOW_LEAVE_")),
    ]
    if window.links:
        rows.append(("links", f"{' '.join(window.links)}, {share_text(window.link_share)}"))
    if window.held_hosts:
        rows.append(("held", f"{counted(window.held_hosts, 'host')} by {_some(window.held_by)}"))
    if window.reason:
        rows.append(("reason", window.reason))
    rows += [("created", time_text(window.create_time)), ("changed", time_text(window.update_time))]
    rows.append(("etag", window.etag))
    return columns(rows)


def _hosts(window: window_pb2.Window) -> str:
    names = window.chosen_hosts
    return f"{len(names):,}: {host_ranges(names)}" if names else "-"


def _kind(window: window_pb2.Window) -> str:
    return plain(window_pb2.WindowKind.Name(window.kind), "WINDOW_KIND_")


def _state(window: window_pb2.Window) -> str:
    return plain(window_pb2.WindowState.Name(window.state), "WINDOW_STATE_")


def _whom(window: window_pb2.Window) -> str:
    tenant = [f"tenant {window.tenant}"] if window.tenant else []
    jobs = [f"jobs {', '.join(window.jobs)}"] if window.jobs else []
    return " and ".join(tenant + jobs) or "-"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return " ".join(names[:_SHOWN]) + more
