"""Windows as text for people."""

from __future__ import annotations

from collections.abc import Sequence

from placement.fabric.hostlist import fold
from scheduler.cli.render.messages import time_text
from scheduler.cli.render.tables import Column, ListTable, enum_column
from scheduler.core.wording import share_text
from scheduler.v1 import window_pb2

_SHOWN = 8


WINDOWS = ListTable(
    (
        Column("NAME", lambda window: window.name),
        enum_column("KIND", "kind"),
        enum_column("STATE", "state"),
        Column("START", lambda window: time_text(window.start_time)),
        Column("END", lambda window: time_text(window.end_time)),
        Column("HOSTS", lambda window: str(len(window.chosen_hosts) or "-"), is_right=True),
        Column("LINKS", lambda window: " ".join(window.links) or "-"),
        Column("HELD", lambda window: str(window.held_hosts or "-"), is_right=True),
        Column("HELD BY", lambda window: _some(window.held_by), is_wide=True),
        Column("RESERVED FOR", lambda window: _whom(window)),
        Column("HOST LIST", lambda window: fold(window.chosen_hosts) or "-", is_wide=True),
        Column("SHARE", lambda window: _carried(window), is_wide=True),
        enum_column("LEAVE", "leave", is_wide=True),
        Column("REASON", lambda window: window.reason, is_text=True),
        Column("CREATED", lambda window: time_text(window.create_time), is_wide=True),
        Column("CHANGED", lambda window: time_text(window.update_time), is_wide=True),
        Column("ETAG", lambda window: window.etag, is_wide=True),
    ),
    "no windows",
)


def windows_text(windows: Sequence[window_pb2.Window]) -> str:
    return WINDOWS.text(windows)


def window_text(window: window_pb2.Window) -> str:
    return WINDOWS.describe(window)


def _carried(window: window_pb2.Window) -> str:
    return share_text(window.link_share) if window.links else "-"


def _whom(window: window_pb2.Window) -> str:
    tenant = [f"tenant {window.tenant}"] if window.tenant else []
    jobs = [f"jobs {', '.join(window.jobs)}"] if window.jobs else []
    return " and ".join(tenant + jobs) or "-"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return " ".join(names[:_SHOWN]) + more
