"""Ctrl-C in a terminal, which all processes of a command get."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from tests.e2e.processes import MUSTER

ROW = "{} {} -1 600 {} -1 -1 {} -1 -1 1 1 1 1 -1 -1 -1 -1\n"


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="of Linux")
@pytest.mark.parametrize("after_s", [0.0, pytest.param(2.0, marks=pytest.mark.slow)])
def test_replays_side_by_side_end_together_and_without_a_word(
    tmp_path: Path, after_s: float
) -> None:
    fabric = {"name": "m", "gpus_per_host": 1, "tiers": [{"name": "host", "count": 64}]}
    (tmp_path / "m.yaml").write_text(yaml.safe_dump(fabric))
    rows = (ROW.format(i, 7 * i, 1 + i % 7, 1 + i % 7) for i in range(200_000))
    (tmp_path / "t.swf").write_text("".join(rows))
    command = [MUSTER, "compare", "t.swf", "--trace-format", "swf", "--fabric", "m.yaml"]
    command += ["--policy", "easy", "--policy", "fifo", "--processes", "2"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # Who starts the tests in the background has it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while len(children(process.pid)) < 3:  # two replays, and what looks after their semaphores
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(after_s)
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)

    assert (process.returncode, stdout, stderr) == (130, b"", b"")
