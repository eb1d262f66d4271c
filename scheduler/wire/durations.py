"""Durations: whole seconds in files and in the core, google.protobuf.Duration in messages; and
moments that requests have."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from placement import BadInput


def duration(seconds: float) -> Duration:
    """Convert seconds to a Duration, to the nanosecond."""
    return duration_of_ns(round(seconds * 10**9))


def duration_of_ns(time_ns: int) -> Duration:
    seconds, nanos = divmod(time_ns, 10**9)
    return Duration(seconds=seconds, nanos=nanos)


def whole_seconds(field: str, message: Duration) -> int:
    """Convert a Duration to seconds. `field`: its path in the request. Raises: BadInput where it is
    not whole."""
    if message.nanos:
        raise BadInput(field, "must be a whole number of seconds")
    return message.seconds


def nanoseconds(field: str, moment: Timestamp) -> int:
    """Convert a Duration to nanoseconds. `field`: its path in the request. Raises: BadInput."""
    try:
        return moment.ToNanoseconds()
    except ValueError as error:
        raise BadInput(field, str(error)) from None
