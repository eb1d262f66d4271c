"""Real gangs on hosts of this machine: started, killed in every way, and back."""

import json
import os
import re
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from placement.workload.parallelism import Parallelism
from placement.workload.request import NO_SPARES
from scheduler.agent.copies.host_copies import MEMORY
from scheduler.client import Client
from scheduler.core.policies.job_terms import CheckpointTerms, RunSpec
from scheduler.v1 import host_pb2, job_pb2
from scripts.local_host import send
from tests.e2e.gangs import ROOT, Local, begins_at, gang, is_launched, local_server, until
from tests.e2e.shell import answered
from tests.waiting import wait_until

COMPLETED = job_pb2.JOB_STATE_COMPLETED
SHARDED = str(ROOT / "examples" / "gang" / "train_sharded.py")


def test_a_gang_runs_and_its_job_ends_by_exit_codes(local: Local, tmp_path: Path) -> None:
    server, client = local
    client.create_job(gang("a", tmp_path, steps=20, spares=NO_SPARES))
    job = until(client, "a", lambda job: job.state == COMPLETED)
    assert (job.attempt, job.saved_checkpoint.step) == (1, 20)
    lines = b"".join(client.tail_logs("a", 1)).decode().splitlines()
    assert lines[0].startswith("attempt 1: from step 0")
    assert lines[-1].startswith("done: 20 steps")
    assert b"".join(client.tail_logs("a", 3, 1)).startswith(b"done: 20 steps")
    client.create_job(gang("c", tmp_path, steps=10**6, spares=NO_SPARES))
    until(client, "c", is_launched(1))
    following = client.tail_logs("c", follow=True)
    assert next(following).startswith(b"attempt 1")
    client.cancel_job("c")
    until(client, "c", lambda _: not any(map(server.ranks, server.hosts)))
    # Hosts stop their ranks one after the other: rank 0 may still say that a peer went first.
    assert set(following) <= {b"rank 0: a peer has gone\n"}


@pytest.mark.slow
def test_a_slow_rank_is_found_by_what_ranks_tell_their_agents(tmp_path: Path) -> None:
    """Named with its host, without a file; three reports move the gang off that host."""
    with local_server(tmp_path, lease_s=20) as (server, client):
        early = answered("stragglers", "a", address=server.address)
        slow = ("--slow-rank", "3", "--slower", "1.4", "--step-s", "0.2")
        client.create_job(gang("a", tmp_path, 3, steps=10**6, arguments=slow))
        job = until(client, "a", is_launched(1))
        silent = answered("stragglers", "a", address=server.address)

        def suspects() -> list[dict[str, Any]]:
            found = answered("stragglers", "a", "-o", "json", address=server.address)
            return json.loads(found.stdout)["suspects"] if found.returncode == 0 else []

        (suspect,) = wait_until(suspects, within_s=60)
        for _ in range(3):
            reported = answered("stragglers", "a", "--report", address=server.address)
        moved = until(client, "a", is_launched(2), within_s=60)
    slow_host = job.placement.hosts[1]
    assert (early.returncode, silent.returncode) == (1, 1)
    assert "have not said yet how long they compute" in silent.stderr
    assert (suspect["kind"], suspect["name"], suspect["gpu"]) == ("gpu", slow_host, 1)
    assert 0.3 < suspect["slower"] < 0.5
    assert suspect["confidence"] > 0.9
    assert reported.stderr == f"reported: {slow_host}\n"
    assert slow_host not in moved.placement.hosts
    assert moved.placement.hosts[0] == job.placement.hosts[0]


@pytest.mark.slow
def test_a_killed_rank_a_killed_host_and_a_frozen_one_cost_an_attempt_each(tmp_path: Path) -> None:
    with local_server(tmp_path) as (server, client):
        client.create_job(gang("a", tmp_path, steps=10**6))
        first = until(client, "a", is_launched(1))
        until(client, "a", lambda job: job.saved_checkpoint.step > 0)
        os.kill(server.ranks(first.placement.hosts[0])[-1], signal.SIGKILL)
        second = until(client, "a", is_launched(2))
        assert list(second.placement.hosts) == list(first.placement.hosts)
        victim = second.placement.hosts[1]
        with server.host(victim).dead():
            third = until(client, "a", is_launched(3))
        assert victim not in third.placement.hosts
        frozen = third.placement.hosts[1]
        stale = server.ranks(frozen)
        stopped = server.host(frozen).freeze()
        fourth = until(client, "a", is_launched(4))
        assert frozen not in fourth.placement.hosts
        assert client.get_host(frozen).state == host_pb2.HOST_STATE_FAILED
        send(signal.SIGCONT, *stopped)
        until(client, "a", lambda _: not set(stale) & set(server.ranks(frozen)))
        until(client, "a", lambda _: client.get_host(frozen).state == host_pb2.HOST_STATE_HEALTHY)
        assert client.get_job("a").attempt == 4


@pytest.mark.slow
def test_a_gang_runs_on_through_deaths_of_its_agent_and_of_the_server(tmp_path: Path) -> None:
    with local_server(tmp_path, lease_s=15) as (server, client):  # a server may take 9 s to start
        client.create_job(gang("a", tmp_path, steps=10**6))
        job = until(client, "a", is_launched(1))
        ranks = server.ranks(job.placement.hosts[0])
        os.kill(server.agent(job.placement.hosts[0]), signal.SIGKILL)
        server.end(signal.SIGKILL)
        server.start()
        until(client, "a", lambda job: job.saved_checkpoint.step > 0)
        assert client.get_job("a").attempt == 1
        assert set(ranks) <= set(server.ranks(job.placement.hosts[0]))
        client.drain_host(job.placement.hosts[1])
        moved = until(client, "a", is_launched(2))
        assert job.placement.hosts[1] not in moved.placement.hosts


@pytest.mark.slow
def test_gangs_step_on_and_end_while_all_servers_are_away(tmp_path: Path) -> None:
    lease_s = 2
    with local_server(tmp_path, lease_s=lease_s) as (server, client):
        step = ("--step-s", "0.05")
        client.create_job(gang("long", tmp_path, steps=400, spares=NO_SPARES, arguments=step))
        client.create_job(gang("short", tmp_path, steps=60, spares=NO_SPARES, arguments=step))
        job = until(client, "long", is_launched(1))
        until(client, "short", is_launched(1))
        ranks = {pid for host in job.placement.hosts for pid in server.ranks(host)}
        server.end(signal.SIGKILL)
        time.sleep(3 * lease_s + 1)
        steps_away = server.logs().count("runs on, though no message came")
        server.start()
        short = until(client, "short", lambda job: job.state == COMPLETED)
        assert (short.attempt, short.saved_checkpoint.step) == (1, 60)
        assert ranks == {pid for host in job.placement.hosts for pid in server.ranks(host)}
        end = until(client, "long", lambda job: job.state == COMPLETED, within_s=60)
        assert (end.attempt, end.saved_checkpoint.step, steps_away >= 2) == (1, 400, True)
        lines = b"".join(client.tail_logs("long", 1)).decode().splitlines()
        assert (lines[0].partition(",")[0][:22], lines[-1][:15]) == (
            "attempt 1: from step 0",
            "done: 400 steps",
        )


def stepping(client: Client, name: str, attempt: int) -> job_pb2.Job:
    """The job once this attempt runs, and its agents know that it can save when it is asked to."""
    job = until(client, name, is_launched(attempt))
    until(client, name, lambda _: b"".join(client.tail_logs(name, 1)) != b"")
    time.sleep(2)
    return job


@pytest.mark.slow
def test_an_elastic_gang_saves_before_it_grows_and_before_it_gives_hosts_back(
    tmp_path: Path,
) -> None:
    tenants = tmp_path / "tenants.yaml"
    tenants.write_text("preemption: {min_run_s: 0, checkpoint_s: 0, restart_s: 0}\n")
    options = ("--tenants", str(tenants), "--resize-every-s", "1")
    with local_server(tmp_path, *options) as (_, client):
        never = 10**6  # it saves only when it is asked to
        client.create_job(gang("b", tmp_path, 4, steps=never, spares=NO_SPARES))
        elastic = gang("a", tmp_path, 4, steps=never, save_every=never, min_dp=2, spares=NO_SPARES)
        client.create_job(elastic)
        assert len(stepping(client, "a", 1).placement.hosts) == 2
        client.cancel_job("b")
        assert len(stepping(client, "a", 2).placement.hosts) == 4
        step = begins_at(client, "a")
        assert step > 0
        client.create_job(gang("c", tmp_path, 4, steps=never, spares=NO_SPARES))
        assert len(stepping(client, "a", 3).placement.hosts) == 2
        assert begins_at(client, "a") > step
        until(client, "c", is_launched(1))


def test_jobs_share_a_host_each_with_its_own_gpus(local: Local, tmp_path: Path) -> None:
    """A rank that ends does not touch who is beside it, nor does the attempt after it."""
    server, client = local
    show = ("/bin/sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exec sleep 300")
    placements, ranks = [], []
    for name in ("own", "other"):
        made = gang(name, tmp_path, 1, spares=NO_SPARES)
        request = replace(made.request, parallelism=Parallelism(tp=1), traffic=())
        run = RunSpec(show, workdir="/tmp")
        client.create_job(replace(made, request=request, run=run))
        placements.append(until(client, name, is_launched(1)).placement)
        ranks.append(server.ranks(placements[0].hosts[0]))
    first, second = placements
    (host,) = first.hosts
    assert list(second.hosts) == [host]
    assert (list(first.gpus), list(second.gpus)) == ([0], [1])
    parts = {part.job: list(part.gpus) for part in client.get_host(host).parts}
    assert sorted(parts.values()) == [[0], [1]]
    mine, both = ranks
    beside = set(both) - set(mine)
    os.kill(mine[-1], signal.SIGKILL)
    again = until(client, "own", is_launched(2))
    assert list(again.placement.gpus) == [0]
    assert beside <= set(server.ranks(host))
    assert client.get_job("other").attempt == 1
    for name, gpu in (("own", b"0"), ("other", b"1")):
        assert b"".join(client.tail_logs(name, 0, 1)).split() == [gpu]
    client.cancel_job("own")
    until(client, "own", lambda _: set(server.ranks(host)) == beside)


def test_idle_hosts_are_checked_and_keep_what_was_measured(tmp_path: Path) -> None:
    fails_once = "import sys; print('copied 7.5'); open(sys.argv[1], 'x'); sys.exit('bad cable')"
    fails_once = f"try:\n exec({fails_once!r})\nexcept FileExistsError: pass"
    checks = {"gpus": [], "memory": [], "network": []}
    checks["rate"] = [sys.executable, "-c", fails_once, str(tmp_path / "one has failed")]
    config = tmp_path / "serve.yaml"
    config.write_text(json.dumps({"agents": {"burn_in": checks}}))
    options = ("--config", str(config))
    with local_server(tmp_path, *options, racks=1, hosts=4, lease_s=15) as (server, client):
        client.create_job(gang("a", tmp_path, hosts=1, steps=10**6, spares=NO_SPARES))
        held = set(until(client, "a", is_launched(1)).placement.hosts)
        done = answered("burn-in", "--free", address=server.address)
        assert done.returncode == 0, done.stderr + server.logs()
        hosts = {host.name: host for host in client.list_hosts()}
        checked = {name for name, host in hosts.items() if host.record.measures}
        failed = {name for name in hosts if hosts[name].state == host_pb2.HOST_STATE_FAILED}
        assert checked | failed == set(hosts) - held
        (bad,) = failed
        assert "rate: gate" in hosts[bad].reason, hosts[bad]
        assert "bad cable" in hosts[bad].reason
        for name in checked - failed:
            assert hosts[name].state == host_pb2.HOST_STATE_HEALTHY
            measures = hosts[name].record.measures
            assert set(measures) == {"memory", "network", "rate"}
            assert min(measures.values()) > 0
            assert measures["rate"] == 7.5
        probed = min(checked - failed)
        wait_until(lambda: client.get_host(probed).HasField("probe"))
        shown = answered("host", probed, address=server.address).stdout
        assert re.search(r"burn-in(.|\n)*rate 7.5", shown), shown
        assert re.search(r"^probe +(no NVIDIA|[0-9]+) GPU.* ago$", shown, re.MULTILINE), shown
        refused = answered("burn-in", min(held), address=server.address)
        assert (refused.returncode, "no idle host" in refused.stderr) == (2, True)
        client.cancel_job("a")


# --- copies in memory -----------------------------------------------------------------------------


def begun(client: Client, attempt: int) -> job_pb2.Job:
    """The job once this attempt, or a later one, has made a step."""
    return until(client, "a", lambda job: job.attempt >= attempt and job.progress.step > 0, 60)


def source(client: Client, rank: int) -> str:
    """With what a rank of the last attempt began."""
    return b"".join(client.tail_logs("a", rank)).decode().splitlines()[1]


@pytest.mark.slow
def test_a_gang_goes_on_from_memory_after_a_rank_or_a_host_is_gone(tmp_path: Path) -> None:
    """Each rank of a gang on two hosts with a spare keeps a state of two megabytes."""
    options = {"state-mb": "2", "checkpoints": tmp_path / "c", "steps": "400", "save-every": "1000"}
    words = (f"--{name}={text}" for name, text in options.items())
    run = RunSpec((sys.executable, SHARDED, *words), (("PYTHONPATH", str(ROOT)),), "/tmp")
    terms = CheckpointTerms(peers=1, peer_interval_s=1)
    with local_server(tmp_path, "--agent-copies-gb", "1") as (server, client):
        client.create_job(replace(gang("a", tmp_path), run=run, checkpoint=terms))
        first = until(client, "a", lambda job: job.progress.copied_step > 0)
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
        last = until(client, "a", lambda job: job.state == COMPLETED, 120)
        for rank in range(4):
            end = b"".join(client.tail_logs("a", rank)).decode().splitlines()[-1]
            assert end == "done: 400 steps, as meant"
        assert last.attempt == 3
        until(client, "a", lambda _: not list(MEMORY.glob(f"muster-*/{last.uid}/own/rank-*")))
