"""What a release is checked for, and what it says of its parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.release import NotReleasable, bill_of_materials, chapter_of, check_changelog

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
