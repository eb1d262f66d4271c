"""Every reader on a file of any length: lines that never end, jobs that are left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.files.errors import InputError
from simulator.experiment import Experiment, TraceSource
from simulator.run import run
from simulator.traces import load
from simulator.traces.load import FORMATS
from tests.replays import machine
from tests.tracefiles import read_text

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
