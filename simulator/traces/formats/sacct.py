"""Slurm's accounting: `sacct -P`, cells between bars, or tabs, under a header, or `sacct --json`
(docs/traces.md).

- Columns are found by their names; a row needs JobID or JobIDRaw, Submit, State, a run time
  (ElapsedRaw, Elapsed, or Start and End) and GPUs (AllocTRES, ReqTRES, AllocGRES or ReqGRES).
- GPUs are `gres/gpu=8` of what was allocated, else of what was asked for; of
  `gres/gpu:a100=8` alone the models are added up. GRES of old versions: `gpu:a100:8` is
  for the job in AllocGRES, for each of NNodes in ReqGRES.
- Jobs without GPUs, jobs that never started, jobs that still run and rows of steps are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

from simulator.traces.formats.columns import Row, read_table
from simulator.traces.formats.jsonarray import elements, object_of
from simulator.traces.formats.times import instant_ns, is_unknown, span_ns
from simulator.traces.record import (
    SECOND_NS,
    BadRecord,
    FieldError,
    Lines,
    NothingToReplay,
    TraceJob,
    TraceOutcome,
    count,
    read_records,
)

NEEDED = ("Submit", "State")
ID_COLUMNS = ("JobID", "JobIDRaw")
GPU_COLUMNS = ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES")
TIME_COLUMNS = ("ElapsedRaw", "Elapsed", "End")
COLUMNS = (
    *("Submit", "State", "Start", "ElapsedRaw", "Elapsed", "End", "Timelimit", "NNodes"),
    *("User", "Account", "Partition", *ID_COLUMNS, *GPU_COLUMNS),
)
TRES = re.compile(r"gres/gpu(?::([^=,]+))?=(\d{1,9})(?=,|$)")
GRES = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?::[^:,()]+)*?(?::(\d{1,9}))?(?:\([^)]*\))?(?=,|$)")
NO_LIMIT = ("UNLIMITED", "Partition_Limit", "INVALID")
OUTCOMES = {
    "COMPLETED": TraceOutcome.COMPLETED,
    "CANCELLED": TraceOutcome.CANCELLED,
    "PREEMPTED": TraceOutcome.CANCELLED,
    "REVOKED": TraceOutcome.CANCELLED,
    **dict.fromkeys(
        ("FAILED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "DEADLINE"),
        TraceOutcome.FAILED,
    ),
}
UNFINISHED = ("PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING", "COMPLETING")


def read(
    lines: Lines, gpus_per_node: int = 0, columns: Sequence[str] = ()
) -> Iterator[TraceJob | BadRecord]:
    """Yield the jobs of a table from Slurm's sacct in the order of the file. `gpus_per_node`: held
    on each node by jobs that name no GPU, 0 for none. `columns`: of a file without a header, as
    sacct's --format was given them.

    Raises: FieldError when the header lacks what a job needs.
    """
    given = iter(lines)
    head = next((each for each in given if each[1].strip()), (0, ""))
    if head[1].lstrip().startswith("{"):
        if columns:
            raise FieldError("header", "is in JSON by itself: name no columns")
        rows = elements(chain([head], given), "jobs")
        yield from read_records(rows, lambda line, job: _job(gpus_per_node, line, _row_of(job)))
        return
    sizes = ("NNodes",) if gpus_per_node else GPU_COLUMNS
    separator = "\t" if "\t" in head[1] and "|" not in head[1] else "|"
    titles = []
    if columns:
        end = separator if head[1].rstrip("\r\n").endswith(separator) else ""
        ends = end * (head[1].count(separator) == len(columns))  # `sacct -p`
        titles = [(0, separator.join(columns) + ends)]
    elif head[1].strip():
        _check_header(*head, separator)
    needed = (ID_COLUMNS, sizes, TIME_COLUMNS, *NEEDED)
    rows = chain(titles, [head], given)
    yield from read_table(rows, partial(_job, gpus_per_node), needed, separator)


def _row_of(value: Any) -> Row:
    """Return a job of JSON as a row of `sacct -P` has it."""
    job = object_of(value, "jobs")
    times, tres, state = (object_of(job.get(key) or {}, key) for key in ("time", "tres", "state"))
    states = state.get("current") or "UNKNOWN"
    minutes = _number_of(times.get("limit"))
    return {
        "JobID": str(job.get("job_id", "")),
        "User": str(job.get("user") or ""),
        "Account": str(job.get("account") or ""),
        "Partition": str(job.get("partition") or ""),
        "State": str(states[0] if isinstance(states, list) else states),
        "Submit": str(_number_of(times.get("submission"))),
        "Start": str(_number_of(times.get("start")) or "Unknown"),
        "End": str(_number_of(times.get("end")) or "Unknown"),
        "ElapsedRaw": str(_number_of(times.get("elapsed"))),
        "Timelimit": f"{minutes // 60}:{minutes % 60:02}:00" if minutes else "UNLIMITED",
        "NNodes": str(_number_of(job.get("allocation_nodes"))),
        "AllocTRES": _tres_of(tres.get("allocated")),
        "ReqTRES": _tres_of(tres.get("requested")),
    }


def _number_of(value: Any) -> int:
    """Return the number, or that of {"set": true, "number": 7}; 0 where there is none."""
    if isinstance(value, dict):
        is_number = value.get("set", True) and not value.get("infinite")
        value = value.get("number") if is_number else None
    return value if isinstance(value, int) else 0


def _tres_of(entries: Any) -> str:
    """Return `gres/gpu=8,...` of a list of {"type": "gres", "name": "gpu", "count": 8}."""
    found = []
    for each in entries if isinstance(entries, list) else ():
        entry = object_of(each, "tres")
        name = "/".join(str(entry[key]) for key in ("type", "name") if entry.get(key))
        found.append(f"{name}={_number_of(entry.get('count'))}")
    return ",".join(found)


def named_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return names as sacct heads its columns with: `jobid%20` is JobID. Unknown ones stay."""
    known = {name.lower(): name for name in COLUMNS}
    plain = (name.strip().partition("%")[0] for name in names)
    return tuple(known.get(name.lower(), name) for name in plain)


def _check_header(line: int, text: str, separator: str) -> None:
    """Refuse a header of no columns of sacct, with the way to name them. Raises: FieldError."""
    if {*COLUMNS} & {*text.strip().split(separator)}:
        return
    if {*COLUMNS} & {*text.split()}:
        raise FieldError("header", "has blanks between names: run sacct -P", text[:200], line)
    hint = "--columns JobID,User,..., as sacct's --format had them, stands for it"
    raise FieldError("header", f"is missing: {hint}", text[:200], line)


def _job(gpus_per_node: int, line: int, row: Row) -> TraceJob:
    id_column = next(name for name in ID_COLUMNS if name in row)
    if "." in row[id_column]:
        raise NothingToReplay(id_column, "is a step of a job, not a job")
    if not row[id_column]:
        raise FieldError(id_column, "is empty")
    state = row["State"].partition(" ")[0].rstrip("+")
    if state in UNFINISHED or is_unknown(row.get("Start", "?")):
        raise NothingToReplay("State", "says that it never ran or still runs")
    return TraceJob(
        id=row[id_column],
        submit_ns=_instant_ns(row, "Submit"),
        run_ns=_run_ns(row),
        line=line,
        gpus=_gpus(row, gpus_per_node),
        time_limit_ns=_limit_ns(row.get("Timelimit", "")),
        user=row.get("User", ""),
        queue=row.get("Partition", ""),
        account=row.get("Account", ""),
        outcome=OUTCOMES.get(state, TraceOutcome.UNKNOWN),
    )


def _instant_ns(row: Row, name: str) -> int:
    text = row[name]
    return count(text, name) * SECOND_NS if text.isdigit() else instant_ns(text, name)


def _run_ns(row: Row) -> int:
    if row.get("ElapsedRaw"):
        run_ns = count(row["ElapsedRaw"], "ElapsedRaw") * SECOND_NS
    elif row.get("Elapsed"):
        run_ns = span_ns(row["Elapsed"], "Elapsed")
    elif is_unknown(row.get("End", "")) or "Start" not in row:
        raise NothingToReplay("End", "is unknown: it had not ended")
    else:
        run_ns = _instant_ns(row, "End") - _instant_ns(row, "Start")
    if run_ns < 0:
        raise FieldError("Elapsed", "must not be negative", f"{run_ns / SECOND_NS:g}")
    return run_ns


def _gpus(row: Row, gpus_per_node: int) -> int:
    for name in GPU_COLUMNS:
        gpus = _of_tres(row.get(name, "")) if "TRES" in name else _of_gres(row.get(name, ""))
        if gpus:
            return gpus * (_nodes(row) if name == "ReqGRES" else 1)
    if gpus_per_node:
        return gpus_per_node * _nodes(row)
    hint = "; --columns gpus_per_node=8 gives each of its nodes so many" if "NNodes" in row else ""
    raise NothingToReplay("AllocTRES", f"names no GPU{hint}")


def _of_tres(text: str) -> int:
    by_model = dict(TRES.findall(text))
    return int(by_model[""]) if "" in by_model else sum(map(int, by_model.values()))


def _of_gres(text: str) -> int:
    return sum(int(number or 1) for number in GRES.findall(text))


def _nodes(row: Row) -> int:
    return max(1, count(row.get("NNodes") or "1", "NNodes"))


def _limit_ns(text: str) -> int | None:
    if is_unknown(text) or text in NO_LIMIT:
        return None
    return span_ns(text, "Timelimit") or None
