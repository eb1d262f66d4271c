"""Points in time and durations as trace files write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

from simulator.traces.record import SECOND_NS, FieldError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PLAIN_EPOCH = EPOCH.replace(tzinfo=None)
UNKNOWN = frozenset(("", "none", "null", "nan", "nat", "unknown", "n/a"))
FORM = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
SPAN = re.compile(r"(?:(?:(\d{1,6})-)?(\d{1,7}):)?(\d{1,7}):(\d\d)(?:\.\d+)?", re.ASCII)


def is_unknown(text: str) -> bool:
    """Return whether a cell says that the value is unknown."""
    return text.lower() in UNKNOWN


@lru_cache(maxsize=4096)
def instant_ns(text: str, field: str) -> int:
    """Parse `YYYY-MM-DD HH:MM:SS`, with a zone or in UTC, into nanoseconds since 1970. Raises:
    FieldError."""
    try:
        when = datetime.fromisoformat(text) if FORM.fullmatch(text) else None
    except ValueError:
        when = None
    if when is None:
        raise FieldError(field, "must be YYYY-MM-DD HH:MM:SS", text)
    since = when - (EPOCH if when.tzinfo else PLAIN_EPOCH)
    if since.days < 0:
        raise FieldError(field, "must not be before 1970", text)
    return (since.days * 86_400 + since.seconds) * SECOND_NS + since.microseconds * 1000


def span_ns(text: str, field: str) -> int:
    """Parse `[[D-]HH:]MM:SS`, as Slurm writes a duration, into nanoseconds. Raises: FieldError."""
    match = SPAN.fullmatch(text)
    if match is None:
        raise FieldError(field, "must be [D-]HH:MM:SS", text)
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * SECOND_NS
