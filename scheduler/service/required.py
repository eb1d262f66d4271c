"""Fields that a request must set: REQUIRED by google.api.field_behavior."""

from __future__ import annotations

from functools import cache

from google.api import field_behavior_pb2
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from scheduler.service.errors import ApiError
from scheduler.v1 import error_pb2


@cache
def required(kind: Descriptor) -> frozenset[str]:
    """Return the names of the required fields at the top of such a message; those of messages
    inside are checked where they are read."""
    return frozenset(
        field.name
        for field in kind.fields
        if field_behavior_pb2.REQUIRED
        in field.GetOptions().Extensions[field_behavior_pb2.field_behavior]
    )


def check_required(request: Message) -> None:
    """Refuse a request with required fields unset or empty. Raises: ApiError naming every such
    field."""
    wanted = required(request.DESCRIPTOR)
    if not wanted or not (unset := wanted - {field.name for field, _ in request.ListFields()}):
        return
    message = "; ".join(f"{name}: is required" for name in sorted(unset))
    violations = [(name, "is required") for name in sorted(unset)]
    raise ApiError(error_pb2.ERROR_REASON_INVALID, message, violations)
