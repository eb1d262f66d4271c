"""The readers of traces: each format's fields and traps, and how bad records are told."""

import gzip
import json
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from math import sqrt
from pathlib import Path
from random import Random
from typing import Any

import pytest

from muster.structs import replace
from scheduler.files.errors import InputError
from simulator.experiment import Experiment, TraceSource
from simulator.run import run
from simulator.traces import load, sorting
from simulator.traces.formats import jsonarray
from simulator.traces.formats.gavel import RATE
from simulator.traces.load import FORMATS, TraceFile, find_format
from simulator.traces.record import SECOND_NS, TraceJob, TraceOutcome
from tests.replays import machine, trace_job
from tests.tracefiles import read_text

SWF_HEADER = "; Version: 2.2\n; UnixStartTime: 1000\n; MaxProcs: 128\n;\n"


def swf(tmp_path: Path, *rows: str, header: str = SWF_HEADER) -> tuple[list[TraceJob], list[str]]:
    return read_text(tmp_path, "swf", header + "".join(f"{row}\n" for row in rows))


# --- SWF -----------------------------------------------------------------------


def test_swf_fields(tmp_path: Path) -> None:
    row = "4 179350 99808 143967 2 142977 -1 3 144000 -1 1 7 1 -1 5 1 -1 -1"
    jobs, told = swf(tmp_path, row)

    assert told == []
    known = trace_job("4", 180_350, 143_967, 3, limit_s=144_000, line=5)
    assert jobs == [replace(known, user="7", queue="5")]


@pytest.mark.parametrize("status", ["2", "3", "4"])
def test_swf_parts_of_a_job_that_was_swapped_out_are_no_jobs(tmp_path: Path, status: str) -> None:
    whole = "1 0 10 300 8 -1 -1 8 3600 -1 1 5 2 -1 1 0 -1 -1"
    part = f"1 -1 10 100 8 -1 -1 8 3600 -1 {status} 5 2 -1 1 0 -1 -1"
    jobs, told = swf(tmp_path, whole, part, header="")
    assert [job.run_ns for job in jobs] == [300 * SECOND_NS]
    assert "is a part of a job" in told[0]


def test_swf_without_a_request_takes_what_was_allocated_and_decimals_and_extra_fields_are_read(
    tmp_path: Path,
) -> None:
    row = "1 0 -1 1451 128 -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1"
    more = "0 12.5 0 3.25 64 0.7 1024 64 86400 1 1 62 1 1 -1 1 1 1 {1,2} q_1d 1:ppn=64"
    (job, decimals), told = swf(tmp_path, "", row, "", more, header="")

    assert told == []
    assert (job.gpus, job.time_limit_ns, job.queue) == (128, None, "")
    assert job.submit_ns == 0  # no UnixStartTime: the file's own zero
    assert (decimals.submit_ns, decimals.run_ns) == (12_500_000_000, 3_250_000_000)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("1 0 -1 -1 4 -1 -1 4", "run: must not be negative: '-1'"),
        ("1 0 -1 9 -1 -1 -1 -1", "processors: must be more than 0, not '-1'"),
        ("1 -3 -1 9 4 -1 -1 -1", "submit: must not be negative: '-3'"),
        ("1 0 -1 soon 4 -1 -1 -1", "run: must be a number, not 'soon'"),
        ("1 0 -1 inf 4 -1 -1 -1", "run: must be a finite number below 1e15, not 'inf'"),
        ("x 0 -1 9 4 -1 -1 -1", "job: must be a whole number, not 'x'"),
    ],
)
def test_swf_records_that_cannot_be_replayed(tmp_path: Path, row: str, told: str) -> None:
    rest = "-1 -1 -1 1 1 -1 -1 -1 -1 -1"
    jobs, faults = swf(tmp_path, f"{row} {rest}", "1 0 -1 9 4", f"2 5 -1 9 4 -1 -1 -1 {rest}")

    assert faults == [f"5: {told}", "6: fields: must be 18 numbers, not '5'"]
    assert [job.id for job in jobs] == ["2"]


def test_records_out_of_order_are_put_in_order_within_a_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = "{} {} -1 5 1 -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1"
    jobs, told = swf(tmp_path, *(row.format(i, 9 - i) for i in range(9)))
    assert told == []
    assert [job.id for job in jobs] == [str(i) for i in reversed(range(9))]

    monkeypatch.setattr(load, "WINDOW", 2)
    jobs, told = swf(tmp_path, *(row.format(i, t) for i, t in enumerate((10, 20, 30, 40, 5))))
    assert [job.id for job in jobs] == ["0", "1", "2", "3"]
    assert told == ["9: submit: is more than 2 records out of order"]


# --- muster --------------------------------------------------------------------

GANG = '"parallelism": {"tp": 8, "dp": 2}'
RUN = '"submit_s": 0, "run_s": 1'


def test_muster_jobs_keep_their_shape(tmp_path: Path) -> None:
    text = (
        "# a comment\n"
        '{"submit_s": 1.5, "run_s": 60, "name": "llm", "priority": 7, "time_limit_s": 90,'
        f' "traffic": {{"dp": 5}}, "spares": 1, {GANG}}}\n{{{RUN}, {GANG}}}\n'
    )
    (nameless, job), told = read_text(tmp_path, "muster", text)

    assert (told, nameless.id) == ([], "line-3")
    assert (job.id, job.priority, job.gpus) == ("llm", 7, 16)
    assert (job.submit_ns, job.run_ns, job.time_limit_ns) == (1.5e9, 60e9, 90e9)
    assert job.spec.request.traffic == (("dp", 5),)
    assert job.spec.request.spares.hosts == 1


def test_a_muster_job_may_be_a_size(tmp_path: Path) -> None:
    text = (
        '{"submit_s": 1, "run_s": 60, "gpus": 24, "name": "a", "user": "ann", "queue": "q",'
        ' "account": "nlp", "outcome": "failed", "priority": 3, "time_limit_s": 90}'
    )
    (job,), told = read_text(tmp_path, "muster", text)

    assert told == []
    known = trace_job("a", 1, 60, 24, limit_s=90, priority=3, line=1)
    assert job == replace(known, user="ann", queue="q", account="nlp", outcome=TraceOutcome.FAILED)


def test_muster_records_that_cannot_be_replayed(tmp_path: Path) -> None:
    wrong = {
        "[" * 100_000: "line: must be JSON",
        "[1]": "line: must be a JSON object",
        f'{{{RUN}, "run_s": 2}}': "run_s: is given twice",
        f'{{"run_s": 1, {GANG}}}': "submit_s: must be a number of seconds, not 'None'",
        f'{{"submit_s": 0, "run_s": -1, {GANG}}}': "run_s: must not be negative",
        f'{{"submit_s": -1, "run_s": 1, {GANG}}}': "submit_s: must not be negative",
        f"{{{RUN}}}": "parallelism: is required",
        f'{{{RUN}, "parallelism": {{"dp": 0}}}}': "parallelism.dp: ",
        f'{{{RUN}, "color": 1, {GANG}}}': "color: unknown key",
        f'{{{RUN}, "gpus": true}}': "gpus: must be a whole number from 1, not 'True'",
        f'{{{RUN}, "gpus": 8, {GANG}}}': "parallelism: does not go with gpus",
        f'{{{RUN}, "gpus": 8, "priority": "high"}}': "priority: ",
        f'{{{RUN}, {GANG}, "outcome": "fine"}}': "outcome: must be completed, cancelled or",
        f'{{{RUN}, {GANG}, "user": 5}}': "user: must be a text, not '5'",
    }
    jobs, faults = read_text(tmp_path, "muster", "\n".join(wrong) + "\n")

    assert jobs == []
    for line, (fault, told) in enumerate(zip(faults, wrong.values(), strict=True), 1):
        assert fault.startswith(f"{line}: {told}")


# --- files ---------------------------------------------------------------------

JOB = b"1 0 -1 9 4 -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1\n"


def read_bytes(path: Path, content: bytes) -> list[TraceJob]:
    path.write_bytes(content)
    return list(TraceFile(path, find_format("swf"), lambda *_: None))


def test_gzip_is_known_by_its_content(tmp_path: Path) -> None:
    assert [job.id for job in read_bytes(tmp_path / "no-suffix", gzip.compress(JOB))] == ["1"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (gzip.compress(JOB * 500)[:60], r"trace.*cannot be read"),  # torn: no short trace
        (b"; header\n\xff\xfe\x00\n", r"trace:2: cannot be read"),
    ],
    ids=["torn", "no-text"],  # a compressed file says when it was written
)
def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, content: bytes, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_bytes(tmp_path / "trace", content)


# --- gavel's files -------------------------------------------------------------------

TYPE = "ResNet-18 (batch size 128)"
SEVEN = [TYPE, "python3 main.py", "-n", "1", "1168", "30.5", "4"]
TEN = [TYPE, "python3 main.py", "cifar10", "-n", "1", "1168", "4", "1", "-1.000000", "30.5"]
TWELVE = [*TEN[:7], "static", "1", "-1.000000", "77", "30.5"]


def test_arrival_and_size_change_places_and_shockwave_says_how_long_a_job_runs(
    tmp_path: Path,
) -> None:
    text = "\n".join("\t".join(fields) for fields in (SEVEN, TEN, TWELVE))
    jobs, told = read_text(tmp_path, "gavel", text)

    rated_ns = pytest.approx(1168 / RATE[TYPE] / sqrt(4) * SECOND_NS)
    assert told == []
    assert [job.run_ns for job in jobs] == [rated_ns, rated_ns, 77 * SECOND_NS]
    assert {(job.queue, job.gpus, job.submit_ns) for job in jobs} == {(TYPE, 4, 30_500_000_000)}
    assert jobs[0].id == "line-1"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({0: "GPT-9"}, "1: job_type: must be one whose rate is known, not 'GPT-9'"),
        ({4: "-5"}, "1: total_steps: must not be negative"),
        ({5: "-1"}, "1: arrival_time: must not be negative: '-1'"),
        ({6: "0"}, "1: GPUs: must be more than 0, not '0'"),
    ],
)
def test_jobs_that_cannot_be_replayed(tmp_path: Path, change: dict[int, str], told: str) -> None:
    fields = [change.get(i, field) for i, field in enumerate(SEVEN)]
    jobs, (fault, few) = read_text(
        tmp_path, "gavel", "\t".join(fields) + "\n" + "\t".join(SEVEN[:5])
    )

    assert jobs == []
    assert fault.startswith(told)
    assert few == "2: fields: must be 7, 10 or 12 between tabs, not '5'"


# --- every reader on a file of any length --------------------------------------------

LINES = sorted(name for name, one in FORMATS.items() if one.is_lines)
PAI = "j1,worker,1,Terminated,100,160,600,29,{},V100\n"


@pytest.mark.parametrize("name", LINES)
def test_a_line_without_end_does_not_eat_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(load, "MOST_BYTES", 100)

    with pytest.raises(InputError, match=r"trace:2: line: is longer than 100 bytes"):
        read_text(tmp_path, name, "\n" + "x" * 101)


def test_a_record_with_nothing_to_replay_is_counted_and_what_a_format_assumes_recorded(
    tmp_path: Path,
) -> None:
    path = tmp_path / "pai.csv"
    path.write_text(PAI.format("100") + PAI.format("0") + PAI.format(""))
    warnings: list[str] = []
    experiment = Experiment(machine(2), trace=TraceSource(path, "pai", is_strict=True))
    totals = run(experiment, warn=warnings.append)

    assert totals["completed"] == 1
    assert totals["skipped_by_reason"] == {"plan_gpu is 0: a task of CPUs": 2}
    assert warnings == []
    assert FORMATS["pai"].note in totals["assumptions"]

    path.write_text(PAI.format("0"))
    told = r"pai\.csv: holds no job to replay \(1 left out: plan_gpu is 0: a task of CPUs\)"
    with pytest.raises(InputError, match=told):
        run(experiment)


# --- files in no order, sorted on disk in little memory ------------------------------


def jobs(count: int) -> Iterator[TraceJob]:
    random = Random(3)
    return (trace_job(f"j{i}", random.randrange(count // 2), 1, line=i) for i in range(count))


@pytest.mark.parametrize("run", [1, 7, 100, 1000])
def test_runs_on_disk_and_in_memory_give_one_order(
    monkeypatch: pytest.MonkeyPatch, run: int
) -> None:
    monkeypatch.setattr(sorting, "RUN", run)

    assert list(sorting.by_submit(jobs(100))) == sorted(jobs(100), key=sorting.order)


@pytest.mark.slow
def test_memory_is_a_run_not_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "RUN", 1_000)
    monkeypatch.setattr(sorting, "BATCH", 5)

    def peak(read: Callable[[Iterator[TraceJob]], object]) -> int:
        tracemalloc.start()
        read(jobs(10_000))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert 3 * peak(lambda stream: deque(sorting.by_submit(stream), 1)) < peak(list)


# --- Philly's own log: attempts, time zone, missing times, arrays that break off -----

HOUR_NS = 3600 * SECOND_NS


def attempt(start: str | None, end: str | None, *gpus: int) -> dict[str, Any]:
    """One attempt on a host for each number of GPUs."""
    detail = [{"ip": f"m{i}", "gpus": [f"gpu{j}" for j in range(n)]} for i, n in enumerate(gpus)]
    return {"start_time": start, "end_time": end, "detail": detail}


def philly_job(*attempts: dict[str, Any], **changed: Any) -> dict[str, Any]:
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


def test_philly_fields(tmp_path: Path) -> None:
    (found,), told = read(tmp_path, philly_job(HOUR))

    assert told == []
    submit = datetime(2017, 10, 9, 14, 0, tzinfo=UTC)  # 7:00 in summer on the Pacific coast
    known = trace_job("application_1_2", submit.timestamp(), 3600, 8, line=2)
    assert found == replace(known, user="ab", queue="11cb48", outcome=TraceOutcome.COMPLETED)


def test_gpu_seconds_of_all_attempts_are_kept(tmp_path: Path) -> None:
    small = attempt("2017-10-09 07:00:00", "2017-10-09 07:30:00", 2)
    (found,), _ = read(tmp_path, philly_job(small, HOUR, status="Failed"))

    assert found.gpus == 8
    assert found.gpus * found.run_ns == 8 * HOUR_NS + 2 * HOUR_NS // 2
    assert found.outcome is TraceOutcome.FAILED


def test_the_clock_goes_back_during_a_job(tmp_path: Path) -> None:
    autumn = attempt("2017-11-05 00:30:00", "2017-11-05 02:30:00", 1)
    spring = attempt("2018-03-11 01:30:00", "2018-03-11 03:30:00", 1)
    found, _ = read(tmp_path, philly_job(autumn), philly_job(spring))

    assert [one.run_ns // HOUR_NS for one in found] == [3, 1]


@pytest.mark.parametrize("missing", [None, "", "None"])
def test_attempts_that_never_started_do_not_count(tmp_path: Path, missing: str | None) -> None:
    (found,), told = read(tmp_path, philly_job(HOUR, attempt(missing, missing, 16)))

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
        ({"submitted_time": 5}, "2: submitted_time: must be YYYY-MM-DD HH:MM:SS, not '5'"),
        ({"submitted_time": "1917-10-09 07:00:00"}, "2: submitted_time: must not be before 1970"),
    ],
)
def test_philly_jobs_that_cannot_be_replayed(tmp_path: Path, changed: Any, told: str) -> None:
    wrong = philly_job(HOUR, **changed) if isinstance(changed, dict) else philly_job(*changed)
    found, (fault,) = read(tmp_path, wrong)

    assert found == []
    assert fault.startswith(told)


@pytest.mark.parametrize("indent", [None, 0, 4])
def test_layout_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indent: int | None
) -> None:
    jobs = [philly_job(HOUR, jobid=f'a "{i}" ] }} \\ ü') for i in range(20)]
    whole, _ = read(tmp_path, *jobs, indent=indent)
    monkeypatch.setattr(load, "PIECE_BYTES", 7)  # strings and characters come in pieces
    pieces, told = read(tmp_path, *jobs, indent=indent)

    assert told == []
    assert [one.id for one in pieces] == [one["jobid"] for one in jobs]
    assert pieces == whole


def test_a_bad_element_costs_no_other(tmp_path: Path) -> None:
    good = json.dumps(philly_job(HOUR))
    found, told = read_text(tmp_path, "philly-json", f"[\n{good},\n7,\n\n{good}]\n")

    assert [one.line for one in found] == [2, 5]
    assert [line.partition(",")[0] for line in told] == ["3: record: must be a JSON object"]
    assert read_text(tmp_path, "philly-json", " [ ]\n") == ([], [])


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1] 2", "[1][2]", "]", '[{"a": "b', "[{}, ", "[[1}, {}", "x[1]", "[tru]", "[[}"],
)
def test_what_is_no_array_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="trace:1: file: must be one JSON array"):
        read_text(tmp_path, "philly-json", text)


def test_an_element_without_end_does_not_eat_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonarray, "MOST_CHARACTERS", 100)
    monkeypatch.setattr(jsonarray, "PIECE", 10)
    monkeypatch.setattr(load, "PIECE_BYTES", 10)

    with pytest.raises(InputError, match="record: is longer than 100 characters"):
        read_text(tmp_path, "philly-json", "[[" + "1,\n" * 100)
