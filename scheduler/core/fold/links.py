"""What the events of links make of the state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from muster.structs import replace
from scheduler.core.collections.persistent_map import with_entry, without_entry
from scheduler.core.model.events import LinkEvent, LinkMoved, LinkReported
from scheduler.core.model.lifecycle import LINK_MOVES, after
from scheduler.core.model.state import LinkRecord, State


def applied(state: State, event: LinkEvent) -> State:
    """Return the state after an event of uplinks. Raises: KeyError on a move that cannot be."""
    before = state.link(event.link)
    match event:
        case LinkReported():
            now = replace(before, share=event.share, share_ns=event.time_ns, detail=event.detail)
        case LinkMoved():
            use = after(LINK_MOVES, before.use, event.move)
            now = replace(before, use=use, use_ns=event.time_ns, reason=event.reason)
        case _:
            assert_never(event)
    links_ns = event.time_ns if now.share != before.share else state.links_ns
    return replace(state, links=_with(state, event.link, now), links_ns=links_ns)


def _with(state: State, name: str, record: LinkRecord) -> Mapping[str, LinkRecord]:
    if not record.is_plain:
        return with_entry(state.links, name, record)
    return without_entry(state.links, name) if name in state.links else state.links
