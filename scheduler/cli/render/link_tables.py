"""Links as text for people."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.cli.offline.fabric import gbps_text
from scheduler.cli.render.messages import plain, time_text
from scheduler.cli.render.text import columns
from scheduler.core.wording import share_text
from scheduler.files.errors import one_line
from scheduler.v1 import link_pb2, service_pb2

_SHOWN = 4
_HEAD = ("LINK", "TIER", "CARRIES", "OF", "USE", "SINCE", "WINDOWS", "CROSSED BY", "REASON")


def links_text(links: Sequence[link_pb2.Link]) -> str:
    if not links:
        return "all links are up and open"
    return columns([_HEAD, *map(_row, links)], right={3})


def link_text(link: link_pb2.Link) -> str:
    return links_text([link])


def change_text(change: service_pb2.WatchLinksResponse) -> str:
    """When, which link, what it carries and who may cross it."""
    link = change.link
    parts = (str(change.version), time_text(change.change_time), link.name)
    return one_line("  ".join((*parts, *filter(None, (_carries(link), _use(link), _why(link))))))


def _row(link: link_pb2.Link) -> tuple[str, ...]:
    times = [t for t in (link.report_time, link.use_time) if t.seconds]
    crossing = list(link.crossed_by)
    more = f" and {len(crossing) - _SHOWN:,} more" if len(crossing) > _SHOWN else ""
    return (
        link.name,
        link.tier,
        _carries(link),
        gbps_text(link.built_gbps),
        _use(link),
        time_text(max(times, key=lambda t: t.seconds)) if times else "-",
        " ".join(link.windows) or "-",
        " ".join(crossing[:_SHOWN]) + more or "-",
        _why(link),
    )


def _carries(link: link_pb2.Link) -> str:
    """What was reported, and what a window leaves of it."""
    now = share_text(round(link.carried_share, 6))
    reported = share_text(link.share)
    return now if now == reported else f"{now} ({reported} outside the window)"


def _use(link: link_pb2.Link) -> str:
    return plain(link_pb2.LinkUse.Name(link.use), "LINK_USE_")


def _why(link: link_pb2.Link) -> str:
    return "; ".join(filter(None, (link.detail, link.reason)))
