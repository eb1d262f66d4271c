"""Numbers in the sentences of reasons."""

from __future__ import annotations


def hosts_text(count: int) -> str:
    return f"{count:,} host{'' if count == 1 else 's'}"


def jobs_text(count: int) -> str:
    return f"{count:,} job{'' if count == 1 else 's'}"


def listed(names: tuple[str, ...]) -> str:
    """`a, b, c and 2 more`."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")


def ending(names: tuple[str, ...]) -> str:
    """`a ends`, `a, b, c and 2 more end`."""
    return f"{listed(names)} {'ends' if len(names) == 1 else 'end'}"


def duration(seconds: int) -> str:
    hours, minutes = seconds // 3600, seconds % 3600 // 60
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min" if minutes else f"{seconds} s"
