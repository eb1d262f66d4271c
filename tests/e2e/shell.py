"""`muster` in the process of the tests, for what is not about processes."""

import json
import sys
from dataclasses import dataclass
from subprocess import CompletedProcess
from typing import Any

import pytest
from typer.testing import CliRunner

from scheduler.cli import main
from scheduler.cli.program import app, load_commands


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


class Shell:
    """Runs `muster`'s own main() in this process: its start-up is tested elsewhere."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def run(self, *arguments: str) -> Outcome:
        self._monkeypatch.setattr(sys, "argv", ["muster", *arguments])
        with pytest.raises(SystemExit) as finished:
            main()
        written = self._capsys.readouterr()
        assert isinstance(finished.value.code, int)
        return Outcome(finished.value.code, written.out, written.err)

    def asked(self, *arguments: str) -> Any:
        """The JSON answer of a command that must succeed."""
        done = self.run(*arguments, "--format", "json")
        assert (done.code, done.stderr) == (0, "")
        return json.loads(done.stdout)

    def told(self, *arguments: str, code: int) -> str:
        """The one sentence on stderr of a command that must fail."""
        done = self.run(*arguments)
        assert (done.code, done.stdout) == (code, "")
        assert "Traceback" not in done.stderr
        return done.stderr.strip()


def answered(*arguments: str, address: str) -> CompletedProcess[str]:
    """Run one command to its end, as `processes.muster` does, without a process of its own."""
    load_commands()
    done = CliRunner().invoke(app, arguments, env={"MUSTER_ADDRESS": address})
    return CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)
