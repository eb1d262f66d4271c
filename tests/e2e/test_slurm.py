"""`muster serve --launcher slurm` on a real Slurm of six nodes, with real gangs."""

import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from placement.workload.request import NO_SPARES
from scheduler.client import Client
from scheduler.core import JobSpec
from scheduler.core.policies.job_terms import HangAction, HangTerms, RunSpec
from scheduler.v1 import host_pb2, job_pb2, service_pb2
from scripts.local_host import send
from tests.e2e.gangs import gang, is_launched, until
from tests.e2e.processes import MUSTER, muster
from tests.e2e.test_roles import resize_one_role
from tests.ports import free_port
from tests.slurm import SlurmCluster, needs_slurm, slurm_cluster
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.slow, needs_slurm]
LEASE_S = 4
CALM_LEASE_S = 20  # where nothing is frozen: a busy machine loses no host


class SlurmServer:
    """`muster serve --launcher slurm` on all nodes of a cluster."""

    def __init__(
        self,
        cluster: SlurmCluster,
        holding: str,
        lease_s: int,
        step: str = "allocation",
        **more: Any,
    ) -> None:
        self.cluster, self.folder = cluster, cluster.folder
        self.address = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[str] | None = None
        (self.folder / "allow.yaml").write_text(
            "users: [root]\ndefault_user: root\nwithout_cgroups: true\n"
        )
        half = len(cluster.nodes) // 2
        zones = [{"name": f"zone{z}", "hosts": cluster.nodes[z * half :][:half]} for z in (0, 1)]
        fabric = {"name": "slurm", "gpus_per_host": 2, "nic_gbps": 400}
        fabric |= {"tiers": [{"name": "zone", "oversubscription": 2}, {"name": "host"}]}
        (self.folder / "fabric.yaml").write_text(yaml.safe_dump(fabric | {"domains": zones}))
        slurm = {"holding": holding, "step": step, "allow": str(self.folder / "allow.yaml")}
        slurm |= {"state": str(self.folder / "agents" / "%h"), "muster": MUSTER} | more
        keys = {"fabric": "fabric.yaml", "store": "sqlite:///m.db", "listen": self.address}
        keys |= {"launcher": "slurm", "slurm": slurm, "agents": {"lease_s": lease_s}}
        (self.folder / "muster.yaml").write_text(yaml.safe_dump(keys | {"log": {"level": "info"}}))

    def start(self) -> None:
        with (self.folder / "serve.log").open("ab") as err:
            self._process = subprocess.Popen(
                [MUSTER, "serve", "--config", str(self.folder / "muster.yaml")],
                cwd=self.folder,
                env=self.cluster.env,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert " on 127.0.0.1:" in line, line + (self.folder / "serve.log").read_text()

    def end(self, number: int = signal.SIGTERM) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        with self._process:
            self._process.wait(60)


@contextmanager
def slurm_server(
    folder: Path, holding: str = "whole", lease_s: int = LEASE_S, step: str = "allocation"
) -> Iterator[tuple[SlurmServer, Client]]:
    with slurm_cluster(folder, 6) as cluster:
        server = SlurmServer(cluster, holding, lease_s, step)
        server.start()
        try:
            with Client(server.address) as client:
                yield server, client
        finally:
            server.end()


def within(seconds: float, holds: Callable[[], Any]) -> None:
    until_s = time.monotonic() + PATIENCE * seconds
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def has_saved(job: job_pb2.Job) -> bool:
    """The log has at most one checkpoint a minute and job: ask of the first attempt alone."""
    return job.HasField("saved_checkpoint")


def test_a_gang_on_slurm_survives_a_rank_a_host_a_freeze_a_drain_and_slurmctld(
    tmp_path: Path,
) -> None:
    with slurm_server(tmp_path / "s") as (server, client):
        cluster = server.cluster
        within(20, lambda: cluster.jobs() == ["muster:hosts RUNNING n[1-6]"])
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
        within(90, lambda: client.get_host(victim).state == healthy)
        client.cancel_job("a")
        within(20, lambda: not any(cluster.ranks(node) for node in cluster.nodes))


def test_an_allocation_a_gang_is_found_again_by_the_next_server_and_given_back(
    tmp_path: Path,
) -> None:
    with slurm_server(tmp_path / "s", "gang", CALM_LEASE_S) as (server, client):
        cluster = server.cluster
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
        within(20, lambda: cluster.jobs() == [row])  # the orphan is cancelled
        before = client.get_job("a").saved_checkpoint.step
        until(client, "a", lambda job: job.saved_checkpoint.step > before, 90)
        assert client.get_job("a").attempt == 1
        assert set(ranks) <= set(cluster.ranks(job.placement.hosts[0]))
        client.create_job(_short("b", tmp_path))
        until(client, "b", lambda job: job.state == job_pb2.JOB_STATE_COMPLETED, 60)
        client.cancel_job("a")
        within(30, lambda: cluster.jobs() == [])
        assert not any(cluster.ranks(node) for node in cluster.nodes)


def test_each_attempt_is_a_step_and_nothing_stays_on_the_hosts_behind_it(tmp_path: Path) -> None:
    with slurm_server(tmp_path / "s", step="attempt") as (server, client):
        cluster = server.cluster
        within(20, lambda: cluster.jobs() == ["muster:hosts RUNNING n[1-6]"])
        assert cluster.steps() == []
        client.create_job(gang("a", tmp_path, steps=10**6))
        first = until(client, "a", is_launched(1))
        hosts = list(first.placement.hosts)
        assert [name for name, _ in cluster.steps()] == ["a.1"]
        until(client, "a", has_saved)
        os.kill(cluster.ranks(hosts[0])[-1], signal.SIGKILL)
        second = until(client, "a", is_launched(2))
        assert list(second.placement.hosts) == hosts
        within(10, lambda: [name for name, _ in cluster.steps()] == ["a.2"])
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
        within(90, lambda: client.get_host(victim).state == host_pb2.HOST_STATE_HEALTHY)
        client.create_job(_short("b", tmp_path))
        until(client, "b", lambda job: job.state == job_pb2.JOB_STATE_COMPLETED, 60)
        assert client.get_job("a").attempt == 3
        assert set(ranks) <= set(cluster.ranks(hosts[0]))
        client.cancel_job("a")
        within(20, lambda: not any(cluster.processes(node) for node in [hosts[0], spare]))


@pytest.mark.parametrize("step", ["allocation", "attempt"])
def test_a_gang_on_slurm_is_entered_goes_on_with_its_run_and_is_restarted_when_it_hangs(
    tmp_path: Path, step: str
) -> None:
    with slurm_server(tmp_path / "s", "gang", CALM_LEASE_S, step) as (server, client):
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
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(MUSTER, [MUSTER, "shell", "a", "--rank", "3", "--address", address])
        os.write(terminal, b"echo at $((RANK + 40)); exit 4\n")
        written = b""
        with suppress(OSError):  # so a terminal ends
            while data := os.read(terminal, 4096):
                written += data
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
        assert b"at 43" in written

        late = job.placement.hosts[1]
        os.kill(server.cluster.ranks(late)[0], signal.SIGSTOP)
        job = until(client, "a", lambda job: job.hang != "" or job.attempt > 1, 60)
        until(client, "a", is_launched(2), 60)
        hung = service_pb2.JOB_CHANGE_HUNG
        found = next(each for each in client.watch_jobs(0, "a") if each.change == hung)
        assert f"on {late}" in found.job.hang
        stacks = muster("logs", "a", "--attempt", "1", "--stacks", address=address)
        assert "train.py" in stacks.stdout or step == "attempt", stacks.stderr
        client.cancel_job("a")


@pytest.mark.parametrize("step", ["allocation", "attempt"])
def test_one_role_of_a_gang_on_slurm_resizes_alone(tmp_path: Path, step: str) -> None:
    with slurm_server(tmp_path / "s", "gang", CALM_LEASE_S, step) as (server, client):
        resize_one_role(client, tmp_path, server.cluster.ranks, 2)


def test_nodes_that_slurm_refuses_are_named_and_cost_neither_gangs_nor_health(
    tmp_path: Path,
) -> None:
    with slurm_cluster(tmp_path / "s", 6) as cluster:
        reserve = ["scontrol", "create", "reservation", "users=nobody"]
        cluster.call(*reserve, "reservationname=ada", "starttime=now", "duration=60", "nodes=n3")
        times = ["starttime=now+1hour", "duration=60", "flags=time_float"]  # found by asking alone
        cluster.call(*reserve, "reservationname=later", *times, "nodes=n6")
        server = SlurmServer(cluster, "whole", CALM_LEASE_S)
        server.start()
        try:
            with Client(server.address) as client:
                within(20, lambda: client.get_host("n3").cordon_reason)
                reason = client.get_host("n3").cordon_reason
                assert reason.startswith("slurm: refused: reservation ada of nobody until ")
                within(60, lambda: client.get_host("n6").cordon_reason)
                reason = client.get_host("n6").cordon_reason
                assert reason.startswith("slurm: refused: ReqNodeNotAvail")
                client.create_job(gang("a", tmp_path, steps=10**6))
                job = until(client, "a", is_launched(1))
                assert {"n3", "n6"}.isdisjoint(job.placement.hosts)
                client.create_job(gang("b", tmp_path, steps=10**6, hosts=5))
                obstacles = client.explain_job("b").reason.obstacles
                assert reason in [each.name for each in obstacles]
                cluster.call("scontrol", "delete", "reservationname=ada")
                within(60, lambda: any(row.endswith(" n3") for row in cluster.jobs()))
                within(20, lambda: not client.get_host("n3").cordon_reason)
                for name in cluster.nodes:
                    assert client.get_host(name).state in (
                        host_pb2.HOST_STATE_HEALTHY,
                        host_pb2.HOST_STATE_CORDONED,
                    )
                    assert client.get_host(name).record.failures == 0, name
        finally:
            server.end()


def test_licenses_that_others_have_are_named_and_waited_for(tmp_path: Path) -> None:
    with slurm_cluster(tmp_path / "s", 4) as cluster:
        conf = cluster.conf.read_text()
        cluster.conf.write_text(conf + "Licenses=seats:1\n")
        cluster.call("scontrol", "reconfigure")
        other = ["salloc", "--no-shell", "--nodelist=n4", "--job-name=other"]
        cluster.call(*other, "--licenses=seats:1")
        server = SlurmServer(cluster, "gang", CALM_LEASE_S, licenses="seats:1")
        server.start()
        try:
            with Client(server.address) as client:
                client.create_job(gang("a", tmp_path, steps=10**6))
                reason = "slurm: refused: Licenses"
                hosts = ("n1", "n2", "n3")
                within(60, lambda: any(client.get_host(n).cordon_reason == reason for n in hosts))
                cluster.call("scancel", "--name", "other")
                # As attempt 2 where it went to another host before it was launched.
                until(client, "a", lambda job: job.HasField("launch_time"), 120)
                within(20, lambda: not any(client.get_host(n).cordon_reason for n in hosts))
                assert not any(client.get_host(n).record.failures for n in cluster.nodes)
        finally:
            server.end()


def test_a_gang_for_which_no_host_is_left_waits_and_goes_on_when_one_is_back(
    tmp_path: Path,
) -> None:
    with slurm_cluster(tmp_path / "s", 4) as cluster:
        server = SlurmServer(cluster, "whole", CALM_LEASE_S)
        (cluster.folder / "tenants.yaml").write_text("restarts: {avoid_s: 1}\n")
        with (cluster.folder / "muster.yaml").open("a") as keys:
            keys.write("tenants: tenants.yaml\n")
        server.start()
        try:
            with Client(server.address) as client:
                client.create_job(gang("a", tmp_path, steps=10**6, hosts=4, spares=NO_SPARES))
                first = until(client, "a", is_launched(1))
                until(client, "a", has_saved)
                victim = first.placement.hosts[1]
                cluster.kill_node(victim)
                job = until(client, "a", lambda job: job.state == job_pb2.JOB_STATE_QUEUED, 60)
                assert client.explain_job("a").reason.missing_hosts == 1
                cluster.start_node(victim)
                second = until(client, "a", is_launched(2), 120)
                assert sorted(second.placement.hosts) == sorted(first.placement.hosts)
                assert second.uid == job.uid
                again = b"attempt 2: from step "
                within(20, lambda: again in b"".join(client.tail_logs("a")))
                client.cancel_job("a")
        finally:
            server.end()


def test_a_gang_goes_on_in_the_next_allocation_before_a_limit_ends_the_last(
    tmp_path: Path,
) -> None:
    with slurm_cluster(tmp_path / "s", 6) as cluster:
        cluster.call("scontrol", "update", "partitionname=main", "maxtime=1")
        server = SlurmServer(cluster, "whole", CALM_LEASE_S)
        server.start()
        try:
            with Client(server.address) as client:
                client.create_job(gang("a", tmp_path, steps=10**6))
                until(client, "a", is_launched(1))
                second = until(client, "a", is_launched(2), 120)
                assert second.saved_checkpoint.step > 0
                assert not any(client.get_host(n).record.failures for n in cluster.nodes)
                log = (cluster.folder / "serve.log").read_text()
                assert "its time is nearly over" in log
                assert "TIMEOUT" not in log
        finally:
            server.end()


def _short(name: str, folder: Path) -> JobSpec:
    made = gang(name, folder, steps=5)
    return replace(made, run=RunSpec(("true",), workdir="/tmp"))


def _command_lines() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_text()
        except OSError:
            continue
