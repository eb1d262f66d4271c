"""Totals in words and units, for terminals and pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from muster.structs import struct
from scheduler.cli.render.text import columns as aligned


@struct(frozen=True, slots=True)
class TableCell:
    """A cell of a table that compares. `change`: how much more it is than the baseline; "" for the
    baseline itself. `kind`: whether that is `better` or `worse`. `note`: in small print below."""

    text: str
    change: str = ""
    kind: str = ""
    note: str = ""


def figures(totals: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the figures that a reader looks for first, in words and units."""
    wait = totals["wait_s"]
    speed = totals["events_per_second"]
    rows = [
        ("jobs", f"{totals['jobs']:,}"),
        ("completed", f"{totals['completed']:,}"),
        *((end, f"{totals[end]:,}") for end in ("failed", "cancelled") if totals[end]),
        ("rejected", _counted(totals["rejected"], totals["rejected_by_reason"])),
        ("records skipped", _counted(totals["skipped"], totals["skipped_by_reason"])),
        ("makespan", duration(totals["makespan_s"])),
        ("wait, mean", duration(wait["mean"])),
        *((f"wait, {p}", duration(wait[p])) for p in ("p50", "p95", "p99")),
        ("bounded slowdown, mean", f"{totals['bounded_slowdown']['mean']:,.2f}"),
        ("host utilization", f"{100 * totals['utilization']:.1f} %"),
        ("GPU utilization", f"{100 * totals['gpu_utilization']:.1f} %"),
        ("goodput", f"{100 * totals['goodput']:.2f} %"),
        ("host time held", _parts(totals["host_s"])),
        ("ETTR", f"{100 * totals['ettr']:.2f} %"),
        ("host failures", f"{totals['host_failures']:,}"),
        ("restarts", f"{totals['restarts']:,}"),
        ("events", f"{totals['events']:,} in {totals['seconds']:.1f} s, {speed:,.0f} a second"),
    ]
    if totals["preemptions"]:
        lost = f"{totals['preempted_host_s'] / 3600:,.1f} host-hours repeated"
        rows.insert(-1, ("preemptions", f"{totals['preemptions']:,}, {lost}"))
    if totals["resizes"]:
        rows.insert(-1, ("restarts to resize", f"{totals['resizes']:,}"))
    if totals["unfinished"]:
        rows.insert(2, ("unfinished", f"{totals['unfinished']:,}"))
    return rows


def headline(totals: dict[str, Any]) -> str:
    """Say in one line which trace was replayed on which fabric."""
    fabric, placement = totals["fabric"], totals.get("placement", "step-time")
    by = "" if placement == "step-time" else f", placement {placement}"
    return (
        f"{totals['trace']['file']} on {fabric['name']} ({fabric['hosts']:,} hosts x"
        f" {fabric['gpus_per_host']} GPUs), policy {totals['policy']}{by}, seed {totals['seed']}"
    )


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Write rows in columns, the first column to the left, all others to the right."""
    return aligned(rows, right=set(range(1, len(rows[0]))))


def duration(seconds: float) -> str:
    """Show a time in at most two units: 92 d 04 h, 3 h 05 min, 12 min, 4.1 s."""
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    hours = round(seconds / 3600)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{hours // 24:,} d {hours % 24:02d} h"


def _parts(host_s: dict[str, float]) -> str:
    """Shares of what hosts were held for, the larger ones first; what is nothing is left out."""
    spent = [(seconds, part) for part, seconds in host_s.items() if seconds and part != "queueing"]
    held_s = sum(seconds for seconds, _ in spent)
    spent.sort(reverse=True)
    return ", ".join(f"{part} {100 * seconds / held_s:.2f} %" for seconds, part in spent) or "none"


def _counted(count: int, by_reason: dict[str, int]) -> str:
    if not count:
        return "0"
    return f"{count:,} ({', '.join(f'{reason}: {n:,}' for reason, n in by_reason.items())})"
