"""Philly's own log: attempts, time zone, missing times, and arrays that break off."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from muster.structs import replace
from scheduler.files.errors import InputError
from simulator.traces import load
from simulator.traces.formats import jsonarray
from simulator.traces.record import SECOND_NS, TraceJob, TraceOutcome
from tests.replays import trace_job
from tests.tracefiles import read_text

HOUR_NS = 3600 * SECOND_NS


def attempt(start: str | None, end: str | None, *gpus: int) -> dict[str, Any]:
    """One attempt on a host for each number of GPUs."""
    detail = [{"ip": f"m{i}", "gpus": [f"gpu{j}" for j in range(n)]} for i, n in enumerate(gpus)]
    return {"start_time": start, "end_time": end, "detail": detail}


def job(*attempts: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {
        "status": "Pass",
        "vc": "11cb48",
        "jobid": "application_1_2",
        "user": "ab",
        "submitted_time": "2017-10-09 07:00:00",
        "attempts": list(attempts),
    } | changed


def read(tmp_path: Path, *jobs: Any, indent: int | None = 1) -> tuple[list[TraceJob], list[str]]:
    return read_text(tmp_path, "philly-json", json.dumps(jobs, indent=indent))


HOUR = attempt("2017-10-09 08:00:00", "2017-10-09 09:00:00", 4, 4)


def test_fields(tmp_path: Path) -> None:
    (found,), told = read(tmp_path, job(HOUR))

    assert told == []
    submit = datetime(2017, 10, 9, 14, 0, tzinfo=UTC)  # 7:00 in summer on the Pacific coast
    known = trace_job("application_1_2", submit.timestamp(), 3600, 8, line=2)
    assert found == replace(known, user="ab", queue="11cb48", outcome=TraceOutcome.COMPLETED)


def test_gpu_seconds_of_all_attempts_are_kept(tmp_path: Path) -> None:
    small = attempt("2017-10-09 07:00:00", "2017-10-09 07:30:00", 2)
    (found,), _ = read(tmp_path, job(small, HOUR, status="Failed"))

    assert found.gpus == 8
    assert found.gpus * found.run_ns == 8 * HOUR_NS + 2 * HOUR_NS // 2
    assert found.outcome is TraceOutcome.FAILED


def test_the_clock_goes_back_during_a_job(tmp_path: Path) -> None:
    autumn = attempt("2017-11-05 00:30:00", "2017-11-05 02:30:00", 1)
    spring = attempt("2018-03-11 01:30:00", "2018-03-11 03:30:00", 1)
    found, _ = read(tmp_path, job(autumn), job(spring))

    assert [one.run_ns // HOUR_NS for one in found] == [3, 1]


@pytest.mark.parametrize("missing", [None, "", "None"])
def test_attempts_that_never_started_do_not_count(tmp_path: Path, missing: str | None) -> None:
    (found,), told = read(tmp_path, job(HOUR, attempt(missing, missing, 16)))

    assert told == []
    assert (found.gpus, found.run_ns) == (8, HOUR_NS)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ([], "left out 2: attempts: none started"),
        ([HOUR, attempt("2017-10-09 10:00:00", None, 8)], "left out 2: attempts: the last had not"),
        ([{**HOUR, "detail": []}], "left out 2: attempts: none held"),
        (
            [{**HOUR, "end_time": "2017-10-09 07:00:00"}],
            "2: attempts: an end is before its start: '2017-10-09 07:00:00'",
        ),
        ([attempt("yesterday", None, 1)], "2: attempts.0.start_time: must be YYYY-MM-DD HH:MM:SS"),
        ([{**HOUR, "detail": 7}], "2: attempts.0.detail: must be a JSON array, not '7'"),
        (["x"], "2: attempts.0: must be a JSON object, not 'x'"),
        ({"jobid": None}, "2: jobid: must be a text"),
        ({"submitted_time": None}, "2: submitted_time: is missing"),
        ({"submitted_time": "1917-10-09 07:00:00"}, "2: submitted_time: must not be before 1970"),
    ],
)
def test_jobs_that_cannot_be_replayed(tmp_path: Path, changed: Any, told: str) -> None:
    wrong = job(HOUR, **changed) if isinstance(changed, dict) else job(*changed)
    found, (fault,) = read(tmp_path, wrong)

    assert found == []
    assert fault.startswith(told)


@pytest.mark.parametrize("indent", [None, 0, 4])
def test_layout_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indent: int | None
) -> None:
    jobs = [job(HOUR, jobid=f'a "{i}" ] }} \\ ü') for i in range(20)]
    whole, _ = read(tmp_path, *jobs, indent=indent)
    monkeypatch.setattr(load, "PIECE_BYTES", 7)  # strings and characters come in pieces
    pieces, told = read(tmp_path, *jobs, indent=indent)

    assert told == []
    assert [one.id for one in pieces] == [one["jobid"] for one in jobs]
    assert pieces == whole


def test_a_bad_element_costs_no_other(tmp_path: Path) -> None:
    good = json.dumps(job(HOUR))
    found, told = read_text(
        tmp_path, "philly-json", f'[\n{good},\n{{"a": tru}},\n7,\n"a\n",\n{good}]\n'
    )

    assert [one.line for one in found] == [2, 7]
    assert [line.partition(",")[0] for line in told] == [
        "3: record: must be JSON",
        "4: record: must be a JSON object",
        "5: record: must be JSON",
    ]
    assert read_text(tmp_path, "philly-json", " [ ]\n") == ([], [])


@pytest.mark.parametrize(
    "text", ["", "{}", "[1] 2", "[1][2]", "]", '[{"a": "b', "[{}, ", "[[1}, {}", "x[1]"]
)
def test_what_is_no_array_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="must be one JSON array"):
        read_text(tmp_path, "philly-json", text)


def test_an_element_without_end_does_not_eat_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonarray, "MOST_CHARACTERS", 100)

    with pytest.raises(InputError, match="record: is longer than 100 characters"):
        read_text(tmp_path, "philly-json", "[[" + "1,\n" * 100)
