"""`muster trace` as its users meet it."""

import gzip
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from scheduler.files.errors import InputError
from simulator.cli import register

PHILLY = """\
timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,3600,16,57600,11cb48
2017-10-09 06:13:03,66.5,1,66.5,6214e9
2017-10-09 07:00:00,-1,1,66,11cb48
"""
GENERATE = ("generate", "--mix", "acme-kalos", "--fabric", "ib-24k", "--jobs", "300")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.csv").write_text(PHILLY)
    return tmp_path


def muster(*arguments: str, command: str = "trace") -> Result:
    app = typer.Typer(pretty_exceptions_enable=False)
    register(app)
    return CliRunner().invoke(app, [command, *arguments])


def show(*arguments: str) -> Result:
    return muster("show", *arguments)


@pytest.mark.usefixtures("folder")
class TestShow:
    def test_figures(self) -> None:
        result = show("p.csv", "--trace-format", "philly-csv", "--format", "json")
        found = json.loads(result.stdout)

        assert (found["jobs"], found["skipped"]) == (2, 1)
        assert found["span_s"] == 2932
        assert found["gpu_hours"] == pytest.approx(16 + 66.5 / 3600)
        assert found["gpus"] == {"mean": 8.5, "p50": 1, "max": 16}
        assert found["run_s"]["max"] == 3600
        assert found["run_s"]["p50"] == pytest.approx(66.5, rel=0.01)
        assert found["by_gpus"]["9-63"]["gpu_hours_share"] == pytest.approx(0.998, abs=0.001)
        assert found["submits_by_hour"][6:8] == [1, 1]
        assert found["skipped_by_reason"] == {"column 2 (duration) must not be negative": 1}
        assert "p.csv:4: column 2 (duration): must not be negative: '-1'; skipped" in result.stderr

    def test_a_table_of_which_the_columns_are_given(self) -> None:
        columns = "submit=timestamp,gpus=num_gpus,duration=duration"
        result = show("p.csv", "--trace-format", "csv", "--columns", columns, "--format", "json")

        assert json.loads(result.stdout)["gpu_hours"] == pytest.approx(16 + 66.5 / 3600)
        assert "p.csv:4: column 2 (duration): must not be negative: '-1'; skipped" in result.stderr

    def test_columns_and_the_format_go_together(self) -> None:
        needed = "is needed with the format csv: submit=COLUMN,gpus=COLUMN,duration=COLUMN"
        assert str(show("p.csv", "--trace-format", "csv").exception) == f"--columns: {needed}"
        extra = show("p.csv", "--trace-format", "swf", "--columns", "submit=1")
        assert (
            str(extra.exception)
            == "--columns: has an effect only with the formats csv and slurm-sacct"
        )

    def test_a_file_of_another_format_is_refused_with_the_one_that_fits(self) -> None:
        refused = show("p.csv", "--trace-format", "helios")

        assert str(refused.exception).endswith("; it reads as philly-csv")

    def test_a_table_for_people(self) -> None:
        text = show("p.csv", "--trace-format", "philly-csv").stdout

        assert text.startswith("p.csv: 2 jobs in 49 min\n16 GPU-hours")
        assert "not replayed: 1, column 2 (duration) must not be negative" in text
        assert "\n9-63 " in text
        assert "\n2-7 " not in text  # no such jobs
        assert "ended" not in text  # this format does not say

    def test_an_empty_trace_is_shown_as_one(self, folder: Path) -> None:
        (folder / "empty.swf").write_text("; Version: 2.2\n")
        result = show("empty.swf", "--trace-format", "swf")

        assert result.exit_code == 0
        assert result.stdout.startswith("empty.swf: 0 jobs")

    def test_a_trace_in_another_format_is_refused(self, folder: Path) -> None:
        for name in ("swf", "gavel", "pai"):
            result = show("p.csv", "--trace-format", name)

            assert isinstance(result.exception, InputError)
            told = str(result.exception)
            assert told.startswith(f"p.csv: holds no job in the format {name}: ")
            assert result.stdout == ""

    def test_a_trace_that_holds_a_job_is_shown_whatever_else_is_wrong(self, folder: Path) -> None:
        (folder / "p.csv").write_text(PHILLY + "2017-10-09 07:00:00,x,1,66,11cb48\n")

        assert show("p.csv", "--trace-format", "philly-csv").exit_code == 0

    def test_strict_refuses(self) -> None:
        result = show("p.csv", "--trace-format", "philly-csv", "--strict")

        assert isinstance(result.exception, InputError)
        assert str(result.exception).startswith("p.csv:4: column 2 (duration): ")


@pytest.mark.usefixtures("folder")
class TestGenerate:
    def test_the_same_options_give_the_same_bytes(self, folder: Path) -> None:
        for name in ("a.jsonl.gz", "b.jsonl.gz"):
            assert muster(*GENERATE, "--output", name).exit_code == 0

        packed = (folder / "a.jsonl.gz").read_bytes()
        assert packed == (folder / "b.jsonl.gz").read_bytes()
        assert gzip.decompress(packed).decode() == muster(*GENERATE).stdout

    def test_the_file_says_that_it_is_synthetic(self) -> None:
        first = muster(*GENERATE, "--seed", "7").stdout.splitlines()[0]

        assert first == "# synthetic: mix acme-kalos, 300 jobs, load 0.8, ib-24k, seed 7"

    @pytest.mark.slow
    @pytest.mark.parametrize("attach", ["ring", "llm", "llm-elastic"])
    def test_what_is_generated_is_read_and_replayed(self, attach: str) -> None:
        muster(*GENERATE, "--attach", attach, "--output", "g.jsonl")
        strict = ("g.jsonl", "--trace-format", "muster", "--strict", "--format", "json")
        held = json.loads(show(*strict).stdout)
        totals = json.loads(muster(*strict, "--fabric", "ib-24k", command="replay").stdout)

        assert (held["jobs"], held["skipped"]) == (300, 0)
        assert set(held["by_outcome"]) == {"completed", "cancelled", "failed"}
        ended = held["by_outcome"]["completed"]["jobs"]
        assert (totals["completed"], totals["rejected"]) == (ended, 0)
        assert totals["jobs"] == 300

    def test_it_says_when_the_load_is_never_reached(self) -> None:
        few = muster(*GENERATE).stderr
        many = muster(*GENERATE, "--load", "0.001").stderr

        assert few.startswith("300 jobs over ")
        assert "more jobs are needed" in few
        assert "more jobs are needed" not in many

    def test_a_mix_that_there_is_not(self) -> None:
        assert muster("generate", "--mix", "mine", "--fabric", "ib-24k").exit_code == 2

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="a Linux device")
    @pytest.mark.parametrize("name", ["full.jsonl", "full.jsonl.gz"])
    def test_a_full_disk_is_told_with_the_file(self, name: str) -> None:
        Path(name).symlink_to("/dev/full")
        result = muster(*GENERATE, "--output", name)

        assert isinstance(result.exception, OSError)
        assert result.exception.filename == name

    def test_what_cannot_be_written_is_told(self) -> None:
        result = muster(*GENERATE, "--output", "no/m.jsonl")

        assert isinstance(result.exception, InputError)
        assert str(result.exception).startswith("no/m.jsonl: --output: cannot be written")
