"""Slurm's accounting: columns by name, ways to write GPUs and times, rows that are no jobs."""

import json
from pathlib import Path
from typing import Any

import pytest

from muster.structs import replace
from scheduler.files.errors import InputError
from simulator.traces.load import find_format
from simulator.traces.record import SECOND_NS, TraceJob, TraceOutcome
from tests.replays import trace_job
from tests.tracefiles import read_text

ROW = {
    "JobID": "123_4",
    "User": "ann",
    "Account": "nlp",
    "Partition": "gpu",
    "State": "COMPLETED",
    "Submit": "2026-03-01T10:00:00",
    "Start": "2026-03-01T10:05:00",
    "End": "2026-03-01T12:05:00",
    "ElapsedRaw": "7200",
    "Timelimit": "1-02:00:00",
    "NNodes": "2",
    "AllocTRES": "billing=64,cpu=64,gres/gpu=16,mem=1T,node=2",
}


def read(tmp_path: Path, *rows: dict[str, str]) -> tuple[list[TraceJob], list[str]]:
    lines = ["|".join(rows[0]), *("|".join(row.values()) for row in rows)]
    return read_text(tmp_path, "slurm-sacct", "\n".join(lines) + "\n")


def only(tmp_path: Path, **changed: str) -> TraceJob:
    (job,), told = read(tmp_path, {**ROW, **changed})
    assert told == []
    return job


def test_raw_job_ids_are_ids_and_cells_may_stand_between_tabs(tmp_path: Path) -> None:
    row = {"JobIDRaw" if key == "JobID" else key: text for key, text in ROW.items()}
    text = "\t".join(row) + "\n" + "\t".join(row.values()) + "\n"
    for (job,), told in (read(tmp_path, row), read_text(tmp_path, "slurm-sacct", text)):
        assert (job.id, job.gpus, told) == ("123_4", 16, [])


@pytest.mark.parametrize(
    ("text", "columns", "told"),
    [
        ("|".join(ROW.values()), None, "header: is missing: --columns JobID,User"),
        ("JobID      State\n----- -----", None, "header: has blanks between names: run sacct -P"),
        ('{"nodes": []}', None, "jobs: is no array of the file"),
        ('{"jobs": []}', "JobID,State", "header: is in JSON by itself: name no columns"),
        ("", "submit=3", "--columns: with slurm-sacct must be gpus_per_node=N or"),
        *(("", f"gpus{each}", "must be gpus_per_node=N") for each in ("=4", "_per_node=0")),
    ],
)
def test_dumps_that_cannot_be_read(
    tmp_path: Path, text: str, columns: str | None, told: str
) -> None:
    with pytest.raises(InputError, match=told):
        read_text(tmp_path, "slurm-sacct", f"{text}\n", columns)


@pytest.mark.parametrize("end", ["", "|"])
def test_the_columns_of_a_dump_without_header_can_be_given(tmp_path: Path, end: str) -> None:
    columns = ",".join(f"{name.lower()}%20" for name in ROW)
    row = "|".join(ROW.values()) + end
    jobs, told = read_text(tmp_path, "slurm-sacct", f"{row}\n{row}\n", columns)
    assert [(job.gpus, job.user, job.line) for job in jobs] == [(16, "ann", 1), (16, "ann", 2)]
    assert told == []


JOB = {
    "job_id": 7,
    **{"user": "ann", "account": "nlp", "partition": "gpu", "allocation_nodes": 2},
    "state": {"current": ["FAILED"], "reason": "None"},
    "time": {
        **{"submission": 1772359200, "start": 1772359500, "end": 1772366700, "elapsed": 7200},
        "limit": {"set": True, "infinite": False, "number": 1560},
    },
    "tres": {
        "allocated": [
            {"type": "cpu", "name": "", "count": 64},
            {"type": "gres", "name": "gpu", "count": 16},
            {"type": "gres", "name": "gpu:a100", "count": 16},
        ]
    },
    "steps": [{"state": ["FAILED"]}],
}


@pytest.mark.parametrize("indent", [None, 2])
def test_accounting_as_json(tmp_path: Path, indent: int | None) -> None:
    waits = {**JOB, "state": {"current": "PENDING"}, "time": {"submission": 1772359200}}
    file = {"meta": {"jobs": 3}, "jobs": [JOB, waits, {"job_id": 9}], "errors": ["]"]}
    jobs, told = read_text(tmp_path, "slurm-sacct", json.dumps(file, indent=indent) + "\n")
    (job,) = jobs
    assert (job.id, job.gpus, job.run_ns // SECOND_NS, job.outcome) == (
        "7", 16, 7200, TraceOutcome.FAILED
    )  # fmt: skip
    assert job == replace(only(tmp_path, JobID="7", State="FAILED"), line=job.line)
    assert [each.split(": ", 1)[1] for each in told] == [
        "State: says that it never ran or still runs"
    ] * 2


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (7, "jobs: must be a JSON object"),
        ({**JOB, "time": 7}, "time: must be a JSON object"),
        ({**JOB, "state": "FAILED"}, "state: must be a JSON object"),
        ({**JOB, "tres": {"allocated": ["gpu"]}}, "tres: must be a JSON object"),
    ],
)
def test_json_of_another_shape_is_a_wrong_record(tmp_path: Path, job: Any, words: str) -> None:
    jobs, (told,) = read_text(tmp_path, "slurm-sacct", json.dumps({"jobs": [job, JOB]}))
    assert len(jobs) == 1
    assert words in told


def test_gpus_a_node_may_be_said_where_the_site_counts_none(tmp_path: Path) -> None:
    row = {**ROW, "AllocTRES": "billing=64,cpu=64,node=2"}
    _, told = read(tmp_path, row)
    assert "--columns gpus_per_node=8 gives each of its nodes so many" in told[0]
    lines = list(enumerate(["|".join(row), "|".join(row.values())], 1))
    (job,) = find_format("slurm-sacct", "gpus_per_node=4").read(lines)
    assert isinstance(job, TraceJob)
    assert job.gpus == 8


def test_fields(tmp_path: Path) -> None:
    known = trace_job("123_4", 1_772_359_200, 7200, 16, limit_s=26 * 3600, line=2)
    assert only(tmp_path) == replace(
        known, user="ann", queue="gpu", account="nlp", outcome=TraceOutcome.COMPLETED
    )


@pytest.mark.parametrize(
    ("columns", "field", "value"),
    [
        ({"AllocTRES": "gres/gpu=16,gres/gpu:a100=16"}, "gpus", 16),
        ({"AllocTRES": "gres/gpu:a100=8,gres/gpu:h100=4,gres/gpumem=80G"}, "gpus", 12),
        ({"AllocTRES": "", "ReqTRES": "gres/gpu=8"}, "gpus", 8),
        ({"AllocTRES": "", "AllocGRES": "gpu:16"}, "gpus", 16),
        ({"AllocTRES": "", "AllocGRES": "craynetwork:1,gpu:a100:16(IDX:0-7)"}, "gpus", 16),
        ({"AllocTRES": "", "ReqGRES": "gpu:v100:4"}, "gpus", 8),  # each of two nodes
        ({"AllocTRES": "", "ReqGRES": "gpu"}, "gpus", 2),
        ({"ElapsedRaw": "", "Elapsed": "1-00:00:01"}, "run_ns", 86_401 * SECOND_NS),
        ({"ElapsedRaw": "", "Elapsed": "05:07"}, "run_ns", 307 * SECOND_NS),
        ({"ElapsedRaw": ""}, "run_ns", 7200 * SECOND_NS),  # End - Start
        ({"Timelimit": "UNLIMITED"}, "time_limit_ns", None),
        ({"Timelimit": "Partition_Limit"}, "time_limit_ns", None),
        ({"Timelimit": "Unknown"}, "time_limit_ns", None),
        ({"Submit": "1772359200"}, "submit_ns", 1_772_359_200 * SECOND_NS),
        ({"State": "CANCELLED by 1001"}, "outcome", TraceOutcome.CANCELLED),
        ({"State": "CANCELLED+"}, "outcome", TraceOutcome.CANCELLED),
        ({"State": "TIMEOUT"}, "outcome", TraceOutcome.FAILED),
        ({"State": "NODE_FAIL"}, "outcome", TraceOutcome.FAILED),
    ],
)
def test_cells_in_every_notation(
    tmp_path: Path, columns: dict[str, str], field: str, value: object
) -> None:
    assert getattr(only(tmp_path, **columns), field) == value


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"JobID": "123.batch"}, "left out 2: JobID: is a step of a job, not a job"),
        ({"State": "RUNNING", "End": "Unknown"}, "left out 2: State: says that it never ran or"),
        ({"State": "CANCELLED", "Start": "None"}, "left out 2: State: says that it never ran or"),
        ({"AllocTRES": "cpu=4"}, "left out 2: AllocTRES: names no GPU"),
        ({"ElapsedRaw": "", "End": "Unknown"}, "left out 2: End: is unknown"),
        ({"JobID": ""}, "2: JobID: is empty"),
        ({"Submit": "Sunday"}, "2: Submit: must be YYYY-MM-DD HH:MM:SS, not 'Sunday'"),
        ({"ElapsedRaw": "-1"}, "2: Elapsed: must not be negative: '-1'"),
        ({"Timelimit": "2 hours"}, "2: Timelimit: must be [D-]HH:MM:SS, not '2 hours'"),
    ],
)
def test_rows_that_are_not_replayed(tmp_path: Path, changed: dict[str, str], told: str) -> None:
    jobs, (fault, *_) = read(tmp_path, {**ROW, **changed})

    assert jobs == []
    assert fault.startswith(told)


@pytest.mark.parametrize(
    ("without", "told"),
    [
        (("JobID",), "must name JobID or JobIDRaw"),
        (("Submit",), "must name the column Submit"),
        (("AllocTRES",), "must name AllocTRES or ReqTRES or AllocGRES or ReqGRES"),
        (("ElapsedRaw", "End"), "must name ElapsedRaw or Elapsed or End"),
    ],
)
def test_a_header_without_what_a_job_needs(
    tmp_path: Path, without: tuple[str, ...], told: str
) -> None:
    with pytest.raises(InputError, match=f"trace:1: header: {told}"):
        read(tmp_path, {name: cell for name, cell in ROW.items() if name not in without})
