"""docs/extending.md, carried out: the edits of a chapter on a copy of the tree, then its program.

A chapter's edits are blocks behind "`path`, after `line`:", "before" or "a new file"; a block
behind "after `line`:" alone is another one of the same file. The last block is the program.
Lines to insert begin with "+".
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
_FENCE = re.compile(r"^```\w+\n(.*?)^```$", re.M | re.S)
_PATH = re.compile(r"`([a-z_/0-9]+\.(?:py|proto))`")
_PLACE = re.compile(r"(after|before)\s+`([^`]+)`:\s*\Z")


@dataclass(frozen=True)
class Edit:
    """`line` "": the text is the content of a new file."""

    path: str
    side: str
    line: str
    text: str


def chapter(title: str) -> tuple[list[Edit], str]:
    """The edits of a chapter, and its program."""
    _, _, after = PAGE.partition(f"\n## {title}\n")
    body = after.partition("\n## ")[0]
    assert body, f"docs/extending.md has no chapter {title!r}"
    edits: list[Edit] = []
    path, end, program = "", 0, ""
    for fence in _FENCE.finditer(body):
        prose, end = body[end : fence.start()], fence.end()
        if paths := _PATH.findall(prose):
            path = paths[-1]
        if place := _PLACE.search(prose):
            edits.append(Edit(path, place[1], place[2], re.sub(r"^\+", "", fence[1], flags=re.M)))
        elif prose.rstrip().endswith("a new file:"):
            edits.append(Edit(path, "", "", fence[1]))
        else:
            program = fence[1]
    return edits, program


def carry_out(edit: Edit, tree: Path) -> None:
    file = tree / edit.path
    if not edit.line:
        assert not file.exists()
        file.write_text(edit.text, encoding="utf-8")
        return
    rows = file.read_text(encoding="utf-8").splitlines(keepends=True)
    places = [at for at, row in enumerate(rows) if row.rstrip("\n") == edit.line]
    assert len(places) == 1, f"{edit.path} has {len(places)} lines {edit.line!r}"
    rows.insert(places[0] + (edit.side == "after"), edit.text)
    file.write_text("".join(rows), encoding="utf-8")


def run(tree: Path, *arguments: str) -> None:
    # Placement is not copied: to compile its loops in a new folder takes half a minute.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tree), str(ROOT)))}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("title", "most_files"),
    [
        ("Add a field of the job spec", 4),
        ("Add a unary RPC", 6),
        ("Add an event", 3),
        ("Add a trace format", 2),
    ],
)
def test_a_chapter_does_what_it_says(tmp_path: Path, title: str, most_files: int) -> None:
    edits, program = chapter(title)
    for folder in ("scheduler", "importers", "simulator", "proto", "scripts", "docs", "tests"):
        ignored = shutil.ignore_patterns("__pycache__", "golden", "stored")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    for edit in edits:
        carry_out(edit, tmp_path)
    files = {edit.path for edit in edits}
    assert 0 < len(files) <= most_files
    if any(path.startswith("proto/") for path in files):
        run(tmp_path, "scripts/stubs.py")
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    run(tmp_path, "program.py")
