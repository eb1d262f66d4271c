"""The README cannot rot: its commands parse, its transcripts are what is printed today.

`pytest tests/unit/test_readme.py --rewrite` writes the transcripts anew.
"""

from __future__ import annotations

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
TEXT = README.read_text()
TRANSCRIPT = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)
# What no claim rests on: how long it took, and which of several equal layouts it is.
LOOSE = re.compile(r"^\S+ \S+ to place, \S+ \S+ in all$|(^z\d+ .* ms$\n)+", re.MULTILINE)


def blocks(*languages: str) -> Iterator[str]:
    """The fenced blocks in these languages."""
    for language in languages:
        yield from re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def commands() -> list[str]:
    """Every `muster ...` of a block, continued lines joined."""
    lines = "".join(blocks("console", "sh")).replace("\\\n", " ").splitlines()
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
    printed = TRANSCRIPT.sub(lambda found: transcript(found[0], tmp_path), TEXT)
    if pytestconfig.getoption("--rewrite"):
        README.write_text(printed)
    else:
        assert LOOSE.sub("...", printed) == LOOSE.sub("...", TEXT)


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
        compile(block, "README.md", "exec")
        exec("\n".join(line for line in block.splitlines() if line.startswith("from ")), {})


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#]+)\)", TEXT))
def test_a_link_leads_somewhere(target: str) -> None:
    assert (ROOT / target).is_file()
