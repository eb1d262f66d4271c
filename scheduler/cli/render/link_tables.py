"""Links as text for people."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.cli.render.messages import time_text
from scheduler.cli.render.tables import Column, ListTable, enum_column
from scheduler.cli.render.text import gbps_text, percent_text
from scheduler.core.wording import share_text
from scheduler.v1 import link_pb2

_SHOWN = 4
LINKS = ListTable(
    (
        Column("LINK", lambda link: link.name),
        Column("TIER", lambda link: link.tier),
        Column("CARRIES", lambda link: _carries(link)),
        Column("CAPACITY", lambda link: gbps_text(link.built_gbps), is_right=True),
        Column("BUSY", lambda link: _share(link.busy_share)),
        Column("RENEWALS", lambda link: _share(link.renewal_share)),
        enum_column("USE", "use"),
        Column("SINCE", lambda link: _since(link), is_minor=True),
        Column("WINDOWS", lambda link: " ".join(link.windows) or "-"),
        Column("CROSSED BY", lambda link: _crossed_by(link), is_text=True),
        Column("REASON", lambda link: _why(link), is_text=True),
    ),
    "all links are up and open",
)


def links_text(links: Sequence[link_pb2.Link]) -> str:
    return LINKS.text(links)


def link_text(link: link_pb2.Link) -> str:
    return links_text([link])


def _share(value: float) -> str:
    return percent_text(value) if value else "-"


def _since(link: link_pb2.Link) -> str:
    times = [t for t in (link.report_time, link.use_time) if t.seconds]
    return time_text(max(times, key=lambda t: t.seconds)) if times else "-"


def _crossed_by(link: link_pb2.Link) -> str:
    crossing = list(link.crossed_by)
    more = f" and {len(crossing) - _SHOWN:,} more" if len(crossing) > _SHOWN else ""
    return " ".join(crossing[:_SHOWN]) + more or "-"


def _carries(link: link_pb2.Link) -> str:
    """Show the share of an uplink now, and the reported one where a window lowers it."""
    now = share_text(round(link.carried_share, 6))
    reported = share_text(link.share)
    return now if now == reported else f"{now} ({reported} outside the window)"


def _why(link: link_pb2.Link) -> str:
    return "; ".join(filter(None, (link.detail, link.reason)))
