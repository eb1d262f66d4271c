"""Plain text for people: aligned columns, bytes and seconds in readable units."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from scheduler.files.errors import one_line

if TYPE_CHECKING:
    from google.protobuf.message import Message

# Seconds in a unit, its name, and from how many seconds on it is taken.
_LONG = (
    (86_400.0, "d", 172_800.0),
    (3_600.0, "h", 7_200.0),
    (60.0, "min", 999.5),
    (1.0, "s", 0.9995),
    (1e-3, "ms", 0.9995e-3),
)
NEGLIGIBLE = 1e-4  # of a step: as good as its bound
_NUMBER = re.compile(r"[-+<> ]*\d|-?$")  # with a unit, or nothing
_UNITS = ("B", "KB", "MB", "GB", "TB", "PB", "EB")


def columns(rows: Sequence[Sequence[str]], right: frozenset[int] | set[int] = frozenset()) -> str:
    """Write rows of equal length in columns, two spaces apart; `right` columns are flush right.

    Line breaks in a cell are removed.
    """
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write rows in columns below their heads; columns of numbers, also with a unit, are flush
    right; "" without rows."""
    rows = [*rows]
    if not rows:
        return ""
    right = {i for i in range(len(heads)) if all(_NUMBER.match(row[i]) for row in rows)}
    return columns([heads, *rows], right)


def bytes_text(count: float) -> str:
    """Write bytes with three significant digits in powers of 1,000: 2.42 TB."""
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    if unit == 0:
        return f"{value:.0f} B"
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{decimals}f} {_UNITS[unit]}"


def seconds_text(seconds: float) -> str:
    """Write seconds with three significant digits in us, ms or s; from 1,000 s on in min, h or d:
    16.7 min, 520,833 d."""
    for scale, unit, from_s in _LONG:
        if seconds >= from_s:
            value = seconds / scale
            return f"{value:,.0f} {unit}" if value >= 999.5 else f"{value:.3g} {unit}"
    micro = seconds * 1e6
    return f"{micro:.3g} us" if micro >= 0.01 else "0 s" if not seconds else "< 0.01 us"


def step_text(seconds: float, least_s: float) -> str:
    """Write how long a step takes, and what is proved of it. `least_s`: its lower bound, 0 where
    there is none."""
    text = seconds_text(seconds)
    if not least_s:
        return text
    if seconds <= least_s * (1 + NEGLIGIBLE):
        return f"{text}; no placement on these hosts is faster"
    least, gap = seconds_text(least_s), percent_text(seconds / least_s - 1)
    if least == text:
        return f"{text}; no placement on these hosts is faster by more than {gap}"
    return f"{text}; no placement on these hosts is faster than {least} (gap {gap})"


def gap_text(gap: float, negligible: float = 0.0) -> str:
    """Say what is proved: `proved optimal`, or `gap 0.26 %`. `negligible`: as good as none."""
    return f"gap {100 * gap:.2f} %" if gap > negligible else "proved optimal"


def counted(n: int, noun: str) -> str:
    """Write a number with its noun: `1 host`, `2,048 hosts`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def percent_text(share: float) -> str:
    """Write a share with one decimal: 41.3 %."""
    percent = 100 * share
    return f"{percent:.1f} %" if percent >= 0.05 or not share else "< 0.1 %"


def gpus_text(gpus: Sequence[int]) -> str:
    """Name GPUs by their numbers on a host: `GPU 3`, `GPUs 0,1`."""
    return f"GPU{'' if len(gpus) == 1 else 's'} {','.join(map(str, gpus))}"


def gbps_text(gbps: float) -> str:
    """Write a speed with four significant digits in Gbit/s or Tbit/s: 409.6 Tbit/s, 4,915
    Tbit/s."""
    value, unit = (gbps / 1000, "Tbit/s") if gbps >= 1000 else (gbps, "Gbit/s")
    return f"{value:,.0f} {unit}" if value >= 999.95 else f"{value:.4g} {unit}"


def enum_word(message: Message, field: str) -> str:
    """Write the value of an enum field as people do: `in_repair` of HOST_STATE_IN_REPAIR."""
    kind: Any = message.DESCRIPTOR.fields_by_name[field].enum_type
    prefix = kind.values[0].name.removesuffix("UNSPECIFIED")
    return str(kind.values_by_number[getattr(message, field)].name.removeprefix(prefix).lower())
