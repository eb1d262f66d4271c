"""README and quickstart cannot rot: their commands parse, transcripts are what is printed today.

`pytest tests/unit/test_readme.py --rewrite` writes the transcripts anew.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from scheduler.cli.program import app, load_commands

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
QUICKSTART = ROOT / "docs" / "quickstart.md"
PAGES = (README, QUICKSTART)
TRANSCRIPT = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)
# What no claim rests on: how long it took, and which of several equal layouts it is.
LOOSE = re.compile(r"^\S+ \S+ to place, \S+ \S+ in all$|(^z\d+ .* ms$\n)+", re.MULTILINE)


def blocks(*languages: str) -> Iterator[str]:
    """The fenced blocks of both pages in these languages."""
    for page in PAGES:
        for language in languages:
            yield from re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def commands() -> list[str]:
    """Every `muster ...` of a block, continued lines joined."""
    lines = "".join(blocks("console", "sh", "text")).replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ") for line in lines if re.match(r"(\$ )?muster ", line)]


@pytest.mark.parametrize("command", commands())
def test_a_command_parses(command: str) -> None:
    load_commands()
    muster: Any = typer.main.get_command(app)
    _, name, *arguments = shlex.split(command, comments=True)
    with muster.make_context("muster", [name, *arguments]) as context:
        found = muster.get_command(context, name)
        assert found is not None, f"no command {name}"
        found.make_context(name, arguments, parent=context)


def test_there_are_commands() -> None:
    assert len(commands()) > 10


@pytest.mark.slow
def test_transcripts_are_what_is_printed(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    text = QUICKSTART.read_text()
    printed = TRANSCRIPT.sub(lambda block: transcript(block[0], tmp_path), text)
    if pytestconfig.getoption("--rewrite"):
        QUICKSTART.write_text(printed)
    else:
        assert LOOSE.sub("...", printed) == LOOSE.sub("...", text)


def test_the_readme_quotes_the_quickstart() -> None:
    quoted = re.findall(r"```text\n(.*?)```", README.read_text(), re.DOTALL)[0].splitlines()
    assert len(quoted) > 5
    assert [line for line in quoted if line not in QUICKSTART.read_text().splitlines()] == []


@pytest.mark.slow
def test_the_readme_shows_lines_of_what_is_printed(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shown = re.findall(r"```text\n(.*?)```", README.read_text(), re.DOTALL)[1]
    printed = transcript(shown, tmp_path).splitlines()
    lines = LOOSE.sub("", shown).splitlines()
    assert [line for line in lines if line not in printed] == []


def test_the_readme_is_a_screen_and_a_half() -> None:
    assert len(README.read_text().splitlines()) <= 90


def transcript(text: str, folder: Path) -> str:
    """The commands of a transcript, each followed by what it prints now."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    lines = []
    for line in text.splitlines():
        if not line.startswith("$ "):
            continue
        done = subprocess.run(
            line.removeprefix("$ "),
            shell=True,
            cwd=folder,
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        lines += [line, *done.stdout.splitlines()]
    return "".join(f"{line}\n" for line in lines)


def test_what_python_imports_is_there() -> None:
    for block in blocks("python"):
        compile(block, "<page>", "exec")
        exec("\n".join(line for line in block.splitlines() if line.startswith("from ")), {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).is_file()] == []
