"""docs/twin.md prints what `muster twin` prints today.

`pytest tests/unit/test_twin_page.py --rewrite` writes the transcript anew.
"""

import re
import shlex
from pathlib import Path

import pytest

from tests.commands import Muster
from tests.twins import backup

PAGE = Path(__file__).parents[2] / "docs" / "twin.md"
TRANSCRIPT = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)
PRICES = re.compile(r"```yaml\n(# prices.yaml\n.*?)```", re.DOTALL)


@pytest.mark.slow
def test_the_transcript_is_what_is_printed(
    muster: Muster, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (prices,) = PRICES.findall(text)
    (tmp_path / "prices.yaml").write_text(prices)
    backup(tmp_path / "backup.db")

    def printed(block: re.Match[str]) -> str:
        command = block[0].splitlines()[0]
        words = shlex.split(command.removeprefix("$ muster "))
        result = muster(*words, "--processes", "1")
        assert result.code == 0, result.err
        return f"{command}\n{result.out}"

    now = TRANSCRIPT.sub(printed, text)
    assert now.count("$ muster ") == len(TRANSCRIPT.findall(text)) > 0
    if pytestconfig.getoption("--rewrite"):
        PAGE.write_text(now, encoding="utf-8")
    else:
        assert now == text
