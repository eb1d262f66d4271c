"""`muster trace` as its users meet it."""

import gzip
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from simulator.cli import register

GENERATE = ("generate", "--mix", "acme-kalos", "--fabric", "ib-24k", "--jobs", "300")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def muster(*arguments: str, command: str = "trace") -> Result:
    app = typer.Typer(pretty_exceptions_enable=False)
    register(app)
    return CliRunner().invoke(app, [command, *arguments])


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
    def test_what_is_generated_is_read_and_replayed(self) -> None:
        muster(*GENERATE, "--output", "g.jsonl")
        strict = (
            "g.jsonl",
            "--attach",
            "llm",
            "--trace-format",
            "muster",
            "--strict",
            "--format",
            "json",
        )
        totals = json.loads(muster(*strict, "--fabric", "ib-24k", command="replay").stdout)

        ends = [totals[end] for end in ("completed", "cancelled", "failed")]
        assert (sum(ends), min(ends) > 0) == (300, True)
        assert (totals["rejected"], totals["skipped"]) == (0, 0)

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
