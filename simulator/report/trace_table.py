"""The summary of a trace, or of one that was generated, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simulator.mixes.generate import TraceExtent
from simulator.report.text import duration

BARS = " ▁▂▃▄▅▆▇█"
COLUMNS = ("jobs", "share", "GPU-hours", "share", "run p50", "mean", "p99", "max")


def table(name: str, figures: Mapping[str, Any]) -> str:
    """Write a table of a trace. `figures`: of a Summary, with the records that were skipped."""
    return "\n".join(_lines(name, figures))


def extent_text(extent: TraceExtent) -> str:
    """Say how long a generated trace is, and whether that is long enough to reach its load."""
    text = (
        f"{extent.jobs:,} jobs over {duration(extent.span_s)};"
        f" a run takes {duration(extent.run_s)}, by GPU time"
    )
    if extent.is_enough:
        return text
    return f"{text}. The cluster begins empty: more jobs are needed to see it at this load"


def _lines(name: str, figures: Mapping[str, Any]) -> Iterator[str]:
    gpus, jobs = figures["gpus"], figures["jobs"]
    yield f"{name}: {jobs:,} jobs in {duration(figures['span_s'])}"
    yield (
        f"{figures['gpu_hours']:,.0f} GPU-hours; GPUs of a job: mean {gpus['mean']:.2f},"
        f" p50 {gpus['p50']:,}, max {gpus['max']:,}"
    )
    yield f"{figures['with_time_limit']:,} jobs state a time limit"
    for reason, count in figures["skipped_by_reason"].items():
        yield f"not replayed: {count:,}, {reason}"
    if not jobs:
        return
    yield ""
    yield from _aligned("GPUs", figures["by_gpus"])
    yield from _aligned("all", {"": _total_row(figures)}, head=False)
    if set(figures["by_outcome"]) != {"unknown"}:
        yield ""
        yield from _aligned("ended", figures["by_outcome"])
    yield ""
    yield from _hours(figures["submits_by_hour"])


def _total_row(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {**figures, "share": 1.0, "gpu_hours_share": 1.0}


def _aligned(
    title: str, parts: Mapping[str, Mapping[str, Any]], head: bool = True
) -> Iterator[str]:
    if head:
        yield _row(title, COLUMNS)
    for name, part in parts.items():
        if part["jobs"]:
            yield _row(name or title, _cells(part))


def _cells(part: Mapping[str, Any]) -> Sequence[str]:
    run = part["run_s"]
    return (
        f"{part['jobs']:,}",
        f"{100 * part['share']:.1f} %",
        f"{part['gpu_hours']:,.0f}",
        f"{100 * part['gpu_hours_share']:.1f} %",
        *(duration(run[key]) for key in ("p50", "mean", "p99", "max")),
    )


def _row(name: str, cells: Sequence[str]) -> str:
    widths = (10, 8, 12, 8, 13, 13, 13, 13)
    return f"{name:<15}" + "".join(f"{c:>{w}}" for c, w in zip(cells, widths, strict=True))


def _hours(counts: Sequence[int]) -> Iterator[str]:
    most = max(counts)
    bars = "".join(BARS[-(-count * (len(BARS) - 1) // most)] for count in counts)
    hour = counts.index(most)
    share = most / sum(counts)
    yield f"submits by hour  0 {bars} 23  most at {hour}:00, {100 * share:.1f} %"
