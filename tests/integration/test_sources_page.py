"""docs/sources.md: each thing that the sources name has a command that shows it, or says so."""

import asyncio
import re
import shlex
from pathlib import Path
from time import time_ns

import pytest
from typer.testing import CliRunner

from scheduler.cli.program import app, load_commands
from scheduler.files.inputs import load_fabric
from tests.serving import RUNNING, serving

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "sources.md"


def rows() -> list[list[str]]:
    """The cells of each line: what is named, the command, words of its output."""
    lines = re.findall(r"^\|(?! named|---)(.*)\|$", PAGE.read_text(), re.MULTILINE)
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def test_a_thing_without_a_command_is_called_not_modelled() -> None:
    for named, command, shown in rows():
        assert bool(command) != shown.startswith("*not modelled*"), named


@pytest.mark.slow
async def test_each_command_shows_what_is_named(tmp_path: Path) -> None:
    load_commands()
    spec = load_fabric(str(ROOT / "examples" / "fabric-irregular.yaml")).spec
    wrong, asked = [], 0
    async with serving(tmp_path, fabric_spec=spec, clock=time_ns) as served:
        env = {"MUSTER_ADDRESS": served.ready.address, "COLUMNS": "160"}

        async def run(command: str) -> tuple[int, str]:
            words = [
                str(ROOT / w) if w.startswith("examples/") else w for w in shlex.split(command)
            ]
            ran = await asyncio.to_thread(CliRunner().invoke, app, words[1:], env=env)
            return ran.exit_code, ran.output

        code, output = await run("muster submit examples/small.yaml")
        assert code == 0, output
        await served.until("small", RUNNING)
        for named, command, shown in rows():
            if command:
                code, output = await run(command.strip("`"))
                asked += 1
                if code or shown.strip("`") not in output:
                    wrong.append(f"{named}: {command} ({code}) has no {shown} in: {output[-1500:]}")
    assert asked > 30
    assert not wrong, "\n\n".join(wrong)
