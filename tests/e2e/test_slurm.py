"""`muster serve --launcher slurm` on a real Slurm of six nodes, with real gangs."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scheduler.client import Client
from scheduler.core import JobSpec
from scheduler.core.policies.job_terms import HangAction, HangTerms, RunSpec
from scheduler.v1 import host_pb2, job_pb2, service_pb2
from scripts.local_host import send
from tests.e2e.gangs import gang, has_saved, is_launched, on_nodes, until
from tests.e2e.processes import MUSTER, RunningServer, muster, type_into
from tests.e2e.test_roles import resize_one_role
from tests.slurm import SlurmCluster, needs_slurm, slurm_cluster
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, needs_slurm]
LEASE_S = 4
CALM_LEASE_S = 20  # where nothing is frozen: a busy machine loses no host


@contextmanager
def slurm_server(
    folder: Path,
    holding: str = "whole",
    lease_s: int = CALM_LEASE_S,
    step: str = "allocation",
    before: Callable[[SlurmCluster], None] = lambda cluster: None,
    **more: Any,
) -> Iterator[tuple[RunningServer, SlurmCluster, Client]]:
    """`muster serve --launcher slurm` on six nodes. `before`: is done to the cluster before the
    server starts."""
    with slurm_cluster(folder, 6) as cluster:
        before(cluster)
        terms = {"holding": holding, "step": step, "state": str(folder / "agents" / "%h")}
        terms |= {"muster": MUSTER} | more
        options = on_nodes(folder, cluster.nodes, "slurm", terms, lease_s)
        server = RunningServer(folder, options, env=cluster.env)
        server.start()
        try:
            with Client(server.address) as client:
                yield server, cluster, client
        finally:
            server.end()


def test_a_gang_on_slurm_survives_a_rank_a_host_a_freeze_a_drain_and_slurmctld(
    tmp_path: Path,
) -> None:
    with slurm_server(tmp_path / "s", lease_s=LEASE_S) as (_, cluster, client):
        wait_until(lambda: cluster.jobs() == ["muster:hosts RUNNING n[1-6]"], 20)
        client.create_job(gang("a", tmp_path, steps=10**6))
        first = until(client, "a", is_launched(1))
        until(client, "a", has_saved)
        assert "join:" not in "".join(_command_lines())
        assert "gpu:2" in cluster.call("scontrol", "-d", "show", "step")  # its ranks may use them
        os.kill(cluster.ranks(first.placement.hosts[0])[-1], signal.SIGKILL)
        second = until(client, "a", is_launched(2))
        assert list(second.placement.hosts) == list(first.placement.hosts)
        victim, spare = second.placement.hosts[1], second.placement.spares[0]
        cluster.stop_controller()  # what is on the hosts goes on without it
        killed_s = time.monotonic()
        cluster.kill_node(victim)
        third = until(client, "a", is_launched(3))
        took_s = time.monotonic() - killed_s
        assert took_s < 10, took_s  # 0.7 s on two busy cores
        assert third.placement.hosts[1] == spare
        cluster.start_controller()
        frozen = third.placement.hosts[1]
        stale = cluster.ranks(frozen)
        pids = cluster.processes(frozen)
        send(signal.SIGSTOP, *pids)
        fourth = until(client, "a", is_launched(4))
        assert frozen not in fourth.placement.hosts
        send(signal.SIGCONT, *pids)
        until(client, "a", lambda _: not set(stale) & set(cluster.ranks(frozen)))
        leaving = fourth.placement.hosts[0]
        cluster.call("scontrol", "update", f"nodename={leaving}", "state=drain", "reason=disk")
        fifth = until(client, "a", is_launched(5), 60)
        assert leaving not in fifth.placement.hosts
        assert client.get_host(leaving).cordon_reason.startswith("slurm: disk")
        cluster.start_node(victim)
        healthy = host_pb2.HOST_STATE_HEALTHY
        wait_until(lambda: client.get_host(victim).state == healthy, 90)
        client.cancel_job("a")
        wait_until(lambda: not any(cluster.ranks(node) for node in cluster.nodes), 20)


def test_an_allocation_a_gang_is_found_again_by_the_next_server_and_given_back(
    tmp_path: Path,
) -> None:
    with slurm_server(tmp_path / "s", "gang") as (server, cluster, client):
        assert cluster.jobs() == []
        client.create_job(gang("a", tmp_path, steps=10**6))
        job = until(client, "a", is_launched(1))
        (row,) = cluster.jobs()
        assert row.startswith(f"muster:{job.uid} RUNNING")
        ranks = cluster.ranks(job.placement.hosts[0])
        until(client, "a", has_saved)
        server.end(signal.SIGKILL)
        cluster.call("salloc", "--no-shell", "-N1", "--exclusive", "-J", "muster:nobody")
        server.start()
        wait_until(lambda: cluster.jobs() == [row], 20)  # the orphan is cancelled
        before = client.get_job("a").saved_checkpoint.step
        until(client, "a", lambda job: job.saved_checkpoint.step > before, 90)
        assert client.get_job("a").attempt == 1
        assert set(ranks) <= set(cluster.ranks(job.placement.hosts[0]))
        client.create_job(_short("b", tmp_path))
        until(client, "b", lambda job: job.state == job_pb2.JOB_STATE_COMPLETED, 60)
        client.cancel_job("a")
        wait_until(lambda: cluster.jobs() == [], 30)
        assert not any(cluster.ranks(node) for node in cluster.nodes)


def test_each_attempt_is_a_step_and_nothing_stays_on_the_hosts_behind_it(tmp_path: Path) -> None:
    with slurm_server(tmp_path / "s", lease_s=LEASE_S, step="attempt") as (server, cluster, client):
        wait_until(lambda: cluster.jobs() == ["muster:hosts RUNNING n[1-6]"], 20)
        assert cluster.steps() == []
        client.create_job(gang("a", tmp_path, steps=10**6))
        first = until(client, "a", is_launched(1))
        hosts = list(first.placement.hosts)
        assert [name for name, _ in cluster.steps()] == ["a.1"]
        until(client, "a", has_saved)
        os.kill(cluster.ranks(hosts[0])[-1], signal.SIGKILL)
        second = until(client, "a", is_launched(2))
        assert list(second.placement.hosts) == hosts
        wait_until(lambda: [name for name, _ in cluster.steps()] == ["a.2"], 10)
        victim, spare = hosts[1], second.placement.spares[0]
        killed_s = time.monotonic()
        cluster.kill_node(victim)
        third = until(client, "a", is_launched(3))
        assert time.monotonic() - killed_s < 20
        assert third.placement.hosts[1] == spare
        assert all(
            not cluster.processes(node) for node in cluster.nodes if node not in [*hosts, spare]
        )
        ranks = cluster.ranks(hosts[0])
        server.end(signal.SIGKILL)
        server.start()
        cluster.start_node(victim)
        wait_until(lambda: client.get_host(victim).state == host_pb2.HOST_STATE_HEALTHY, 90)
        client.create_job(_short("b", tmp_path))
        until(client, "b", lambda job: job.state == job_pb2.JOB_STATE_COMPLETED, 60)
        assert client.get_job("a").attempt == 3
        assert set(ranks) <= set(cluster.ranks(hosts[0]))
        client.cancel_job("a")
        wait_until(lambda: not any(cluster.processes(node) for node in [hosts[0], spare]), 20)


@pytest.mark.parametrize("step", ["allocation", "attempt"])
def test_a_gang_on_slurm_is_entered_goes_on_with_its_run_and_is_restarted_when_it_hangs(
    tmp_path: Path, step: str
) -> None:
    with slurm_server(tmp_path / "s", "gang", step=step) as (server, cluster, client):
        address = server.address
        client.create_job(gang("a", tmp_path, steps=30))
        first = until(client, "a", lambda job: job.state == job_pb2.JOB_STATE_COMPLETED, 60)
        assert first.saved_checkpoint.step == 30

        more = gang("a", tmp_path, steps=10**6)
        client.create_job(replace(more, hang=HangTerms(3, HangAction.RESTART)))
        job = until(client, "a", is_launched(1), 60)
        until(client, "a", lambda job: job.progress.step > 40, 60)
        assert b"attempt 1: from step 30" in b"".join(client.tail_logs("a"))

        said = muster("exec", "a", "--rank", "2", "--", "printenv", "RANK", address=address)
        assert (said.returncode, said.stdout) == (0, "2\n"), said.stderr
        typed = b"echo at $((RANK + 40)); exit 4\n"
        code, written = type_into(typed, "shell", "a", "--rank", "3", address=address)
        assert (code, b"at 43" in written) == (4, True)

        late = job.placement.hosts[1]
        os.kill(cluster.ranks(late)[0], signal.SIGSTOP)
        job = until(client, "a", lambda job: job.hang != "" or job.attempt > 1, 60)
        until(client, "a", is_launched(2), 60)
        hung = service_pb2.JOB_CHANGE_HUNG
        found = next(each for each in client.watch_jobs(0, "a") if each.change == hung)
        assert f"on {late}" in found.job.hang
        stacks = muster("logs", "a", "--attempt", "1", "--stacks", address=address)
        assert "train.py" in stacks.stdout or step == "attempt", stacks.stderr
        client.cancel_job("a")


def test_one_role_of_a_gang_on_slurm_resizes_alone(tmp_path: Path) -> None:
    with slurm_server(tmp_path / "s", "gang", step="attempt") as (_, cluster, client):
        resize_one_role(client, tmp_path, cluster.ranks, 2)


def reserve(cluster: SlurmCluster) -> None:
    """Node n3 is kept for others, and n6 from when it would be asked for."""
    words = ["scontrol", "create", "reservation", "users=nobody"]
    cluster.call(*words, "reservationname=ada", "starttime=now", "duration=60", "nodes=n3")
    times = ["starttime=now+1hour", "duration=60", "flags=time_float"]  # found by asking alone
    cluster.call(*words, "reservationname=later", *times, "nodes=n6")


def test_nodes_that_slurm_refuses_are_named_and_cost_neither_gangs_nor_health(
    tmp_path: Path,
) -> None:
    with slurm_server(tmp_path / "s", before=reserve) as (_, cluster, client):
        wait_until(lambda: client.get_host("n3").cordon_reason, 20)
        reason = client.get_host("n3").cordon_reason
        assert reason.startswith("slurm: refused: reservation ada of nobody until ")
        wait_until(lambda: client.get_host("n6").cordon_reason, 60)
        reason = client.get_host("n6").cordon_reason
        assert reason.startswith("slurm: refused: ReqNodeNotAvail")
        client.create_job(gang("a", tmp_path, steps=10**6))
        job = until(client, "a", is_launched(1))
        assert {"n3", "n6"}.isdisjoint(job.placement.hosts)
        client.create_job(gang("b", tmp_path, steps=10**6, hosts=5))
        obstacles = client.explain_job("b").reason.obstacles
        assert reason in [each.name for each in obstacles]
        cluster.call("scontrol", "delete", "reservationname=ada")
        wait_until(lambda: any(row.endswith(" n3") for row in cluster.jobs()), 60)
        wait_until(lambda: not client.get_host("n3").cordon_reason, 20)
        for host in client.list_hosts():
            assert host.state in (host_pb2.HOST_STATE_HEALTHY, host_pb2.HOST_STATE_CORDONED)
            assert host.record.failures == 0, host.name


def take_license(cluster: SlurmCluster) -> None:
    cluster.conf.write_text(cluster.conf.read_text() + "Licenses=seats:1\n")
    cluster.call("scontrol", "reconfigure")
    other = ["salloc", "--no-shell", "--nodelist=n4", "--job-name=other"]
    cluster.call(*other, "--licenses=seats:1")


def test_licenses_that_others_have_are_named_and_waited_for(tmp_path: Path) -> None:
    terms = slurm_server(tmp_path / "s", "gang", before=take_license, licenses="seats:1")
    with terms as (_, cluster, client):
        client.create_job(gang("a", tmp_path, steps=10**6))
        reason = "slurm: refused: Licenses"
        wait_until(lambda: any(h.cordon_reason == reason for h in client.list_hosts()), 60)
        cluster.call("scancel", "--name", "other")
        # As attempt 2 where it went to another host before it was launched.
        until(client, "a", lambda job: job.HasField("launch_time"), 120)
        wait_until(lambda: not any(h.cordon_reason for h in client.list_hosts()), 20)
        assert not any(host.record.failures for host in client.list_hosts())


def test_a_gang_goes_on_in_the_next_allocation_before_a_limit_ends_the_last(
    tmp_path: Path,
) -> None:
    def limit(cluster: SlurmCluster) -> None:
        cluster.call("scontrol", "update", "partitionname=main", "maxtime=1")

    with slurm_server(tmp_path / "s", before=limit) as (server, _, client):
        client.create_job(gang("a", tmp_path, steps=10**6))
        until(client, "a", is_launched(1))
        second = until(client, "a", is_launched(2), 120)
        assert second.saved_checkpoint.step > 0
        assert not any(host.record.failures for host in client.list_hosts())
        log = server.log.read_text()
        assert "its time is nearly over" in log
        assert "TIMEOUT" not in log


def _short(name: str, folder: Path) -> JobSpec:
    made = gang(name, folder, steps=5)
    return replace(made, run=RunSpec(("true",), workdir="/tmp"))


def _command_lines() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_text()
        except OSError:
            continue
