"""The command as tests call it: in this process, in a folder with a fabric and a job."""

import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
import typer.testing

from scheduler import cli
from tests.commands import JOB, MINI, Muster, Result

_get_command = typer.main.get_command


@cache
def _built(app: typer.Typer, commands: int, groups: int) -> Any:
    return _get_command(app)


def _get_command_once(app: typer.Typer) -> Any:
    """Typer builds its parser again for every call, a tenth of a second; processes make one."""
    return _built(app, len(app.registered_commands), len(app.registered_groups))


typer.main.get_command = _get_command_once
typer.testing._get_command = _get_command_once


@pytest.fixture
def muster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Muster:
    """Runs the command in this process, in a folder with mini.yaml and job.yaml."""
    (tmp_path / "mini.yaml").write_text(MINI)
    (tmp_path / "job.yaml").write_text(JOB)
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["muster", *args])
        with pytest.raises(SystemExit) as finished:
            cli.main()
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Result(int(finished.value.code or 0), out, err)

    return run


@pytest.fixture
def place(muster: Muster) -> Muster:
    def run(*args: str, job: str = "job.yaml", fabric: str = "mini.yaml") -> Result:
        return muster("place", job, "--fabric", fabric, *args)

    return run
