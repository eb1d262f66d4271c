"""Slurm's accounting: columns by name, ways to write GPUs and times, rows that are no jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.files.errors import InputError
from simulator.traces.load import find_format
from simulator.traces.record import SECOND_NS, TraceJob, TraceOutcome
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


def test_raw_job_ids_are_ids(tmp_path: Path) -> None:
    row = {"JobIDRaw" if key == "JobID" else key: text for key, text in ROW.items()}
    (job,), told = read(tmp_path, row)
    assert (job.id, told) == ("123_4", [])
    none = {key: text for key, text in ROW.items() if key != "JobID"}
    with pytest.raises(InputError, match="must name JobID or JobIDRaw"):
        read(tmp_path, none)


def test_cells_may_stand_between_tabs(tmp_path: Path) -> None:
    text = "\t".join(ROW) + "\n" + "\t".join(ROW.values()) + "\n"
    (job,), told = read_text(tmp_path, "slurm-sacct", text)
    assert (job.gpus, told) == (16, [])


def test_a_dump_without_header_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="header: is missing: run sacct without --noheader"):
        read_text(tmp_path, "slurm-sacct", "|".join(ROW.values()) + "\n")


def test_gpus_a_node_may_be_said_where_the_site_counts_none(tmp_path: Path) -> None:
    row = {**ROW, "AllocTRES": "billing=64,cpu=64,node=2"}
    _, told = read(tmp_path, row)
    assert "--columns gpus_per_node=8 gives each of its nodes so many" in told[0]
    lines = list(enumerate(["|".join(row), "|".join(row.values())], 1))
    (job,) = find_format("slurm-sacct", "gpus_per_node=4").read(lines)
    assert isinstance(job, TraceJob)
    assert job.gpus == 8
    for wrong in ("gpus=4", "gpus_per_node=0", "gpus_per_node=x"):
        with pytest.raises(InputError, match="must be gpus_per_node=N"):
            find_format("slurm-sacct", wrong)


def test_fields(tmp_path: Path) -> None:
    assert only(tmp_path) == TraceJob(
        id="123_4",
        submit_ns=1_772_359_200 * SECOND_NS,
        run_ns=7200 * SECOND_NS,
        line=2,
        gpus=16,
        time_limit_ns=26 * 3600 * SECOND_NS,
        user="ann",
        queue="gpu",
        account="nlp",
        outcome=TraceOutcome.COMPLETED,
    )


@pytest.mark.parametrize(
    ("columns", "gpus"),
    [
        ({"AllocTRES": "gres/gpu=16,gres/gpu:a100=16"}, 16),
        ({"AllocTRES": "gres/gpu:a100=8,gres/gpu:h100=4,gres/gpumem=80G"}, 12),
        ({"AllocTRES": "", "ReqTRES": "gres/gpu=8"}, 8),
        ({"AllocTRES": "", "AllocGRES": "gpu:16"}, 16),
        ({"AllocTRES": "", "AllocGRES": "craynetwork:1,gpu:a100:16(IDX:0-7)"}, 16),
        ({"AllocTRES": "", "ReqGRES": "gpu:v100:4"}, 8),  # each of two nodes
        ({"AllocTRES": "", "ReqGRES": "gpu"}, 2),
    ],
)
def test_gpus_in_every_notation(tmp_path: Path, columns: dict[str, str], gpus: int) -> None:
    assert only(tmp_path, **columns).gpus == gpus


@pytest.mark.parametrize(
    ("columns", "run_s"),
    [
        ({"ElapsedRaw": "", "Elapsed": "1-00:00:01"}, 86_401),
        ({"ElapsedRaw": "", "Elapsed": "05:07"}, 307),
        ({"ElapsedRaw": ""}, 7200),  # End - Start
    ],
)
def test_run_times_in_every_notation(tmp_path: Path, columns: dict[str, str], run_s: int) -> None:
    assert only(tmp_path, **columns).run_ns == run_s * SECOND_NS


@pytest.mark.parametrize("limit", ["UNLIMITED", "Partition_Limit", "", "Unknown"])
def test_no_time_limit(tmp_path: Path, limit: str) -> None:
    assert only(tmp_path, Timelimit=limit).time_limit_ns is None


def test_seconds_since_1970_are_a_time(tmp_path: Path) -> None:
    assert only(tmp_path, Submit="1772359200").submit_ns == 1_772_359_200 * SECOND_NS


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ("CANCELLED by 1001", TraceOutcome.CANCELLED),
        ("CANCELLED+", TraceOutcome.CANCELLED),
        ("TIMEOUT", TraceOutcome.FAILED),
        ("NODE_FAIL", TraceOutcome.FAILED),
    ],
)
def test_states_may_carry_a_suffix(tmp_path: Path, state: str, outcome: TraceOutcome) -> None:
    assert only(tmp_path, State=state).outcome is outcome


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
        ({"User": "a|b"}, "2: columns: must be as many as in the header, not '13'"),
    ],
)
def test_rows_that_are_not_replayed(tmp_path: Path, changed: dict[str, str], told: str) -> None:
    jobs, (fault, *_) = read(tmp_path, {**ROW, **changed})

    assert jobs == []
    assert fault.startswith(told)


@pytest.mark.parametrize(
    ("without", "told"),
    [
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
