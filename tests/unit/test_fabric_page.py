"""docs/fabric.md shows what `muster links` prints today; `--rewrite` renews it."""

import re
import shlex
from pathlib import Path

import pytest

from scheduler import cli

PAGE = Path(__file__).parents[2] / "docs" / "fabric.md"
TRANSCRIPT = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)


def printed(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> str:
    monkeypatch.setattr("sys.argv", shlex.split(command))
    with pytest.raises(SystemExit):
        cli.main()
    return capsys.readouterr().out


@pytest.mark.slow
def test_transcripts_are_what_is_printed(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
) -> None:
    def renewed(found: re.Match[str]) -> str:
        commands = re.findall(r"^\$ (.*)$", found[0], re.MULTILINE)
        assert commands
        return "\n".join(f"$ {c}\n{printed(c, capsys, monkeypatch)}" for c in commands)

    text = PAGE.read_text()
    page = TRANSCRIPT.sub(renewed, text)
    if pytestconfig.getoption("--rewrite"):
        PAGE.write_text(page)
    else:
        assert page == text
