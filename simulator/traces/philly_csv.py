"""Philly, the five-column reduction of Microsoft's trace.

    timestamp,duration,num_gpus,gpu_time,cluster
    2017-10-09 07:01:55,66.0,1,66.0,11cb48

Submit times carry no zone and are read as UTC; the file is not sorted. It has no job
ids: a job is named by its line. `cluster` is the virtual cluster, taken as the queue.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulator.traces.record import BadRecord, Lines, TraceJob, count, seconds_ns, usable
from simulator.traces.table import Row, read_table
from simulator.traces.times import instant_ns

COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")


def read(lines: Lines) -> Iterator[TraceJob | BadRecord]:
    """Jobs in the order of the file."""
    return read_table(lines, _job, COLUMNS)


def _job(line: int, row: Row) -> TraceJob:
    job = TraceJob(
        id=f"line-{line}",
        submit_ns=instant_ns(row["timestamp"], "timestamp"),
        run_ns=seconds_ns(row["duration"], "duration"),
        line=line,
        gpus=count(row["num_gpus"], "num_gpus"),
        queue=row["cluster"],
    )
    return usable(job, "duration", "num_gpus")
