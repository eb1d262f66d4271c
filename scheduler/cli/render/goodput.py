"""What a job's time went to, as a table."""

from __future__ import annotations

from scheduler.cli.render.text import enum_word, percent_text, table
from scheduler.v1 import job_pb2

NS_PER_S = 10**9


def goodput_text(goodput: job_pb2.Goodput) -> str:
    """Write a line for each part of a job's time that is not 0, then their sums."""
    spent = [s for s in goodput.parts if s.duration.ToNanoseconds() or s.gpu_hours]
    if not spent:
        return "no time has passed"
    shown = table(("PART", "TIME", "SHARE", "GPU-HOURS"), map(_row, spent))
    return f"{shown}\n\nETTR {percent_text(goodput.ettr)}, goodput {percent_text(goodput.goodput)}"


def _row(share: job_pb2.GoodputShare) -> tuple[str, str, str, str]:
    name = enum_word(share, "part")
    if share.part == job_pb2.GOODPUT_PART_SPARE:
        return (f"{name}s held", "", "", _hours(share.gpu_hours))
    time = elapsed_text(share.duration.ToNanoseconds() / NS_PER_S)
    return (name, time, percent_text(share.share), _hours(share.gpu_hours))


def _hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours >= 1 else f"{hours:.2g}"


def elapsed_text(seconds: float) -> str:
    """Show a time in two units: 3 d 04 h, 5 h 07 min, 4 min 10 s, 12.3 s."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    for size, unit, less, small in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min")):
        if whole >= size:
            return f"{whole // size:,} {unit} {whole % size // less:02d} {small}"
    return f"{whole // 60} min {whole % 60:02d} s"
