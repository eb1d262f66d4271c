"""Helios and Acme: SenseTime's and Shanghai AI Lab's tables of Slurm and Kubernetes jobs.

Helios `cluster_log.csv`, Acme `trace_seren.csv` and `trace_kalos.csv` are one family with
more or fewer columns, found by their names:

    job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,...

- `gpu_num` 0 is a CPU job, without a start it never ran, without an end it still ran:
  left out.
- Run times are end - start. The column `duration` is not read: in Kalos it is in fact
  end - submit.
- Helios' times have no zone and are read as UTC, which keeps the hour of the day; Acme's
  carry their offset.
- Helios' virtual cluster is the queue, Acme's kind of work (`type`) likewise.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulator.traces.formats.columns import Row, read_table
from simulator.traces.formats.times import instant_ns, is_unknown
from simulator.traces.record import (
    BadRecord,
    FieldError,
    Lines,
    NothingToReplay,
    TraceJob,
    TraceOutcome,
    count,
)

NEEDED = ("job_id", "user", "gpu_num", "state", "submit_time", "start_time", "end_time")
OUTCOMES = {
    "COMPLETED": TraceOutcome.COMPLETED,
    "CANCELLED": TraceOutcome.CANCELLED,
    "FAILED": TraceOutcome.FAILED,
    "TIMEOUT": TraceOutcome.FAILED,
    "NODE_FAIL": TraceOutcome.FAILED,
    "OUT_OF_MEMORY": TraceOutcome.FAILED,
}


def read(lines: Lines) -> Iterator[TraceJob | BadRecord]:
    """Helios' jobs in the order of the file."""
    return read_table(lines, _helios, (*NEEDED, "vc"))


def read_acme(lines: Lines) -> Iterator[TraceJob | BadRecord]:
    """Seren's or Kalos' jobs in the order of the file."""
    return read_table(lines, _acme, (*NEEDED, "type"))


def _helios(line: int, row: Row) -> TraceJob:
    return _job(line, row, row["vc"])


def _acme(line: int, row: Row) -> TraceJob:
    return _job(line, row, row["type"])


def _job(line: int, row: Row, queue: str) -> TraceJob:
    if not row["job_id"]:
        raise FieldError("job_id", "is empty")
    return TraceJob(
        id=row["job_id"],
        submit_ns=instant_ns(row["submit_time"], "submit_time"),
        run_ns=_run_ns(row),
        line=line,
        gpus=_gpus(row["gpu_num"]),
        user=row["user"],
        queue=queue,
        outcome=OUTCOMES.get(row["state"], TraceOutcome.UNKNOWN),
    )


def _gpus(text: str) -> int:
    gpus = count(text, "gpu_num")
    if gpus == 0:
        raise NothingToReplay("gpu_num", "is 0: a job of CPUs")
    if gpus < 0:
        raise FieldError("gpu_num", "must not be negative", text)
    return gpus


def _run_ns(row: Row) -> int:
    if is_unknown(row["start_time"]):
        raise NothingToReplay("start_time", "is empty: it never ran")
    if is_unknown(row["end_time"]):
        raise NothingToReplay("end_time", "is empty: it had not ended")
    start_ns = instant_ns(row["start_time"], "start_time")
    end_ns = instant_ns(row["end_time"], "end_time")
    if end_ns < start_ns:
        raise FieldError("end_time", "is before start_time", row["end_time"])
    return end_ns - start_ns
