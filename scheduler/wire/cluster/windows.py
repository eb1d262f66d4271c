"""Windows between messages and core values."""

from __future__ import annotations

from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from muster.structs import replace
from placement import BadInput
from placement.fabric import hostset
from scheduler.core import Job, State
from scheduler.core.admission.etag import window_etag
from scheduler.core.capacity.window_hosts import gangs_on
from scheduler.core.model.lifecycle import WindowState
from scheduler.core.model.window import Booking, Leave, Window, WindowKind
from scheduler.core.rules.calendar import Calendar
from scheduler.identity import redact_for_caller
from scheduler.v1 import service_pb2, window_pb2
from scheduler.wire.durations import nanoseconds
from scheduler.wire.jobs import timestamp
from scheduler.wire.lists import filters
from scheduler.wire.lists.listing import window_uid
from scheduler.wire.names import job_resource
from scheduler.wire.specs import numbers

FILTERED = filters.fields_of(
    window_pb2.Window.DESCRIPTOR,
    "name uid kind state tenant reason start_time end_time create_time update_time",
    hosts="chosen_hosts",
)
_KINDS = numbers(window_pb2.WindowKind, "WINDOW_KIND", WindowKind)
_LEAVES = numbers(window_pb2.WindowLeave, "WINDOW_LEAVE", Leave)
_STATES = numbers(window_pb2.WindowState, "WINDOW_STATE", WindowState)
STATE_BY_NUMBER: dict[int, WindowState] = {n: state for state, n in _STATES.items()}
_KIND_BY_NUMBER: dict[int, WindowKind] = {n: kind for kind, n in _KINDS.items()}
_LEAVE_BY_NUMBER: dict[int, Leave] = {n: leave for leave, n in _LEAVES.items()} | {0: Leave.WAIT}

# Fields of the message that a request may set, and what they are called in the core.
FIELDS = {
    "kind": "kind",
    "start_time": "start_ns",
    "end_time": "end_ns",
    "hosts": "among",
    "host_count": "count",
    "tenant": "tenant",
    "jobs": "jobs",
    "leave": "leave",
    "reason": "reason",
    "links": "links",
    "link_share": "share",
}


def window_from_proto(message: window_pb2.Window) -> Window:
    """Convert a message to a window. Raises: BadInput naming the field."""
    for name in ("start_time", "end_time"):
        if not message.HasField(name):
            raise BadInput(name, "is required")
    return Window(message.name, **{core: _value(message, name) for name, core in FIELDS.items()})


def changed(window: Window, request: service_pb2.UpdateWindowRequest) -> Window:
    """Return `window` with the values that the request names. Raises: BadInput naming the field."""
    message = request.window
    paths = list(request.update_mask.paths)
    if not paths:
        paths = [f.name for f, _ in message.ListFields() if f.name in FIELDS]
    known = ", ".join(FIELDS)
    for at, path in enumerate(paths):
        if path not in FIELDS:
            raise BadInput(f"update_mask.paths[{at}]", f"{path!r} is not one of {known}")
    if not paths:
        raise BadInput("update_mask", f"names nothing to change; fields are {known}")
    return replace(window, **{FIELDS[path]: _value(message, path) for path in paths})


def _value(message: window_pb2.Window, name: str) -> Any:
    value = getattr(message, name)
    if isinstance(value, Timestamp):
        return nanoseconds(name, value)
    if name == "kind":
        if value not in _KIND_BY_NUMBER:
            raise BadInput("kind", "must be WINDOW_KIND_MAINTENANCE or WINDOW_KIND_RESERVATION")
        return _KIND_BY_NUMBER[value]
    if name == "leave":
        if value not in _LEAVE_BY_NUMBER:
            raise BadInput("leave", f"{value} is not one of its values")
        return _LEAVE_BY_NUMBER[value]
    return tuple(value) if name in ("hosts", "jobs", "links") else value


def _blocking_gangs(state: State, booking: Booking) -> list[Job]:
    """Gangs that hold hosts of the window and that it is not for."""
    if booking.state is WindowState.OVER:
        return []
    calendar = Calendar(state)
    return [job for job in gangs_on(state, booking) if not calendar.is_for(booking, job)]


def window_to_proto(state: State, booking: Booking) -> window_pb2.Window:
    window, gangs = booking.window, _blocking_gangs(state, booking)
    held = hostset.of(host for job in gangs for host in (*job.hosts, *job.spares))
    return window_pb2.Window(
        name=window.name,
        kind=_KINDS[window.kind],
        start_time=timestamp(window.start_ns),
        end_time=timestamp(window.end_ns),
        hosts=window.among,
        host_count=window.count,
        tenant=window.tenant,
        jobs=window.jobs,
        leave=_LEAVES[window.leave],
        reason=redact_for_caller(state)(window.reason, booking.change_ns),
        links=window.links,
        link_share=window.share,
        state=_STATES[booking.state],
        chosen_hosts=window.hosts,
        held_hosts=(held & booking.hosts).bit_count(),
        held_by=map(job_resource, gangs),
        version=state.version,
        uid=window_uid(state, booking),
        create_time=timestamp(booking.create_ns),
        update_time=timestamp(booking.update_ns),
        etag=window_etag(booking),
    )
