"""What jobs have used, as a table for people and as rows for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from scheduler.cli.render.goodput import NS_PER_S, elapsed_text
from scheduler.cli.render.messages import plain
from scheduler.cli.render.text import columns, percent_text
from scheduler.console.theme import variables
from scheduler.v1 import job_pb2, service_pb2

_COUNTS = ("jobs", "completed", "failed", "cancelled", "restarts")
_PARTS = tuple(
    (number, plain(name, "GOODPUT_PART_"))
    for name, number in job_pb2.GoodputPart.items()
    if number not in (job_pb2.GOODPUT_PART_UNSPECIFIED, job_pb2.GOODPUT_PART_QUEUEING)
)

_STYLE = (
    "body{font:15px/1.45 var(--font);margin:2em;background:var(--ground);color:var(--ink)}"
    "h1{font-size:var(--title)}table{border-collapse:collapse;background:var(--card)}"
    "th{color:var(--quiet);font-size:var(--small)}td{font-variant-numeric:tabular-nums}"
    "th,td{padding:.3rem .8rem;border:solid var(--line);border-width:1px 0;text-align:right}"
    ".key{text-align:left}tr.total{font-weight:600}p{font-weight:600}"
)

Record = dict[str, str | int | float]


def usage_text(answer: service_pb2.SumUsageResponse, keys: Sequence[str]) -> str:
    """Write a line for each row, and one for all of them together."""
    if not answer.total.jobs:
        return "no job ended in that time, and none lives"
    rows = _table(answer, keys)
    return columns(rows, right=set(range(len(keys), len(rows[0]))))


def _table(answer: service_pb2.SumUsageResponse, keys: Sequence[str]) -> list[list[str]]:
    heads = (*keys, *_COUNTS, "gpu-hours", "goodput", "wait of a job")
    rows = [[head.upper() for head in heads]]
    rows += [_cells(row, [getattr(row, key) or "-" for key in keys]) for row in answer.rows]
    if keys and len(answer.rows) != 1:
        rows.append(_cells(answer.total, ["total", *[""] * (len(keys) - 1)]))
    return rows


def usage_html(
    answer: service_pb2.SumUsageResponse, keys: Sequence[str], start_ns: int, end_ns: int
) -> str:
    """Write the rows as a page that a browser shows and prints without other files.

    `start_ns`, `end_ns`: of the time that was asked for, Unix time in ns.
    """
    heads, *rows = _table(answer, keys)
    days = [datetime.fromtimestamp(at / NS_PER_S, UTC).date() for at in (start_ns, end_ns)]
    title = f"Use of GPUs, {days[0]} to {days[1]} (UTC)"
    total = answer.total
    jobs = f"{total.jobs:,} {'job' if total.jobs == 1 else 'jobs'}"
    goodput = percent_text(total.goodput.goodput)
    words = f"{total.held_gpu_hours:,.1f} GPU-hours of {jobs}, {goodput} of them productive"
    lines = [
        f"<title>{title}</title>",
        f"<style>{variables()}{_STYLE}</style>",
        f"<h1>{title}</h1>",
        f"<p>{words if total.jobs else 'No job ended in that time, and none lives'}.</p>",
        "<table>",
        f"<tr>{_row([head.lower() for head in heads], keys, 'th')}</tr>",
    ]
    for number, row in enumerate(rows):
        is_total = number == len(answer.rows) or not keys
        lines.append(f"<tr{' class=total' if is_total else ''}>{_row(row, keys, 'td')}</tr>")
    return "\n".join(["<!doctype html>", '<meta charset="utf-8">', *lines, "</table>", ""])


def _row(cells: Sequence[str], keys: Sequence[str], tag: str) -> str:
    """Cells of HTML; those of keys are texts, and stand at the left."""
    texts = "".join(f'<{tag} class="key">{escape(cell)}</{tag}>' for cell in cells[: len(keys)])
    return texts + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells[len(keys) :])


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
