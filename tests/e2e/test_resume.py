"""A replay that is killed goes on from its last snapshot, to the same bytes."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from random import Random

from tests.e2e.processes import MUSTER
from tests.splits import written

ROW = "{} {} -1 {} {} -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1\n"
FABRIC = """\
name: machine
gpus_per_host: 1
tiers:
  - {name: zone, count: 4}
  - {name: host, count: 16}
"""


def inputs(folder: Path) -> tuple[str, ...]:
    """250 jobs on 64 hosts that fail: some seconds of work."""
    random, at_s, rows = Random(11), 0, []
    for number in range(250):
        at_s += random.randint(0, 200)
        rows.append((number, at_s, random.randint(10, 4_000), random.choice([1, 2, 8, 24, 64])))
    (folder / "t.swf").write_text("".join(ROW.format(*row) for row in rows))
    (folder / "m.yaml").write_text(FABRIC)
    options = ("--trace-format", "swf", "--fabric", "m.yaml", "--seed", "2")
    return ("t.swf", *options, "--failures", "poisson:rate=900,repair_h=1")


def begin(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [MUSTER, "replay", *arguments]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, told = process.communicate(timeout=120)
    return process.returncode, told


def await_another(path: Path, before: bytes) -> bytes:
    """The next snapshot at `path`."""
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        now = path.read_bytes() if path.exists() else before
        if now != before:
            return now
        time.sleep(0.01)
    raise AssertionError("no snapshot was written")


def test_kill_9_twice_then_ctrl_c(tmp_path: Path) -> None:
    arguments = inputs(tmp_path)
    assert finish(begin(tmp_path, *arguments, "--report", "whole"))[0] == 0

    saving = ("--snapshot", "a.snap", "--snapshot-every-s", "0.05", "--report", "parts")
    resume = ("--resume", "a.snap", *saving)
    found = b""
    for number in range(2):
        process = begin(tmp_path, *(resume if number else (*arguments, *saving)))
        found = await_another(tmp_path / "a.snap", found)
        found = await_another(tmp_path / "a.snap", found)
        process.kill()
        assert finish(process)[0] == -signal.SIGKILL
    process = begin(tmp_path, *resume)
    await_another(tmp_path / "a.snap", (tmp_path / "a.snap").read_bytes())
    process.send_signal(signal.SIGINT)
    code, told = finish(process)
    assert code == 128 + signal.SIGINT
    assert "muster replay --resume a.snap --report parts --snapshot a.snap" in told
    assert not (tmp_path / "parts" / "totals.json").exists()

    assert finish(begin(tmp_path, "--resume", "a.snap", "--report", "parts"))[0] == 0

    whole, parts = written(tmp_path / "whole"), written(tmp_path / "parts")
    assert whole.keys() == parts.keys()
    assert {name for name in whole if whole[name] != parts[name]} == set()
