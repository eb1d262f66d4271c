"""`make validate` says what is missing, and notices what cannot be true."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from scripts import validate
from scripts.published import Evidence, Row, tolerance
from simulator.collectors.invariants import InvariantChecker, InvariantViolated
from tests.replays import machine

ROWS = "".join(f"{i} {i} -1 {50 + i} 2 -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1\n" for i in range(6))


def _row(ours: int) -> Row:
    return Row("1", "two", "2", lambda: ours, tolerance("= 2"), Evidence.INPUT)


@pytest.fixture(autouse=True)
def _one_published_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate.published, "rows", lambda: [replace(_row(2), slow=True)])


@pytest.fixture
def trial(tmp_path: Path) -> validate.Trial:
    (tmp_path / "t.swf.gz").write_bytes(gzip.compress(ROWS.encode()))
    failing = "poisson:rate=1e5,repair_h=0.02"
    return validate.Trial("t.swf.gz", "swf", machine(4), 6, failing, ("easy",))


def test_without_a_folder_the_published_values_are_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert validate.main([""]) == 0
    said = capsys.readouterr()
    assert "0 of 1 published values fail" in said.out
    assert said.err.splitlines()[0] == "row 1: pass, 0 s"
    assert "make validate TRACES=folder" in said.err
    monkeypatch.setattr(validate.published, "rows", lambda: [_row(3)])
    assert validate.main([""]) == 1


def void(*_: object) -> None:
    raise InvariantViolated("jobs offered: 3 on one side, 2 on the other")


@pytest.mark.parametrize(
    ("records", "is_void", "code", "said"),
    [
        (6, False, 0, "every invariant holds"),
        (7, False, 1, "7 records in, 6 accounted for"),
        (6, True, 1, "FAILED t.swf.gz, easy: jobs offered: 3"),
    ],
)
def test_a_replay_that_cannot_be_true_fails(
    trial: validate.Trial,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    records: int,
    is_void: bool,
    code: int,
    said: str,
) -> None:
    monkeypatch.setattr(validate, "TRIALS", (replace(trial, records=records),))
    if is_void:
        monkeypatch.setattr(InvariantChecker, "check", void)

    assert validate.main([str(tmp_path)]) == code
    assert said in capsys.readouterr().out


def test_a_host_given_twice_is_noticed(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    twice = '{"version":99,"type":"JobStarted","event":{"name":"%s","hosts":["z0-h0"],"spares":[]}}'
    log.write_text("\n".join(twice % name for name in ("a", "b")) + "\n")

    assert list(validate._double_use(log)) == ["version 99: z0-h0 is a's already"]
