"""Philly, the five-column reduction of Microsoft's trace.

    timestamp,duration,num_gpus,gpu_time,cluster
    2017-10-09 07:01:55,66.0,1,66.0,11cb48

Submit times carry no zone and are read as UTC; the file is not sorted. It has no job
ids: a job is named by its line. `cluster` is the virtual cluster, taken as the queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from simulator.traces.record import (
    SECOND_NS,
    BadRecord,
    FieldError,
    Lines,
    TraceJob,
    count,
    seconds_ns,
    usable,
)

COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")


def read(lines: Lines) -> Iterator[TraceJob | BadRecord]:
    """Jobs in the order of the file. Columns are found by the header's names.

    Raises: FieldError when the header lacks one.
    """
    column: dict[str, int] = {}
    for line, text in lines:
        cells = [cell.strip() for cell in text.split(",")]
        if cells == [""]:
            continue
        if not column:
            column = _columns(cells)
            continue
        try:
            yield usable(_job(line, _row(cells, column)), "duration", "num_gpus")
        except FieldError as error:
            yield error.at(line)


def _columns(names: list[str]) -> dict[str, int]:
    for name in COLUMNS:
        if name not in names:
            raise FieldError("header", f"must name the column {name}", ",".join(names))
    return {name: names.index(name) for name in COLUMNS}


def _row(cells: list[str], column: Mapping[str, int]) -> dict[str, str]:
    if len(cells) <= max(column.values()):
        raise FieldError("columns", "must be as many as in the header", str(len(cells)))
    return {name: cells[i] for name, i in column.items()}


def _job(line: int, row: Mapping[str, str]) -> TraceJob:
    return TraceJob(
        id=f"line-{line}",
        submit_ns=_submit_ns(row["timestamp"]),
        run_ns=seconds_ns(row["duration"], "duration"),
        line=line,
        gpus=count(row["num_gpus"], "num_gpus"),
        queue=row["cluster"],
    )


def _submit_ns(text: str) -> int:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        when = None
    # fromisoformat reads other notations too; only the format's own passes
    if when is None or len(text) != 19 or text[10] != " ":
        raise FieldError("timestamp", "must be YYYY-MM-DD HH:MM:SS", text)
    return int(when.replace(tzinfo=UTC).timestamp()) * SECOND_NS
