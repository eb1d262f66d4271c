"""`muster trace` as its users meet it."""

import gzip
from pathlib import Path

import pytest

from scheduler.cli.program import load_commands
from tests.commands import answer, invoke

GENERATE = ("trace", "generate", "--mix", "acme-kalos", "--fabric", "ib-24k", "--jobs", "300")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    load_commands()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_same_options_give_the_same_bytes_that_say_they_are_synthetic(folder: Path) -> None:
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        assert invoke(*GENERATE, "--output", name).exit_code == 0
    packed = (folder / "a.jsonl.gz").read_bytes()
    assert packed == (folder / "b.jsonl.gz").read_bytes()
    text = invoke(*GENERATE).stdout
    assert gzip.decompress(packed).decode() == text
    first = "# synthetic: mix acme-kalos, 300 jobs, load 0.8, ib-24k, seed 0"
    assert text.splitlines()[0] == first


@pytest.mark.slow
def test_what_is_generated_is_read_and_replayed() -> None:
    invoke(*GENERATE, "--output", "g.jsonl")
    strict = ("--attach", "llm", "--trace-format", "muster", "--strict")
    totals = answer("replay", "g.jsonl", *strict, "--fabric", "ib-24k")
    ends = [totals[end] for end in ("completed", "cancelled", "failed")]
    assert (sum(ends), min(ends) > 0) == (300, True)
    assert (totals["rejected"], totals["skipped"]) == (0, 0)


def test_it_says_when_the_load_is_never_reached() -> None:
    few = invoke(*GENERATE).stderr
    assert few.startswith("300 jobs over ")
    assert "more jobs are needed" in few
    assert "more jobs are needed" not in invoke(*GENERATE, "--load", "0.001").stderr


def test_a_mix_that_there_is_not_and_a_full_disk_are_told() -> None:
    assert invoke("trace", "generate", "--mix", "mine", "--fabric", "ib-24k").exit_code == 2
    if not Path("/dev/full").exists():
        pytest.skip("/dev/full is a device of Linux")
    for name in ("full.jsonl", "full.jsonl.gz"):
        Path(name).symlink_to("/dev/full")
        error = invoke(*GENERATE, "--output", name).exception
        assert isinstance(error, OSError)
        assert error.filename == name
