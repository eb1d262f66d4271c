"""A running server gives its state to `muster twin`, whole and of one moment."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from scheduler.cli import program
from scheduler.core import SchedulingOptions
from scheduler.engine.snapshotter import Retention
from scheduler.service.rpc.overview import state as rpc
from scheduler.v1 import service_pb2
from simulator.cli.fork import fork_of_server, fork_of_store
from tests.serving import RUNNING, START_NS, Served, create, serving, url

MOST = SchedulingOptions(policy="fifo", assumed_limit_s=1_234)
KEPT = Retention(snapshot_events=7, log_s=None)


async def _lived(served: Served, ended: int) -> None:
    for i in range(ended):
        await served.stub.CreateJob(create(f"j{i}", 2))
        await served.until(f"j{i}", RUNNING)
        await served.stub.CancelJob(service_pb2.CancelJobRequest(name=f"j{i}"))
    for i in range(6):
        await served.stub.CreateJob(create(f"live{i}", 2))
    await served.until("live0", RUNNING)


async def test_a_fork_is_the_server_in_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "PART", 700)  # several messages, and several jobs in some
    monkeypatch.setattr(rpc, "_PAGE", 4)
    async with serving(tmp_path, options=MOST, retention=KEPT) as served:
        await _lived(served, 11)
        fork = await asyncio.to_thread(fork_of_server, served.ready.address)
        later = await asyncio.to_thread(fork_of_server, served.ready.address)
    stored = await asyncio.to_thread(fork_of_store, url(tmp_path), MOST)
    assert fork.state == later.state == stored.state
    assert fork.options == MOST
    assert fork.ended == stored.ended
    assert [job.name for job in fork.ended] == [f"j{i}" for i in range(11)]
    assert (fork.dropped, fork.source) == (0, served.ready.address)
    assert START_NS < fork.state.seen_ns <= fork.now_ns < later.now_ns


async def test_the_command_asks_the_server(tmp_path: Path) -> None:
    program.load_commands()
    words = ["twin", "--horizon", "2d", "--seeds", "1", "--format", "json"]

    def run(*more: str) -> Any:
        return CliRunner().invoke(program.app, [*words, *more])

    async with serving(tmp_path, options=MOST) as served:
        await _lived(served, 3)
        address = ("--address", served.ready.address, "--processes", "1")
        alone = (*address, "--arrivals", "none")
        done = await asyncio.to_thread(run, *alone, "--change", "policy easy")
        short = await asyncio.to_thread(run, *address)
        wrong = await asyncio.to_thread(run, *address, "--config", "serve.yaml")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert (answer["source"], answer["policy"]) == (served.ready.address, "fifo")
    assert [each["name"] for each in answer["scenarios"]] == ["as it is", "policy easy"]
    assert answer["fitted"][0] == "jobs: nobody comes"
    assert [run["submitted"] for run in answer["scenarios"][0]["runs"]] == [0]
    assert "less than the 1 h 00 min that a rate needs" in str(short.exception)
    assert wrong.exit_code != 0
    assert "goes with --from" in str(wrong.exception)
