"""The order of rooms is checked, not only written down: a wrong import fails `make check`."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "line", "broken"),
    [
        ("scheduler/core/queue/order.py", "from scheduler.wire import listing", "the core"),
        (
            "scheduler/core/model/job.py",
            "def lazily() -> None:\n    import scheduler.core.decide",
            "rooms of the core",
        ),
        ("scheduler/eventlog/codec.py", "import scheduler.engine.feed", "rooms of the scheduler"),
        ("scheduler/core/decide.py", "from placement.tiers import packing", "one door"),
    ],
)
def test_a_planted_import_breaks_a_contract(
    tmp_path: Path, file: str, line: str, broken: str
) -> None:
    for package in ("placement", "network", "scheduler", "simulator"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / file).open("a", encoding="utf-8") as planted:
        planted.write(f"\n\n{line}\n")
    lint = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as m; m()"]
    done = subprocess.run(lint, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
    assert any(broken in row and "BROKEN" in row for row in done.stdout.splitlines()), done.stdout


def test_one_module_reads_which_spares_are_lent() -> None:
    """The fold writes `lent`, the etag covers it, and another fabric renumbers it; everybody else
    asks SpareLoans, or the job what it owns."""
    core = ROOT / "scheduler" / "core"
    readers = {
        path.relative_to(core).as_posix()
        for path in core.rglob("*.py")
        if "lent" in (source := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and node.attr == "lent"
    }
    assert readers == {
        "admission/etag.py",
        "admission/fabric.py",
        "fold/fabric.py",
        "fold/hosts.py",
        "fold/jobs.py",
        "model/job.py",
        "model/state.py",
        "tenancy/spare_loans.py",
    }
