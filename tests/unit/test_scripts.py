"""Scripts of a release: what it is checked for, and that each check can say no."""

import gzip
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.core.model.restart_option import RestartOption
from scripts import published, validate
from scripts.published import Evidence, Row, Value, check, table, tolerance
from scripts.release import NotReleasable, bill_of_materials, chapter_of, check_changelog
from scripts.yearly import YEAR_NS, Year, failures_a_year
from simulator.collectors.invariants import InvariantChecker, InvariantViolated
from tests.replays import machine

ROOT = Path(__file__).parents[2]


def test_a_release_has_a_dated_chapter() -> None:
    check_changelog("# Changelog\n\n## [0.1.0] - 2026-12-01\n## [0.0.9] - 2026-01-01\n", "0.1.0")
    for head in ("## [0.1.0] - unreleased", "## [0.2.0] - 2026-12-01", ""):
        with pytest.raises(NotReleasable, match="not with"):
            check_changelog(f"# Changelog\n{head}\n", "0.1.0")


def test_the_notes_of_a_release_are_its_chapter() -> None:
    text = (
        "# Changelog\n\n## [0.2.0] - 2027-01-01\n\n### Added\n- A\n\n## [0.1.0] - 2026-12-01\n- B\n"
    )
    assert chapter_of(text) == "## [0.2.0] - 2027-01-01\n\n### Added\n- A\n"


def test_the_bill_of_materials_has_every_pin_with_its_hashes() -> None:
    lock = (ROOT / "deploy" / "requirements.lock").read_text(encoding="utf-8")
    bill = bill_of_materials("muster-scheduler", "0.1.0", lock)
    pins = [row for row in lock.splitlines() if row[:1].isalnum() and "==" in row]
    assert len(bill["components"]) == len(pins)
    assert sum(len(each["hashes"]) for each in bill["components"]) == lock.count("--hash=sha256:")
    assert {each["name"] for each in bill["components"]} >= {"ortools", "grpcio", "pydantic"}


# --- published values ----------------------------------------------------------------


def test_numbers_are_unique_and_in_order() -> None:
    numbers = [row.number for row in published.rows()]
    assert len(set(numbers)) == len(numbers)
    assert numbers.index("1") < numbers.index("1b")


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        ("= 1 / a", (1, "a"), (1, "b")),
        ("1.229 ± 0.01", 1.238, 1.24),
        ("200 ± 1 %", 202.0, 202.1),
        ("1 to 2", 1.5, 2.1),
        ("differs: -2 to -1", -2, -0.9),
        ("1 to 2 / 0 to 3", (2, 0), (2, 4)),
        ("1 / 2 ± 0.5", (1.5, 1.5), (1.5, 1.5, 1.5)),
    ],
)
def test_a_tolerance_tells_right_from_wrong(text: str, right: Value, wrong: Value) -> None:
    assert tolerance(text).holds(right)
    assert not tolerance(text).holds(wrong)


def test_the_table_names_what_fails() -> None:
    rows = (
        Row("1", "good", "2", lambda: 2, tolerance("= 2"), Evidence.INPUT),
        Row("2", "bad", "2.50", lambda: 3.25, tolerance("2.5 ± 0.1"), Evidence.DERIVED),
    )
    head, good, bad = table(check(row) for row in rows).splitlines()
    assert head.split() == ["row", "what", "evidence", "published", "ours", "tolerance", "s"]
    assert good.split()[:7] == ["1", "good", "input", "2", "2", "exact", "pass"]
    assert bad.split()[:8] == ["2", "bad", "derived", "2.50", "3.25", "±", "0.1", "FAIL"]


# --- `make validate` says what is missing, and notices what cannot be true -----------

ROWS = "".join(f"{i} {i} -1 {50 + i} 2 -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1\n" for i in range(6))


def _row(ours: int) -> Row:
    return Row("1", "two", "2", lambda: ours, tolerance("= 2"), Evidence.INPUT)


@pytest.fixture
def _one_published_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate.published, "rows", lambda: [replace(_row(2), slow=True)])


@pytest.fixture
def trial(tmp_path: Path) -> validate.Trial:
    (tmp_path / "t.swf.gz").write_bytes(gzip.compress(ROWS.encode()))
    failing = "poisson:rate=1e5,repair_h=0.02"
    return validate.Trial("t.swf.gz", "swf", machine(4), 6, failing, ("easy",))


@pytest.mark.usefixtures("_one_published_value")
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


@pytest.mark.usefixtures("_one_published_value")
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


# --- the year of failures can fail: on either side of what it must be ----------------


def year(failures: int = 1_000, at_home: int = 995, held: int = 50) -> Year:
    ways = Counter({RestartOption.ZONE: at_home, RestartOption.REPLACE: 1_000 - at_home})
    return Year("a", 1_000, failures, ways, held_ns=held * YEAR_NS, pooled=26)


def test_a_year_as_it_must_be() -> None:
    assert not list(year().violations())


def test_a_year_that_is_off() -> None:
    for wrong, said in (
        (year(at_home=989), "99 % of the restarts"),
        (year(failures=100), "100 failures, where the rate says 1,000"),
        (year(failures=1_031), "1,031 failures"),
        (year(held=26), "26.0 spares"),
        (year(held=205), "205.0 spares"),
    ):
        (violation,) = wrong.violations()
        assert said in violation


def test_hosts_in_repair_do_not_fail() -> None:
    assert failures_a_year(100, 0.01, 0) == 365
    assert failures_a_year(100, 0.01, 100) == 365 / 2
