"""Three servers on one PostgreSQL, each a process with a network of its own to break."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

import psycopg
import yaml
from psycopg.conninfo import conninfo_to_dict

from drills.proxy import Proxy
from tests.build import fabric_spec
from tests.e2e.processes import RunningServer
from tests.ports import free_port
from tests.postgres import Cluster

PATIENCE_S = 60.0


class ReplicaProcess(RunningServer):
    """A `muster serve` that reaches its database through a proxy."""

    def __init__(self, folder: Path, name: str, database: str, lease_s: int) -> None:
        parts = conninfo_to_dict(database)
        self.name = name
        self.proxy = Proxy((str(parts["host"]), int(parts["port"] or 5432)))
        store = f"postgresql://{parts['user']}@127.0.0.1:{self.proxy.port}/{parts['dbname']}"
        fabric = folder / "fabric.yaml"
        fabric.write_text(yaml.safe_dump(fabric_spec(2, 4, 2)))
        address = f"127.0.0.1:{free_port()}"
        options = ["--fabric", str(fabric), "--store", store, "--listen", address]
        super().__init__(folder, [*options, "--lease-s", str(lease_s)], name)
        self.address = address


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
        raise AssertionError("nobody leads: " + "\n".join(s.log.read_text() for s in self.servers))

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
