"""Numbers of options: durations, and what no bounds keep out."""

from __future__ import annotations

import time

import typer

from placement import BadInput

MOST = 2**31 - 1  # what whole numbers on the wire can be


def seconds(text: str, least: int = 0) -> int:
    """Parse a duration, `2h30m`, `90s`, `1d12h` or a plain number of seconds, into seconds.

    Raises: typer.BadParameter.
    """
    from scheduler.core.model.job import SECOND_NS
    from scheduler.files.timeparse import parse_duration

    try:
        value = int(text) if text.isdecimal() else parse_duration(text) // SECOND_NS
    except BadInput as error:
        raise typer.BadParameter(f"{error.message}; or a number of seconds") from None
    if not least <= value <= MOST:
        raise typer.BadParameter(f"{text!r} is not from {least} s to {MOST:,} s")
    return value


def finite(number: float | None) -> float | None:
    """Return the value of an option unless it is NaN, which is within any bounds. Raises:
    typer.BadParameter."""
    if number is not None and number != number:
        raise typer.BadParameter("must be a number, not nan")
    return number


def past_ns(text: str, option: str) -> int:
    """Parse a date, a date and time, or an age such as `30d` or `90m`, into nanoseconds since 1970.
    Raises: typer.BadParameter."""
    from scheduler.files.timeparse import parse_duration, parse_time

    try:
        return time.time_ns() - parse_duration(text) if text[-1:] in "smhd" else parse_time(text)
    except BadInput:
        raise typer.BadParameter(
            f"{text!r} is neither 30d or 12h nor a time such as 2026-11-01 or 2026-11-01T08:00Z",
            param_hint=option,
        ) from None


def some_seconds(text: str) -> int:
    """Parse `seconds`, at least 1."""
    return seconds(text, 1)
