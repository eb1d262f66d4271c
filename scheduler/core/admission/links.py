"""What a report of an uplink does, and an operator's word on it, checked against the state."""

from __future__ import annotations

from placement import BadInput
from placement.fabric.links import checked_share, uplink_of
from scheduler.core.admission.etag import link_etag, stale
from scheduler.core.model.commands import MoveLink, ReportLink
from scheduler.core.model.events import Event, LinkMoved, LinkReported
from scheduler.core.model.lifecycle import LINK_MOVES
from scheduler.core.model.rejected import Rejected, invalid, no_link
from scheduler.core.model.state import State


def report_link(state: State, command: ReportLink, now_ns: int) -> tuple[Event, ...] | Rejected:
    """No events: it was reported so already."""
    if refusal := _unknown(state, command.link):
        return refusal
    try:
        share = checked_share(command.share)
    except BadInput as error:
        return invalid(error.field, error.message)
    if state.link(command.link).share == share:
        return ()
    return (LinkReported(now_ns, command.link, share, command.detail, command.request_id),)


def move_link(state: State, command: MoveLink, now_ns: int) -> tuple[Event, ...] | Rejected:
    """No events: it was so already."""
    if refusal := _unknown(state, command.link):
        return refusal
    record = state.link(command.link)
    current = f"link {command.link}"
    if refusal := stale(command.etag, lambda: link_etag(command.link, record), current):
        return refusal
    if command.move not in LINK_MOVES[record.use]:
        return ()
    return (LinkMoved(now_ns, command.link, command.move, command.reason, command.request_id),)


def _unknown(state: State, name: str) -> Rejected | None:
    try:
        uplink_of(state.loaded_fabric, name, "name")
    except BadInput as error:
        is_host = name in state.loaded_fabric.index_by_name
        return invalid("name", error.message) if is_host else no_link(name)
    return None
