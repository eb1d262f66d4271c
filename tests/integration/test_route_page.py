"""docs/route.md prints what `muster route submit` prints today.

`pytest tests/integration/test_route_page.py --rewrite` writes the transcript anew.
"""

import asyncio
import json
import re
import shlex
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from scheduler.cli import program
from tests.serving import Served, serving

PAGE = Path(__file__).parents[2] / "docs" / "route.md"
TRANSCRIPT = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)
GONE_FROM = 3  # the block before which the second cluster is lost
SIZES = {"east": (4, 7), "west": (4, 1), "lab": (1, 1)}
JOB = """\
name: {}
parallelism: {{tp: 8, pp: 2, dp: 6}}
model: {{layers: 32, hidden: 4096, ffn: 14336, heads: 32, kv_heads: 8, vocab: 128256,
        sequence: 8192}}
batch: {{global_sequences: 48}}
spares: 0
"""


def _fabric(name: str) -> dict[str, Any]:
    hosts, oversubscription = SIZES[name]
    return {
        "name": name,
        "gpus_per_host": 8,
        "nic_gbps": 400,
        "tiers": [
            {"name": "zone", "count": 2, "oversubscription": oversubscription},
            {"name": "rack", "count": 2},
            {"name": "host", "count": hosts},
        ],
    }


async def test_the_transcript_is_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = TRANSCRIPT.findall(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MUSTER_CONFIG", str(tmp_path / "config.yaml"))
    for name in ("train", "second"):
        (tmp_path / f"{name}.yaml").write_text(JOB.format(name))
    printed: list[str] = []
    async with AsyncExitStack() as stack:
        servers: dict[str, Served] = {}
        for name in SIZES:
            (tmp_path / name).mkdir()
            opened = serving(tmp_path / name, fabric_spec=_fabric(name), clock=time.time_ns)
            servers[name] = await stack.enter_async_context(opened)
        contexts = {name: {"address": served.ready.address} for name, served in servers.items()}
        (tmp_path / "config.yaml").write_text(json.dumps({"contexts": contexts}))
        for number, block in enumerate(blocks):
            if number == GONE_FROM:
                servers["west"].stop.set()
                await servers["west"].task
            command = block.splitlines()[0]
            words = shlex.split(command.removeprefix("$ muster "))
            result = await asyncio.to_thread(CliRunner().invoke, program.app, words)
            said = re.sub(r"127\.0\.0\.1:\d+", "10.0.2.1:7443", result.output)
            printed.append(f"{command}\n{said}" + _ending(result.exit_code))
    answers = iter(printed)
    now = TRANSCRIPT.sub(lambda _: next(answers), text)
    assert len(printed) == now.count("$ muster ") == 4
    if pytestconfig.getoption("--rewrite"):
        PAGE.write_text(now, encoding="utf-8")
    else:
        assert now == text


def _ending(code: int) -> str:
    return f"$ echo $?\n{code}\n" if code else ""
