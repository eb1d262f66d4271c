"""`make validate` says what is missing, and notices what cannot be true."""

import gzip
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from scripts.published import Evidence, Row, tolerance
from simulator.collectors.invariants import InvariantChecker, InvariantViolated
from simulator.experiment import Experiment, TraceSource
from simulator.report.folder import ReportFolder
from simulator.run import run
from tests.replays import machine

SCRIPT = Path(__file__).parents[3] / "scripts" / "validate.py"
ROWS = "".join(f"{i} {i} -1 {50 + i} 2 -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1\n" for i in range(6))


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("validate_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _row(ours: int) -> Row:
    return Row("1", "two", "2", lambda: ours, tolerance("= 2"), Evidence.INPUT)


@pytest.fixture(autouse=True)
def _one_published_value(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script.published, "rows", lambda: [_row(2)])


@pytest.fixture
def trial(script: ModuleType, tmp_path: Path) -> Any:
    (tmp_path / "t.swf.gz").write_bytes(gzip.compress(ROWS.encode()))
    failing = "poisson:rate=1e5,repair_h=0.02"
    return script.Trial("t.swf.gz", "swf", machine(4), 6, failing, ("easy",))


def found(script: ModuleType, trial: Any, tmp_path: Path) -> list[str]:
    """What is wrong with a replay of `trial` whose log and jobs are in tmp_path/report."""
    source = TraceSource(tmp_path / trial.trace, "swf")
    experiment = Experiment(trial.fabric, trace=source, failures=trial.failures)
    totals = run(experiment, ReportFolder(tmp_path / "report"))
    return list(script._violations(trial, totals, tmp_path / "report"))


def test_without_a_folder_the_published_values_are_checked(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main([""]) == 0
    said = capsys.readouterr()
    assert "0 of 1 published values fail" in said.out
    assert "make validate TRACES=folder" in said.err


def test_a_published_value_that_fails_is_an_exit_code(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script.published, "rows", lambda: [_row(3)])

    assert script.main([""]) == 1


def test_slow_rows_are_told_as_they_end(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script.published, "rows", lambda: [replace(_row(2), slow=True), _row(2)])

    script.main([""])
    assert capsys.readouterr().err.splitlines()[0] == "row 1: pass, 0 s"


def test_a_replay_that_is_void_fails_and_is_named(
    script: ModuleType,
    trial: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def void(*_: object) -> None:
        raise InvariantViolated("jobs offered: 3 on one side, 2 on the other")

    monkeypatch.setattr(InvariantChecker, "check", void)
    monkeypatch.setattr(script, "TRIALS", (trial,))

    assert script.main([str(tmp_path)]) == 1
    assert "FAILED t.swf.gz, easy: jobs offered: 3" in capsys.readouterr().out


def test_a_missing_file_is_named(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main([str(tmp_path)]) == 2
    assert "philly.csv.gz is not there" in capsys.readouterr().err


def test_a_sound_replay_passes(
    script: ModuleType,
    trial: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(script, "TRIALS", (trial,))

    assert script.main([str(tmp_path)]) == 0
    assert "every invariant holds" in capsys.readouterr().out


def test_a_lost_record_is_noticed(
    script: ModuleType,
    trial: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(script, "TRIALS", (replace(trial, records=7),))

    assert script.main([str(tmp_path)]) == 1
    assert "7 records in, 6 accounted for" in capsys.readouterr().out


@pytest.mark.slow
def test_a_host_given_twice_is_noticed(script: ModuleType, trial: Any, tmp_path: Path) -> None:
    assert found(script, trial, tmp_path) == []

    log = tmp_path / "report" / "events.jsonl"
    twice = '{"version":99,"type":"JobStarted","event":{"name":"%s","hosts":["z0-h0"],"spares":[]}}'
    log.write_text("\n".join(twice % name for name in ("a", "b")) + "\n")

    assert list(script._double_use(log)) == ["version 99: z0-h0 is a's already"]
