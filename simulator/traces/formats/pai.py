"""Alibaba PAI 2020: `pai_task_table.csv`, which has no header.

    job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type

Each task with GPUs is a gang, submitted when it starts; `plan_gpu` is in percent of a GPU, for
each instance. Without GPUs, a start or an end a task is left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulator.traces.formats.columns import Row, read_table, with_header
from simulator.traces.record import (
    BadRecord,
    FieldError,
    Lines,
    NothingToReplay,
    TraceJob,
    TraceOutcome,
    count,
    number,
    seconds_ns,
)

COLUMNS = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
NOTE = "a share of a GPU is rounded up to a whole one for each instance; a task comes as it starts"
OUTCOMES = {"Terminated": TraceOutcome.COMPLETED, "Failed": TraceOutcome.FAILED}


def read(lines: Lines) -> Iterator[TraceJob | BadRecord]:
    """Yield the tasks of an Alibaba PAI trace in the order of the file."""
    return read_table(with_header(lines, COLUMNS), _job, COLUMNS)


def _job(line: int, row: Row) -> TraceJob:
    gpus = _gpus(row)
    start_ns, end_ns = (_time_ns(row, name) for name in ("start_time", "end_time"))
    if end_ns < start_ns:
        raise FieldError("end_time", "is before start_time", row["end_time"])
    return TraceJob(
        id=f"{row['job_name']}/{row['task_name']}",
        submit_ns=start_ns,
        run_ns=end_ns - start_ns,
        line=line,
        gpus=gpus,
        queue=row["gpu_type"],
        outcome=OUTCOMES.get(row["status"], TraceOutcome.UNKNOWN),
    )


def _gpus(row: Row) -> int:
    percent = number(row["plan_gpu"] or "0", "plan_gpu")
    if percent < 0:
        raise FieldError("plan_gpu", "must not be negative", row["plan_gpu"])
    if percent == 0:
        raise NothingToReplay("plan_gpu", "is 0: a task of CPUs")
    instances = count(row["inst_num"], "inst_num")
    if instances <= 0:
        raise FieldError("inst_num", "must be more than 0", row["inst_num"])
    return instances * -int(-percent // 100)


def _time_ns(row: Row, name: str) -> int:
    if not row[name]:
        raise NothingToReplay(name, "is empty: it had not started or not ended")
    time_ns = seconds_ns(row[name], name)
    if time_ns < 0:
        raise FieldError(name, "must not be negative", row[name])
    return time_ns
