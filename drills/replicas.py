"""Three servers on one PostgreSQL, each a process with a network of its own to break."""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

import grpc
import psycopg
import yaml
from psycopg.conninfo import conninfo_to_dict

from drills.proxy import Proxy
from scheduler.v1 import service_pb2, service_pb2_grpc
from tests.build import fabric_spec
from tests.e2e.processes import MUSTER
from tests.ports import free_port
from tests.postgres import Cluster

PATIENCE_S = 60.0


@dataclass
class ReplicaProcess:
    """A `muster serve` that reaches its database through a proxy."""

    folder: Path
    name: str
    database: str
    lease_s: int
    address: str = field(default_factory=lambda: f"127.0.0.1:{free_port()}")
    process: subprocess.Popen[str] | None = None

    def __post_init__(self) -> None:
        parts = conninfo_to_dict(self.database)
        self.proxy = Proxy((str(parts["host"]), int(parts["port"] or 5432)))
        self._store = f"postgresql://{parts['user']}@127.0.0.1:{self.proxy.port}/{parts['dbname']}"
        self._fabric = self.folder / "fabric.yaml"
        self._fabric.write_text(yaml.safe_dump(fabric_spec(2, 4, 2)))
        self._stub = service_pb2_grpc.SchedulerServiceStub(grpc.insecure_channel(self.address))

    def start(self) -> None:
        """Start the server, and return when it is ready."""
        command = [MUSTER, "serve", "--fabric", str(self._fabric), "--store", self._store]
        command += ["--listen", self.address, "--lease-s", str(self.lease_s)]
        log = (self.folder / f"{self.name}.log").open("a")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        log.close()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert f"on {self.address}" in line, self.logged()

    def logged(self) -> str:
        return (self.folder / f"{self.name}.log").read_text()

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: signal.Signals) -> int:
        """Send the signal, wait, and return the exit code."""
        process, self.process = self.process, None
        assert process is not None
        process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        assert process.stdout is not None
        process.stdout.close()
        return process.wait(timeout=30)

    def role(self) -> tuple[str, int]:
        """Return the role and version that the server states; "" when it does not answer."""
        try:
            call = self._stub.ListTenants.with_call
            _, answered = call(service_pb2.ListTenantsRequest(), timeout=0.5)
        except grpc.RpcError:
            return "", 0
        said = dict(answered.trailing_metadata())
        return str(said.get("muster-role", "")), int(said.get("muster-version", 0))


class Trio:
    """Three servers, of which one leads."""

    def __init__(self, folder: Path, cluster: Cluster, lease_s: int) -> None:
        self.cluster = cluster
        self.database = cluster.new_database()
        self.servers = [
            ReplicaProcess(folder, name, self.database, lease_s) for name in ("a", "b", "c")
        ]
        self.addresses = ",".join(server.address for server in self.servers)

    def start(self) -> None:
        starting = [Thread(target=server.start) for server in self.servers]
        for each in starting:
            each.start()
        for each in starting:
            each.join()
        self.leader()

    def leader(self, other_than: ReplicaProcess | None = None) -> ReplicaProcess:
        """Return the server that says it leads, as soon as one does."""
        ends_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < ends_s:
            for server in self.servers:
                if server is not other_than and server.role()[0] == "leader":
                    return server
            time.sleep(0.01)
        raise AssertionError("nobody leads: " + "\n".join(s.logged() for s in self.servers))

    def settled_version(self) -> int:
        """Return the end of the log, once all servers have reached it and exactly one leads."""
        ends_s = time.monotonic() + PATIENCE_S
        said: list[tuple[str, int]] = []
        while time.monotonic() < ends_s:
            said = [server.role() for server in self.servers]
            last = self.rows()[-1][0]
            roles = sorted(role for role, _ in said)
            is_one = roles == ["follower"] * (len(said) - 1) + ["leader"]
            if is_one and {version for _, version in said} == {last}:
                return last
            time.sleep(0.05)
        raise AssertionError(f"they do not agree: {said}")

    def rows(self) -> list[tuple[int, int, str, str]]:
        """Read (version, term, type, body) of the whole log."""
        with psycopg.connect(self.database) as connection:
            found = connection.execute("SELECT version, term, type, body FROM log ORDER BY version")
            return found.fetchall()

    def stop(self) -> list[int]:
        """End all servers in good order, and return their exit codes."""
        return [server.end(signal.SIGTERM) for server in self.servers if server.process]

    def abandon(self) -> None:
        for server in self.servers:
            if server.process:
                server.end(signal.SIGKILL)
            server.proxy.close()
        with suppress(psycopg.Error):
            self.cluster.drop_database(self.database)
