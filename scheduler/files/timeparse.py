"""Points in time and durations as people write them, and how they are written back."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from placement import BadInput
from scheduler.core.model.job import SECOND_NS

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"(?:\d+[smhd])+")
_PART = re.compile(r"(\d+)([smhd])")
TIME = "a date and time such as 2026-11-21T06:00Z"
FORMS = f"{TIME}, or a time from now such as +90m or +1d12h"


def parse_moment(text: str, now_ns: int) -> int:
    """Parse `2026-11-21T06:00Z` (UTC where no zone is given), or `+90m`, so long after `now_ns`.
    Raises: BadInput without a field."""
    if text.startswith("+"):
        return now_ns + parse_duration(text[1:])
    return parse_time(text, FORMS)


def parse_time(text: str, forms: str = TIME) -> int:
    """Parse `2026-11-21T06:00Z`, in UTC where no zone is given. Raises: BadInput without a
    field."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput("", f"must be {forms}, not {text!r}") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return round(time.timestamp()) * SECOND_NS


def parse_duration(text: str) -> int:
    """Parse `90m`, `4h`, `1d12h` into ns. Raises: BadInput without a field."""
    if not _DURATION.fullmatch(text):
        raise BadInput("", f"must be a duration such as 90m, 4h or 1d12h, not {text!r}")
    return sum(int(n) * _SECONDS[unit] for n, unit in _PART.findall(text)) * SECOND_NS


def written(moment: datetime) -> str:
    """Format a time with its zone, as the command line writes it: `2026-11-21T06:00:00Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
