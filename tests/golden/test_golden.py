"""Every script prints what it printed when it was last looked at.

`pytest tests/golden --rewrite` writes the new trace into the files. Commit a changed
trace only when its cause is understood and wanted.
"""

from pathlib import Path

import pytest

from tests.golden.script import rewritten

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path, request: pytest.FixtureRequest) -> None:
    before = path.read_text(encoding="utf-8")
    after = rewritten(before)
    if request.config.getoption("--rewrite"):
        path.write_text(after, encoding="utf-8")
    else:
        assert after.splitlines() == before.splitlines()


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 5


def test_a_changed_trace_is_seen() -> None:
    script = "fabric zones=1 racks=1 hosts=2\nsubmit a hosts=2\n----\nz0: r0 xx\n\ndraw\n----\n"
    printed = "z0: r0 ..\n00:00 a submitted"
    assert rewritten(script).startswith(
        f"fabric zones=1 racks=1 hosts=2\nsubmit a hosts=2\n----\n{printed}\n"
    )
    assert rewritten(rewritten(script)) == rewritten(script)


def test_commands_without_a_divider_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="no ---- after 'draw'"):
        rewritten("fabric zones=1 racks=1 hosts=2\n----\n\ndraw\n")
