"""docs/simulator.md: its cases are valid, its traces readable, its pictures there."""

import shutil
from pathlib import Path

import pytest

from scripts import questions
from simulator.experiment import experiment_of
from simulator.experiment_file import load_experiment_file
from simulator.traces.load import TraceFile, find_format

TOP = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The case files with the traces that the script writes beside them."""
    shutil.copytree(TOP / questions.FOLDER, tmp_path / "q")
    for spares in questions.SPARES:
        questions._write(tmp_path / "q" / f"16k-{spares}.jsonl", questions.big_and_small(spares))
    questions._write(tmp_path / "q" / "mix.jsonl", questions.mix())
    return tmp_path / "q"


@pytest.mark.parametrize(("name", "points"), [("spares", 15), ("uplinks", 9)])
def test_every_point_of_a_case_is_a_replay(folder: Path, name: str, points: int) -> None:
    grid = load_experiment_file(str(folder / f"{name}.yaml"))
    assert len(grid.points) == points
    assert experiment_of(grid.points[-1]).fabric.host_count == 3_072


@pytest.mark.parametrize(("name", "jobs"), [("16k-0", 327), ("16k-64", 327), ("mix", 160)])
def test_every_job_of_a_trace_is_good(folder: Path, name: str, jobs: int) -> None:
    def refuse(path: Path, bad: object) -> None:
        raise AssertionError(bad)

    trace = TraceFile(folder / f"{name}.jsonl", find_format("muster"), refuse)
    assert len(list(trace)) == jobs
