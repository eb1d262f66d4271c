"""When an agent probes its host, and that a probe which hangs holds up nothing."""

import asyncio
import sys
from pathlib import Path

import pytest

from scheduler.agent.checks import prober as module
from scheduler.agent.checks.prober import HostProber
from scheduler.v1 import agent_pb2


def made(tmp_path: Path, program: str, every_s: int = 600) -> HostProber:
    prober = HostProber(tmp_path / "memory", (sys.executable, "-S", "-c", program))
    order = agent_pb2.ProbeHost(gpus=8)
    order.every.FromSeconds(every_s)
    prober.follow(order)
    return prober


SAYS = """
import json, sys
finding = {"signal": "thermal", "detail": "91 C", "gpu": 3, "value": 0}
whole = {"signal": "fan-fault", "detail": "stuck", "gpu": None, "value": 0}
print(json.dumps({"readings": " ".join(sys.argv[1:]), "findings": [finding, whole]}))
"""


async def test_a_host_is_probed_at_once_then_now_and_then_and_after_each_job(
    tmp_path: Path,
) -> None:
    prober = made(tmp_path, SAYS)
    assert not prober.begins(0.0, is_idle=False)
    assert prober.begins(1.0, is_idle=True)
    assert not prober.begins(700.0, is_idle=True)  # the first has not ended
    word = await prober.probe()
    assert word.readings == f"8 {tmp_path / 'memory'}"
    thermal, fan = word.findings
    assert (thermal.signal, thermal.detail, thermal.gpu) == ("thermal", "91 C", 3)
    assert not fan.HasField("gpu")
    assert not prober.begins(600.9, is_idle=True)
    assert prober.begins(601.0, is_idle=True)
    await prober.probe()
    assert not prober.begins(700.0, is_idle=False)
    assert prober.begins(701.0, is_idle=True)
    # Where the server does not say so, none is.
    assert not HostProber(tmp_path / "memory").begins(0.0, is_idle=True)
    assert not made(tmp_path, SAYS, every_s=0).begins(0.0, is_idle=True)


async def test_a_probe_that_fails_says_why(tmp_path: Path) -> None:
    for program, text in [
        ("raise SystemExit('no /sys here')", "the probe has failed: no /sys here"),
        ("raise SystemExit(3)", "the probe has failed: exit code 3"),
        ("print('hello')", "the probe has failed: Expecting value"),
        ("print('{}')", "the probe has failed: 'findings'"),
    ]:
        word = await made(tmp_path, program).probe()
        assert word.readings.startswith(text)
        assert not word.findings


async def test_a_probe_that_hangs_is_given_up_and_the_loop_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LIMIT_S", 0.2)
    prober = made(tmp_path, "import time; time.sleep(600)")
    assert prober.begins(0.0, is_idle=True)
    probing = asyncio.create_task(prober.probe())
    ticks = 0
    while not probing.done():
        await asyncio.sleep(0.01)
        ticks += 1
    assert ticks > 1
    word = await probing
    assert word.readings == "the probe has taken longer than 0.2 s"
    assert not word.findings
    process = prober._process
    assert process is not None
    assert await asyncio.wait_for(process.wait(), 60) == -9
    assert prober.begins(600.0, is_idle=True)


async def test_a_probe_that_cannot_be_ended_is_a_stuck_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LIMIT_S", 0.2)
    prober = made(tmp_path, "import time; time.sleep(600)")
    kills: list[int] = []
    monkeypatch.setattr(
        asyncio.subprocess.Process, "kill", lambda process: kills.append(process.pid)
    )
    await prober.probe()
    word = await prober.probe()
    assert [finding.signal for finding in word.findings] == ["predicted-failure"]
    assert len(set(kills)) == 1  # no other was begun beside it
    monkeypatch.undo()
    assert prober._process is not None
    prober._process.kill()
    await prober._process.wait()
