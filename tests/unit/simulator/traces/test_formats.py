"""The readers: each format's fields and traps, and how bad records are told."""

import gzip
from math import sqrt
from pathlib import Path

import pytest

from scheduler.files.errors import InputError
from simulator.experiment import Experiment, TraceSource
from simulator.run import run
from simulator.traces import load
from simulator.traces.formats.gavel import RATE
from simulator.traces.load import FORMATS, TraceFile, find_format
from simulator.traces.record import SECOND_NS, BadRecord, TraceJob, TraceOutcome
from tests.replays import machine
from tests.tracefiles import read_text

SWF_HEADER = "; Version: 2.2\n; UnixStartTime: 1000\n; MaxProcs: 128\n;\n"
PHILLY_HEADER = "timestamp,duration,num_gpus,gpu_time,cluster\n"


def read(path: Path, trace_format: str) -> tuple[list[TraceJob], list[str]]:
    """The jobs of a file, and what is told of the others."""
    told: list[str] = []

    def on_bad(_: Path, bad: BadRecord) -> None:
        told.append(f"{bad.line}: {bad.field}: {bad.detail}")

    return list(TraceFile(path, find_format(trace_format), on_bad)), told


def swf(tmp_path: Path, *rows: str, header: str = SWF_HEADER) -> tuple[list[TraceJob], list[str]]:
    path = tmp_path / "t.swf"
    path.write_text(header + "".join(f"{row}\n" for row in rows))
    return read(path, "swf")


def philly(tmp_path: Path, text: str) -> tuple[list[TraceJob], list[str]]:
    path = tmp_path / "philly.csv"
    path.write_text(text)
    return read(path, "philly-csv")


def muster(tmp_path: Path, *rows: str) -> tuple[list[TraceJob], list[str]]:
    path = tmp_path / "t.jsonl"
    path.write_text("".join(f"{row}\n" for row in rows))
    return read(path, "muster")


# --- SWF -----------------------------------------------------------------------


def test_swf_fields(tmp_path: Path) -> None:
    row = "4 179350 99808 143967 2 142977 -1 3 144000 -1 1 7 1 -1 5 1 -1 -1"
    jobs, told = swf(tmp_path, row)

    assert told == []
    assert jobs == [
        TraceJob(
            id="4",
            submit_ns=180_350 * SECOND_NS,
            run_ns=143_967 * SECOND_NS,
            line=5,
            gpus=3,
            time_limit_ns=144_000 * SECOND_NS,
            user="7",
            queue="5",
        )
    ]


@pytest.mark.parametrize("status", ["2", "3", "4"])
def test_swf_parts_of_a_job_that_was_swapped_out_are_no_jobs(tmp_path: Path, status: str) -> None:
    whole = "1 0 10 300 8 -1 -1 8 3600 -1 1 5 2 -1 1 0 -1 -1"
    part = f"1 -1 10 100 8 -1 -1 8 3600 -1 {status} 5 2 -1 1 0 -1 -1"
    jobs, told = swf(tmp_path, whole, part, header="")
    assert [job.run_ns for job in jobs] == [300 * SECOND_NS]
    assert "is a part of a job" in told[0]


def test_swf_without_a_request_takes_what_was_allocated_and_no_limit(tmp_path: Path) -> None:
    row = "1 0 -1 1451 128 -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1"
    (job,), _ = swf(tmp_path, row, header="")

    assert (job.gpus, job.time_limit_ns, job.queue) == (128, None, "")
    assert job.submit_ns == 0  # no UnixStartTime: the file's own zero


def test_swf_decimals_extra_fields_and_empty_lines_are_read(tmp_path: Path) -> None:
    row = "0 12.5 0 3.25 64 0.7 1024 64 86400 1 1 62 1 1 -1 1 1 1 {1,2} q_1d 1:ppn=64"
    (job,), told = swf(tmp_path, "", row, "", header="")

    assert told == []
    assert (job.submit_ns, job.run_ns) == (12_500_000_000, 3_250_000_000)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (
            "1 0 -1 -1 4 -1 -1 4 -1 -1 -1 1 1 -1 -1 -1 -1 -1",
            "5: run: must not be negative: '-1'",
        ),
        (
            "1 0 -1 9 -1 -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1",
            "5: processors: must be more than 0, not '-1'",
        ),
        (
            "1 -3 -1 9 4 -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1",
            "5: submit: must not be negative: '-3'",
        ),
        ("1 0 -1 9 4", "5: fields: must be 18 numbers, not '5'"),
        (
            "1 0 -1 soon 4 -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1",
            "5: run: must be a number, not 'soon'",
        ),
        (
            "1 0 -1 inf 4 -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1",
            "5: run: must be a finite number below 1e15, not 'inf'",
        ),
        (
            "x 0 -1 9 4 -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1",
            "5: job: must be a whole number, not 'x'",
        ),
    ],
)
def test_swf_records_that_cannot_be_replayed(tmp_path: Path, row: str, told: str) -> None:
    good = "2 5 -1 9 4 -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1"
    jobs, faults = swf(tmp_path, row, good)

    assert faults == [told]
    assert [job.id for job in jobs] == ["2"]


def test_swf_out_of_order_is_put_in_order(tmp_path: Path) -> None:
    rows = [f"{i} {9 - i} -1 5 1 -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1" for i in range(9)]
    jobs, told = swf(tmp_path, *rows)

    assert told == []
    assert [job.id for job in jobs] == [str(i) for i in reversed(range(9))]


def test_a_record_too_far_out_of_order_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "WINDOW", 2)
    rows = [
        f"{i} {t} -1 5 1 -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1"
        for i, t in enumerate((10, 20, 30, 40, 5))
    ]
    jobs, told = swf(tmp_path, *rows)

    assert [job.id for job in jobs] == ["0", "1", "2", "3"]
    assert told == ["9: submit: is more than 2 records out of order"]


# --- Philly --------------------------------------------------------------------


def test_philly_is_sorted_by_submit_and_named_by_line(tmp_path: Path) -> None:
    jobs, told = philly(
        tmp_path,
        PHILLY_HEADER
        + "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
        + "2017-10-09 06:13:03,2951.5,16,47224.0,6214e9\n"
        + "\n",
    )

    assert told == []
    assert [(job.id, job.gpus, job.queue) for job in jobs] == [
        ("line-3", 16, "6214e9"),
        ("line-2", 1, "11cb48"),
    ]
    assert jobs[0].run_ns == 2_951_500_000_000
    assert jobs[1].submit_ns == 1_507_532_515 * SECOND_NS  # read as UTC


def test_philly_columns_are_found_by_name(tmp_path: Path) -> None:
    (job,), _ = philly(
        tmp_path, "cluster,num_gpus,duration,timestamp\n6214e9,8,60,2017-10-09 06:13:03\n"
    )

    assert (job.gpus, job.run_ns, job.queue) == (8, 60 * SECOND_NS, "6214e9")


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("2017-10-09 07:01:55,-1,1,0,a", "2: column 2 (duration): must not be negative: '-1'"),
        ("2017-10-09 07:01:55,5,0,0,a", "2: column 3 (num_gpus): is 0: a job of CPUs"),
        (
            "2017-10-09,5,1,0,a",
            "2: column 1 (timestamp): must be a number or YYYY-MM-DD HH:MM:SS, not '2017-10-09'",
        ),
        (
            "2017-13-09 07:01:55,5,1,0,a",
            "2: column 1 (timestamp): must be YYYY-MM-DD HH:MM:SS, not '2017-13-09 07:01:55'",
        ),
        ("2017-10-09 07:01:55,5", "2: columns: must be as many as in the header, not '2'"),
    ],
)
def test_philly_records_that_cannot_be_replayed(tmp_path: Path, row: str, told: str) -> None:
    jobs, faults = philly(tmp_path, f"{PHILLY_HEADER}{row}\n2017-10-09 07:01:55,1,1,1,a\n")

    assert faults == [told]
    assert [job.id for job in jobs] == ["line-3"]


def test_philly_without_its_header_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"philly\.csv:1: header: must name the column timestamp"):
        philly(tmp_path, "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n")


# --- muster --------------------------------------------------------------------

GANG = '"parallelism": {"tp": 8, "dp": 2}'


def test_muster_jobs_keep_their_shape(tmp_path: Path) -> None:
    (job,), told = muster(
        tmp_path,
        "# a comment",
        '{"submit_s": 1.5, "run_s": 60, "name": "llm", "priority": 7, "time_limit_s": 90,'
        f' "traffic": {{"dp": 5}}, "spares": 1, {GANG}}}',
    )

    assert told == []
    assert (job.id, job.priority, job.gpus) == ("llm", 7, 16)
    assert (job.submit_ns, job.run_ns, job.time_limit_ns) == (1.5e9, 60e9, 90e9)
    assert job.spec is not None
    assert job.spec.request.traffic == (("dp", 5),)
    assert job.spec.request.spares.hosts == 1


def test_a_nameless_muster_job_is_named_by_its_line(tmp_path: Path) -> None:
    (job,), _ = muster(tmp_path, "", f'{{"submit_s": 0, "run_s": 1, {GANG}}}')

    assert job.id == "line-2"


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("{", "1: line: must be JSON"),
        ('{"submit_s": 0, "run_s": 1, "run_s": 2}', "1: run_s: is given twice"),
        ("[1]", "1: line: must be a JSON object"),
        (f'{{"run_s": 1, {GANG}}}', "1: submit_s: must be a number of seconds, not 'None'"),
        (f'{{"submit_s": -1, "run_s": 1, {GANG}}}', "1: submit_s: must not be negative"),
        (f'{{"submit_s": 0, "run_s": -1, {GANG}}}', "1: run_s: must not be negative"),
        (f'{{"submit_s": 0, "run_s": NaN, {GANG}}}', "1: run_s: must be a finite number"),
        ('{"submit_s": 0, "run_s": 1}', "1: parallelism: is required"),
        ('{"submit_s": 0, "run_s": 1, "parallelism": {"dp": 0}}', "1: parallelism.dp: "),
        (f'{{"submit_s": 0, "run_s": 1, "color": 1, {GANG}}}', "1: color: unknown key"),
    ],
)
def test_muster_records_that_cannot_be_replayed(tmp_path: Path, row: str, told: str) -> None:
    jobs, faults = muster(tmp_path, row)

    assert jobs == []
    (fault,) = faults
    assert fault.startswith(told)


# --- files ---------------------------------------------------------------------


def test_gzip_is_known_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "no-suffix"
    path.write_bytes(gzip.compress(b"1 0 -1 9 4 -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1\n"))

    jobs, _ = read(path, "swf")

    assert [job.id for job in jobs] == ["1"]


def test_an_unknown_format_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        InputError, match=r"--trace-format: unknown trace format 'pbs'; there are swf, "
    ):
        find_format("pbs")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.swf: cannot be read: No such file"):
        read(tmp_path / "gone.swf", "swf")


def test_a_torn_gzip_is_an_error_not_a_short_trace(tmp_path: Path) -> None:
    whole = gzip.compress(b"1 0 -1 9 4 -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1\n" * 500)
    path = tmp_path / "torn.gz"
    path.write_bytes(whole[: len(whole) // 2])

    with pytest.raises(InputError, match=r"torn\.gz.*cannot be read"):
        read(path, "swf")


def test_a_file_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"; header\n\xff\xfe\x00\n")

    with pytest.raises(InputError, match=r"binary:2: cannot be read"):
        read(path, "swf")


# --- jobs of a known size alone -------------------------------------------------


def test_a_muster_job_may_be_a_size(tmp_path: Path) -> None:
    (job,), told = muster(
        tmp_path,
        '{"submit_s": 1, "run_s": 60, "gpus": 24, "name": "a", "user": "ann", "queue": "q",'
        ' "account": "nlp", "outcome": "failed", "priority": 3, "time_limit_s": 90}',
    )

    assert told == []
    assert job == TraceJob(
        id="a",
        submit_ns=SECOND_NS,
        run_ns=60 * SECOND_NS,
        line=1,
        gpus=24,
        time_limit_ns=90 * SECOND_NS,
        user="ann",
        queue="q",
        priority=3,
        account="nlp",
        outcome=TraceOutcome.FAILED,
    )


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ('"gpus": 0', "1: gpus: must be a whole number from 1, not '0'"),
        ('"gpus": true', "1: gpus: must be a whole number from 1, not 'True'"),
        ('"gpus": 1.5', "1: gpus: must be a whole number from 1, not '1.5'"),
        (f'"gpus": 8, {GANG}', "1: parallelism: does not go with gpus"),
        ('"gpus": 8, "spares": 1', "1: spares: does not go with gpus"),
        ('"gpus": 8, "color": 1', "1: color: does not go with gpus"),
        ('"gpus": 8, "priority": "high"', "1: priority: "),
        (f'{GANG}, "outcome": "fine"', "1: outcome: must be completed, cancelled or failed"),
        (f'{GANG}, "outcome": []', "1: outcome: must be completed, cancelled or failed"),
        (f'{GANG}, "user": 5', "1: user: must be a text, not '5'"),
    ],
)
def test_muster_sizes_that_cannot_be_replayed(tmp_path: Path, more: str, told: str) -> None:
    jobs, (fault,) = muster(tmp_path, f'{{"submit_s": 0, "run_s": 1, {more}}}')

    assert jobs == []
    assert fault.startswith(told)


# --- gavel's files -------------------------------------------------------------------

TYPE = "ResNet-18 (batch size 128)"
SEVEN = [TYPE, "python3 main.py", "-n", "1", "1168", "30.5", "4"]
TEN = [TYPE, "python3 main.py", "cifar10", "-n", "1", "1168", "4", "1", "-1.000000", "30.5"]
TWELVE = [*TEN[:7], "static", "1", "-1.000000", "77", "30.5"]


@pytest.mark.parametrize("fields", [SEVEN, TEN])
def test_arrival_and_size_change_places(tmp_path: Path, fields: list[str]) -> None:
    (job,), told = read_text(tmp_path, "gavel", "\t".join(fields) + "\n")

    assert told == []
    assert (job.id, job.queue, job.gpus) == ("line-1", TYPE, 4)
    assert job.submit_ns == 30_500_000_000
    assert job.run_ns == pytest.approx(1168 / RATE[TYPE] / sqrt(4) * SECOND_NS)


def test_shockwave_says_how_long_a_job_runs(tmp_path: Path) -> None:
    (job,), _ = read_text(tmp_path, "gavel", "\t".join(TWELVE))

    assert (job.run_ns, job.gpus, job.submit_ns) == (77 * SECOND_NS, 4, 30_500_000_000)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({0: "GPT-9"}, "1: job_type: must be one whose rate is known, not 'GPT-9'"),
        ({4: "-5"}, "1: total_steps: must not be negative"),
        ({4: "x"}, "1: total_steps: must be a number, not 'x'"),
        ({5: "-1"}, "1: arrival_time: must not be negative: '-1'"),
        ({6: "0"}, "1: GPUs: must be more than 0, not '0'"),
    ],
)
def test_jobs_that_cannot_be_replayed(tmp_path: Path, change: dict[int, str], told: str) -> None:
    fields = [change.get(i, field) for i, field in enumerate(SEVEN)]
    jobs, (fault,) = read_text(tmp_path, "gavel", "\t".join(fields))

    assert jobs == []
    assert fault.startswith(told)


def test_another_number_of_fields_is_told(tmp_path: Path) -> None:
    _, (fault,) = read_text(tmp_path, "gavel", "\t".join(SEVEN[:5]))

    assert fault == "1: fields: must be 7, 10 or 12 between tabs, not '5'"


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


def test_a_record_with_nothing_to_replay_is_counted_and_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "pai.csv"
    path.write_text(PAI.format("100") + PAI.format("0") + PAI.format(""))
    warnings: list[str] = []
    totals = run(
        Experiment(machine(2), trace=TraceSource(path, "pai", is_strict=True)), warn=warnings.append
    )

    assert totals["completed"] == 1
    assert totals["skipped_by_reason"] == {"plan_gpu is 0: a task of CPUs": 2}
    assert warnings == []


def test_what_a_format_assumes_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "pai.csv"
    path.write_text(PAI.format("100"))

    assert (
        FORMATS["pai"].note
        in run(Experiment(machine(2), trace=TraceSource(path, "pai")))["assumptions"]
    )


def test_a_trace_without_jobs_says_what_it_has_instead(tmp_path: Path) -> None:
    path = tmp_path / "pai.csv"
    path.write_text(PAI.format("0"))

    told = r"pai\.csv: holds no job to replay \(1 left out: plan_gpu is 0: a task of CPUs\)"
    with pytest.raises(InputError, match=told):
        run(Experiment(machine(2), trace=TraceSource(path, "pai")))
