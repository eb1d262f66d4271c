"""What jobs have used, as a table for people and as rows for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from scheduler.cli.render.goodput import NS_PER_S, elapsed_text
from scheduler.cli.render.text import percent_text, table
from scheduler.v1 import job_pb2, service_pb2

_COUNTS = ("jobs", "completed", "failed", "cancelled", "restarts")
_PARTS = tuple(
    (number, name.removeprefix("GOODPUT_PART_").lower())
    for name, number in job_pb2.GoodputPart.items()
    if number not in (job_pb2.GOODPUT_PART_UNSPECIFIED, job_pb2.GOODPUT_PART_QUEUEING)
)

Record = dict[str, str | int | float]


def usage_text(answer: service_pb2.SumUsageResponse, keys: Sequence[str]) -> str:
    """Write a line for each row, and one for all of them together."""
    if not answer.total.jobs:
        return "no job ended in that time, and none lives"
    heads = (*keys, *_COUNTS, "gpu-hours", "goodput", "wait of a job")
    rows = [_cells(row, [getattr(row, key) or "-" for key in keys]) for row in answer.rows]
    if keys and len(answer.rows) != 1:
        rows.append(_cells(answer.total, ["total", *[""] * (len(keys) - 1)]))
    return table([head.upper() for head in heads], rows)


def _cells(row: service_pb2.UsageRow, keys: list[str]) -> list[str]:
    counts = [f"{getattr(row, count):,}" for count in _COUNTS]
    wait = elapsed_text(_waited_s(row) / row.jobs) if row.jobs else "-"
    goodput = percent_text(row.goodput.goodput) if row.held_gpu_hours else "-"
    return [*keys, *counts, f"{row.held_gpu_hours:,.1f}", goodput, wait]


def _waited_s(row: service_pb2.UsageRow) -> float:
    """Seconds that all its jobs together waited."""
    return next(
        share.duration.ToNanoseconds() / NS_PER_S
        for share in row.goodput.parts
        if share.part == job_pb2.GOODPUT_PART_QUEUEING
    )


def records(answer: service_pb2.SumUsageResponse, keys: Sequence[str]) -> list[Record]:
    """Return rows with the same keys, in the order of the answer: counts, and GPU-hours by what
    they went to."""
    return [_record(row, keys) for row in answer.rows]


def _record(row: service_pb2.UsageRow, keys: Sequence[str]) -> Record:
    hours = {share.part: share.gpu_hours for share in row.goodput.parts}
    return {
        **{key: getattr(row, key) for key in keys},
        **{count: getattr(row, count) for count in _COUNTS},
        "wait_s": round(_waited_s(row), 3),
        "held_gpu_hours": round(row.held_gpu_hours, 6),
        **{f"{name}_gpu_hours": round(hours.get(number, 0.0), 6) for number, name in _PARTS},
        "goodput": round(row.goodput.goodput, 6),
    }


def usage_csv(answer: service_pb2.SumUsageResponse, keys: Sequence[str]) -> str:
    """Write rows of usage as CSV, below column names."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_record(answer.total, keys))
    writer.writerows(record.values() for record in records(answer, keys))
    return text.getvalue()
