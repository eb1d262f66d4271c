"""The command as tests call it: in this process, in a folder with a fabric and a job."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scheduler import cli
from tests.commands import JOB, MINI, Muster, Result


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
