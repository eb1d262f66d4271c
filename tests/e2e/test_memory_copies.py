"""Real gangs that go on from copies in memory."""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.agent.copies.host_copies import MEMORY
from scheduler.client import Client
from scheduler.core.policies.job_terms import CheckpointTerms, RunSpec
from scheduler.v1 import job_pb2
from tests.e2e.gangs import ROOT, begins_at, gang, local_server, until

PROGRAM = str(ROOT / "examples" / "gang" / "train_sharded.py")


def start(client: Client, folder: Path, *arguments: str) -> job_pb2.Job:
    """A gang on two hosts with a spare, each rank of which keeps a state of two megabytes."""
    command = (sys.executable, PROGRAM, "--state-mb", "2", "--checkpoints", str(folder / "c"))
    run = RunSpec((*command, *arguments), (("PYTHONPATH", str(ROOT)),), "/tmp")
    terms = CheckpointTerms(peers=1, peer_interval_s=1)
    client.create_job(replace(gang("a", folder), run=run, checkpoint=terms))
    return until(client, "a", lambda job: job.progress.copied_step > 0)


def begun(client: Client, attempt: int) -> job_pb2.Job:
    """The job once this attempt, or a later one, has made a step."""
    return until(client, "a", lambda job: job.attempt >= attempt and job.progress.step > 0, 60)


def source(client: Client, rank: int) -> str:
    """With what a rank of the last attempt began."""
    return b"".join(client.tail_logs("a", rank)).decode().splitlines()[1]


@pytest.mark.slow
def test_a_gang_goes_on_from_memory_after_a_rank_or_a_host_is_gone(tmp_path: Path) -> None:
    with local_server(tmp_path, "--agent-copies-gb", "1") as (server, client):
        first = start(client, tmp_path, "--steps", "400", "--save-every", "1000")
        os.kill(server.ranks(first.placement.hosts[0])[-1], signal.SIGKILL)
        second = begun(client, 2)
        assert begins_at(client, "a") >= first.progress.copied_step
        assert source(client, 0).startswith("memory, own: ")
        assert list(second.placement.hosts) == list(first.placement.hosts)
        second = until(client, "a", lambda job: job.progress.copied_step > 0)
        victim = second.placement.hosts[1]
        with server.host(victim).dead():
            third = begun(client, 3)
        assert victim not in third.placement.hosts
        assert begins_at(client, "a") >= second.progress.copied_step
        assert [source(client, rank)[:12] for rank in (1, 2)] == ["memory, own:", "memory, kept"]
        assert third.saved_checkpoint.step == 0
        last = until(client, "a", lambda job: job.state == job_pb2.JOB_STATE_COMPLETED, 120)
        for rank in range(4):
            end = b"".join(client.tail_logs("a", rank)).decode().splitlines()[-1]
            assert end == "done: 400 steps, as meant"
        assert last.attempt == 3
        until(client, "a", lambda _: not list(MEMORY.glob(f"muster-*/{last.uid}/own/rank-*")))
