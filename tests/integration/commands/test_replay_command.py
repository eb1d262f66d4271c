"""`muster replay` as its users meet it: totals, messages, exit codes, report files."""

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from scheduler.cli.program import load_commands
from tests.commands import answer, invoke, refusal
from tests.studies import ROW

FABRIC = """\
name: machine
gpus_per_host: 2
tiers:
  - {name: zone, count: 1}
  - {name: host, count: 4}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Holds m.yaml and t.swf: five jobs, one of which ran for an unknown time and one too large."""
    load_commands()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.yaml").write_text(FABRIC)
    sizes = [(1, 0, 100, 8), (2, 5, 60, 3), (3, 6, -1, 1), (4, 7, 30, 99), (5, 8, 20, 1)]
    (tmp_path / "t.swf").write_text("; Version: 2.2\n" + "".join(ROW.format(*s) for s in sizes))
    return tmp_path


REPLAY = ("replay", "t.swf", "--trace-format", "swf", "--fabric", "m.yaml")


def replay(*options: str) -> Result:
    return invoke(*REPLAY, *options)


def totals(*options: str) -> dict[str, Any]:
    return dict(answer(*REPLAY, *options))


def totals_of_jobs(folder: Path, jobs: str, *options: str) -> dict[str, Any]:
    """Replay jobs in the format of muster's own traces."""
    (folder / "t.jsonl").write_text(jobs)
    words = ("t.jsonl", "--trace-format", "muster", "--fabric", "m.yaml")
    return dict(answer("replay", *words, *options))


@pytest.mark.usefixtures("folder")
class TestTotals:
    def test_every_record_is_accounted_for(self) -> None:
        found = totals()
        promised = [
            *("jobs", "completed", "makespan_s", "wait_s", "bounded_slowdown", "utilization"),
            *("goodput", "restarts", "events", "seconds"),
        ]
        assert [key for key in found if key in promised] == promised
        assert (found["jobs"], found["completed"], found["makespan_s"]) == (3, 3, 160)
        assert found["rejected_by_reason"] == {"infeasible": 1}
        assert found["skipped_by_reason"] == {"run must not be negative": 1}
        assert found["completed"] + found["rejected"] + found["skipped"] == 5
        assert found["events_per_second"] > 0

    def test_what_they_depend_on_is_on_record(self) -> None:
        found = totals("--seed", "9", "--policy", "easy", "--checkpoint-s", "77")

        assert (found["seed"], found["policy"]) == (9, "easy")
        assert found["fabric"]["name"] == "machine"
        assert found["trace"]["file"] == "t.swf"
        assert any("77 s apart" in sentence for sentence in found["assumptions"])

    def test_the_same_seed_gives_the_same_log(self) -> None:
        often = ["--failures", "poisson:rate=5e5,repair_h=0.001"]
        often += ["--checkpoint-s", "0", "--restart-s", "0"]  # else no job would ever end
        one = totals(*often, "--seed", "1")
        two = totals(*often, "--seed", "1")
        other = totals(*often, "--seed", "2")

        assert one["host_failures"] > 0
        assert one["log_sha256"] == two["log_sha256"] != other["log_sha256"]

    def test_since_and_limit_leave_out_what_comes_before_and_after(self) -> None:
        assert totals("--since", "5")["jobs"] == 2
        assert totals("--since", "1970-01-01")["jobs"] == 3
        found = totals("--limit", "1")
        assert (found["jobs"], found["skipped"], found["rejected"]) == (1, 1, 0)

    def test_people_get_a_table(self) -> None:
        result = replay()

        assert result.exit_code == 0
        assert "t.swf on machine (4 hosts x 2 GPUs), policy production, seed 0" in result.stdout
        assert "rejected                1 (infeasible: 1)" in result.stdout
        assert "note: spares: 0" in result.stdout


@pytest.mark.usefixtures("folder")
class TestMessages:
    def test_bad_records_are_told_by_line_and_field_up_to_a_number(self, folder: Path) -> None:
        errors = replay().stderr.splitlines()
        assert "t.swf:4: run: must not be negative: '-1'; skipped" in errors
        assert any(line.startswith("t.swf:5: job: needs 50 hosts") for line in errors)
        (folder / "t.swf").write_text(ROW.format(1, 0, 5, 1) + "x\n" * 25)
        errors = replay().stderr.splitlines()
        assert (len(errors), errors[-1]) == (21, "... and 5 more")

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            (
                "--times llama3 --detect-s 5",
                "--detect-s: has no effect with --times, which sets it",
            ),
            ("--strict", "t.swf:4: run: must not be negative: '-1'"),
            ("--seed -1", "--seed: must be "),
            (f"--checkpoint-s {'9' * 20}", "--checkpoint-s: must be "),
            ("--since yesterday", "--since: must be YYYY-MM-DD or"),
            ("--since nan", "--since: must be YYYY-MM-DD or"),
            ("--failures poisson:rate=1", "--failures: repair_h: is required"),
            (
                "--policy random",
                "--policy: must be one of production, easy, fifo, conservative, not 'random'",
            ),
            ("--report m.yaml", "m.yaml: --report: cannot be written: "),
            ("--failures-repeat", "--failures-repeat: has no effect without failures"),
        ],
    )
    def test_wrong_options_are_named(self, options: str, told: str) -> None:
        assert refusal(*REPLAY, *options.split()).startswith(told)

    def test_a_trace_that_is_none_is_named(self, folder: Path) -> None:
        (folder / "empty.swf").write_text("; nothing\n\n")
        for trace, form, told in (
            ("empty.swf", "swf", "empty.swf: holds no job to replay"),
            ("gone.swf", "swf", "gone.swf: cannot be read: No such file or directory"),
            ("t.swf", "pbs", "--trace-format: unknown trace format 'pbs'; there are "),
        ):
            words = ("replay", trace, "--trace-format", form, "--fabric", "m.yaml")
            assert refusal(*words).startswith(told)


@pytest.mark.slow
def test_a_report_has_the_log_of_the_totals_and_a_line_a_job(folder: Path) -> None:
    assert replay("--report", "out/r1").exit_code == 0
    report = folder / "out" / "r1"
    found = json.loads((report / "totals.json").read_text())
    log = (report / "events.jsonl").read_bytes()
    assert hashlib.sha256(log).hexdigest() == found["log_sha256"]
    lines = [json.loads(line) for line in log.splitlines()]
    assert [line["version"] for line in lines] == list(range(1, found["events"] + 1))
    assert lines[0]["type"] == "FabricLoaded"
    with (report / "jobs.csv").open() as file:
        rows = {row["job"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"1", "2", "5"}
    assert rows["2"] == {
        "job": "2",
        "submit_s": "5.0",
        "start_s": "100.0",
        "end_s": "160.0",
        "wait_s": "95.0",
        "run_s": "60.0",
        "gpus": "3",
        "hosts": "2",
        "productive_host_s": "120.0",
        "host_s": "120.0",
        "attempts": "1",
        "bounded_slowdown": "2.58333",
        "outcome": "completed",
        "tenant": "default",
        "user": "1",
    }
    assert "has a report already, which is replaced" in replay("--report", "out/r1").stderr


TENANTS = """\
tenants:
  - {name: "1", limit_gpus: 4}
  - {name: other, guaranteed_gpus: 2}
"""


def test_tenants_bound_what_their_jobs_hold(folder: Path) -> None:
    """User 1 submitted everything: job 1 asks for eight GPUs, its limit is four."""
    (folder / "tenants.yaml").write_text(TENANTS)
    found = totals("--tenants", "tenants.yaml")
    assert found["rejected_by_reason"] == {"infeasible": 2}
    assert any("tenant with the name of its account" in said for said in found["assumptions"])
    assert found["tenants"] != totals()["tenants"]


def test_an_assumed_limit_stands_in_for_run_times(folder: Path) -> None:
    """Job 2 (all hosts) waits for job 1; job 3 (one host, 20 s) would fit beside that."""
    sizes = [(1, 0, 100, 6), (2, 5, 60, 8), (3, 8, 20, 2)]
    (folder / "t.swf").write_text("".join(ROW.format(*s) for s in sizes))
    assert totals()["wait_s"]["mean"] == pytest.approx((0 + 95 + 0) / 3)
    # job 3 is assumed to run for an hour, and job 1 to end eight seconds before that
    assumed = totals("--assumed-limit-h", "1")
    assert assumed["wait_s"]["mean"] == pytest.approx((0 + 95 + 152) / 3)
    assert any("assumed to run 1 h" in sentence for sentence in assumed["assumptions"])


ELASTIC = """\
{"submit_s": 0, "run_s": 600, "name": "x", "parallelism": {"tp": 2, "dp": 2}, "spares": 0}
{"submit_s": 0, "run_s": 9000, "name": "e", "parallelism": {"tp": 2, "dp": {"min": 1, "max": 4}},
 "traffic": {"dp": 1}, "spares": 0}
""".replace(",\n", ",")


def test_how_often_gangs_grow_and_by_how_much_are_options(folder: Path) -> None:
    """e has two hosts of four until x ends, and could have four then."""

    def resizes(*options: str) -> tuple[int, float]:
        found = totals_of_jobs(folder, ELASTIC, *options)
        return found["resizes"], found["makespan_s"]

    usual, makespan_s = resizes()
    assert usual == 1
    assert resizes("--resize-every-s", "100000")[0] == 0
    assert resizes("--least-gain-percent", "101") == (1, makespan_s)  # all that it asks for


def test_what_jobs_train_and_the_health_file_are_options_and_on_record(folder: Path) -> None:
    job = '{"submit_s": 0, "run_s": 5, "gpus": 7, "name": "a"}\n'
    found = totals_of_jobs(folder, job, "--attach", "llm")
    assert (found["completed"], found["trace"]["attach"]) == (1, "llm")
    assert any("with a model" in sentence for sentence in found["assumptions"])
    assert found["health"] is None
    (folder / "health.yaml").write_text("burn_in: {after_repair: true}\n")
    found = totals_of_jobs(folder, job, "--health", "health.yaml")
    assert found["health"]["has_burn_in"] is True


@pytest.mark.usefixtures("folder")
def test_a_log_that_ends_before_the_replay_is_named_and_can_begin_again() -> None:
    """The replay lasts 160 s, the log 20."""
    rows = "10,z0-h0,down,gpu\n20,z0-h0,up,\n"
    Path("log.csv").write_text(f"time_s,host,state,cause\n{rows}")
    options = ("--failures", "log.csv", "--restart-s", "0")

    once = totals(*options)
    (warning,) = once["warnings"]
    assert warning.startswith("log.csv ends 0.0 d after the first submit; the last 0.0 d")
    assert f"\nwarning: {warning}\n" in replay(*options).stdout
    again = totals(*options, "--failures-repeat", "--failures-from-h", "0.002", "--until-h", "0.05")
    assert again["warnings"] == []
    assert (once["host_failures"], again["failures_repeat"]) == (1, True)
    assert again["host_failures"] > 5
    assert any(text.startswith("recorded failures are used") for text in again["assumptions"])


SHORT = "".join(
    json.dumps({"gpus": 8, "submit_s": at, "run_s": 100, "time_limit_s": limit_s}) + "\n"
    for at, limit_s in ((0, 50), (0, 200), (1, 200), (1, 200))
)


def test_a_gang_at_its_time_limit_ends_as_the_option_says(folder: Path) -> None:
    """The first of four jobs states half of its run."""

    def ran(*options: str) -> tuple[int, int, float, list[str]]:
        found = totals_of_jobs(folder, SHORT, *options)
        return found["completed"], found["failed"], found["goodput"], found["warnings"]

    assert ran() == (4, 0, 1.0, [])
    assert ran("--overrun", "kill") == (3, 1, 300 / 350, [])
    assert ran("--overrun", "requeue")[:2] == (3, 1)  # it has saved nothing
    few = ran("--policy", "conservative", "--most-reservations", "1")
    assert few[3] == [
        "3 jobs waited at once, and only the first 1 have reservations: the others started later"
        " than conservative backfill lets them (--most-reservations 0 gives one to all)"
    ]
    assert ran("--policy", "conservative", "--most-reservations", "0")[3] == []
