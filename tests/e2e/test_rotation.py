"""The CA and the secret of join tokens change while gangs run: no rank notices."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from placement.workload.request import NO_SPARES
from scheduler.client import Client
from scheduler.client.credentials import Credentials
from scheduler.files.fabrics import fabricyaml
from scripts.local_host import LocalHost
from tests.build import fabric_spec
from tests.e2e.gangs import allow_own_user, configured, gang, is_launched, until
from tests.e2e.processes import MUSTER, RunningServer, muster
from tests.ports import free_port

HOSTS = ("z0-r0-h0", "z0-r0-h1")


class Site:
    """One server with TLS, whose agents prove their hosts by join tokens."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.agent_address = folder, f"localhost:{free_port()}"
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        self.muster("certs", "init", "--server", "localhost", "--folder", "tls")
        fabric = fabricyaml.dump(fabric_spec(1, 1, 2, gpus=2))
        (folder / "fabric.yaml").write_text(fabric)
        self.allowed = allow_own_user(folder)
        keys = {
            "listen": f"localhost:{free_port()}",
            "store": "sqlite:///m.db",
            "fabric": "fabric.yaml",
            "tls": {"certificate": "tls/server.pem", "key": "tls/server.key"},
            "agents": {"listen": self.agent_address, "join_secret": "join-secret"},
        }
        for host in HOSTS:
            self.write_token(host)
        self.server = RunningServer(folder, configured(folder, keys))
        self.server.start()
        for host in HOSTS:
            self.start_agent(host)

    def muster(self, *words: str) -> str:
        done = muster(*words, folder=self.folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def write_token(self, host: str) -> None:
        token = self.muster("agent-token", host, "--secret", "join-secret")
        (self.folder / f"{host}.token").write_text(token)

    def start_agent(self, host: str) -> None:
        options = {
            "server": self.agent_address,
            "name": host,
            "state": host,
            "allow": self.allowed,
            "ca": "tls/ca.pem",
            "join-token-file": f"{host}.token",
            "address": "127.0.0.1",
        }
        command = [MUSTER, "agent", *(f"--{name}={text}" for name, text in options.items())]
        with (self.folder / f"{host}.log").open("ab") as log:
            self.agents[host] = subprocess.Popen(command, cwd=self.folder, stderr=log)

    def restart_agents(self) -> None:
        """As systemd restarts the unit, whose KillMode leaves ranks alone."""
        self.stop_agents()
        for host in HOSTS:
            self.start_agent(host)

    def stop_agents(self) -> None:
        for process in self.agents.values():
            process.terminate()
            process.wait(60)

    def ranks(self) -> dict[str, list[int]]:
        return {host: LocalHost(self.folder / host).ranks() for host in HOSTS}

    def client(self) -> Client:
        who = Credentials(ca=str(self.folder / "tls" / "ca.pem"))
        return Client(self.server.address, credentials=who)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    try:
        yield made
    finally:
        made.stop_agents()
        made.server.end()


def test_a_gang_runs_on_while_the_ca_and_the_join_secret_are_replaced(site: Site) -> None:
    with site.client() as client:
        client.create_job(gang("a", site.folder, steps=10**6, spares=NO_SPARES))
        until(client, "a", is_launched(1))
    ranks = site.ranks()
    assert all(ranks.values())
    # docs/operations.md, "Rotate", as typed: first the CA.
    tls, new = site.folder / "tls", site.folder / "new"
    site.muster("certs", "init", "--server", "localhost", "--folder", "new")
    old_ca = (tls / "ca.pem").read_text()
    (tls / "ca.pem").write_text(old_ca + (new / "ca.pem").read_text())
    site.restart_agents()
    for name in ("server.key", "server.pem"):
        shutil.copy(new / name, tls / f"{name}.new")
        os.replace(tls / f"{name}.new", tls / name)
    shutil.copy(new / "ca.pem", tls / "ca.pem")
    # Then the secret of join tokens, of which both count for a while.
    secret = site.folder / "join-secret"
    old = secret.read_text()
    secret.unlink()
    site.write_token(HOSTS[0])
    secret.write_text(secret.read_text().strip() + "\n" + old)
    for host in HOSTS:
        site.write_token(host)
    site.restart_agents()
    secret.write_text(secret.read_text().split()[0] + "\n")
    site.restart_agents()  # a token of the old secret would be refused from here on
    with site.client() as client:
        step = client.get_job("a").progress.step
        until(client, "a", lambda job: job.progress.step > step)
        assert client.get_job("a").attempt == 1
        assert site.ranks() == ranks
        client.cancel_job("a")
        until(client, "a", lambda _: not any(site.ranks().values()))
