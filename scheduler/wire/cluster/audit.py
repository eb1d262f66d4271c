"""Records of the audit log as messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from scheduler.eventlog.audit import reason, subject
from scheduler.eventlog.codec import encode
from scheduler.eventlog.store import LoggedRequest
from scheduler.v1 import service_pb2
from scheduler.wire.jobs import timestamp
from scheduler.wire.lists import filters

_FIELDS: Final[dict[str, filters.Field]] = {
    "actor": filters.TextField(lambda record: record.actor),
    "event": filters.TextField(lambda record: type(record.event).__name__),
    "subject": filters.TextField(lambda record: subject(record.event)),
    "reason": filters.TextField(lambda record: reason(record.event)),
    "create_time": filters.TimeField(lambda record: record.event.time_ns),
}


def audit_filter(text: str) -> Callable[[LoggedRequest], bool]:
    """Raises: BadFilter."""
    return filters.parse(text, _FIELDS)


def audit_record_to_proto(record: LoggedRequest) -> service_pb2.AuditRecord:
    event, body = encode(record.event)
    return service_pb2.AuditRecord(
        version=record.version,
        create_time=timestamp(record.event.time_ns),
        actor=record.actor,
        event=event,
        subject=subject(record.event),
        reason=reason(record.event),
        body=body,
    )
