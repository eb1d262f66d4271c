"""`make demo` is the first thing that a newcomer runs: it must do what it says."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
DEMO = str(Path(__file__).parents[2] / "scripts" / "demo.py")


def test_the_demo_does_what_it_says() -> None:
    done = subprocess.run([sys.executable, DEMO], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "stopped cleanly" in done.stdout
    assert "\x1b" not in done.stdout  # plain when piped


def test_interrupted_it_leaves_nothing_behind(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, DEMO],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"TMPDIR": str(tmp_path)},
        text=True,
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "muster serves" in line:
                break
        assert list(tmp_path.iterdir())
        demo.send_signal(signal.SIGINT)
        rest = demo.stdout.read()
    assert demo.returncode == 130, rest
    assert "Traceback" not in rest
    assert not list(tmp_path.iterdir())
