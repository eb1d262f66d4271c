"""make drill-crash-postgres: the crash drill with the log in PostgreSQL.

    python -m drills.crash_postgres --kills 1000 --seed 1

As crash.py. In every tenth round it is not the server that is killed but the process of
PostgreSQL that serves it, after which PostgreSQL ends every session and recovers.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
import time
from pathlib import Path

import grpc
import psycopg

from drills.crash import CrashDrill, run
from scheduler.v1 import service_pb2, service_pb2_grpc
from tests.e2e.processes import ServerProcess
from tests.postgres import Cluster, cluster

_SESSIONS = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'muster'"
    " AND datname = current_database() ORDER BY backend_start"
)


class PostgresDrill(CrashDrill):
    """The crash drill on PostgreSQL. `every`: in one of so many rounds, a process of the database
    is killed."""

    def __init__(self, server: ServerProcess, seed: int, every: int = 10) -> None:
        super().__init__(server, seed)
        self.rounds = 0
        self.database_kills = 0
        self._every = every
        self._is_server_dead = False

    def strike(self) -> None:
        self.rounds += 1
        self._is_server_dead = self.rounds % self._every != 0
        if self._is_server_dead:
            self.server.kill()
        else:
            kill_a_backend(self.server.url)
            self.database_kills += 1

    def recover(self) -> None:
        if self._is_server_dead:
            self.start()
        until_led(self.server.address)

    def finish(self) -> dict[str, object]:
        return {"database_kills": self.database_kills, **super().finish()}


def kill_a_backend(database: str) -> None:
    """Kill -9 the oldest session, so that PostgreSQL ends all sessions and recovers."""
    with psycopg.connect(database) as connection:
        row = connection.execute(_SESSIONS).fetchone()
    assert row is not None
    os.kill(int(row[0]), signal.SIGKILL)


def until_led(address: str, patience_s: float = 60.0) -> None:
    """Return once the server there says that it leads."""
    ends_s = time.monotonic() + patience_s
    with grpc.insecure_channel(address) as channel:
        ask = service_pb2_grpc.SchedulerServiceStub(channel).ListTenants.with_call
        while time.monotonic() < ends_s:
            try:
                # A leader that has lost its session notices when it asks for the newest.
                _, call = ask(
                    service_pb2.ListTenantsRequest(),
                    timeout=10,
                    metadata=(("muster-read", "latest"),),
                )
                if ("muster-role", "leader") in list(call.trailing_metadata()):
                    return
            except grpc.RpcError:
                pass
            time.sleep(0.1)
    raise AssertionError(f"{address} does not lead again")


def drill(running: Cluster, kills: int, seed: int, every: int = 10) -> dict[str, object]:
    """Run the whole drill on a database of its own, and return what it saw."""
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(Path(folder), running.new_database())
        return run(PostgresDrill(server, seed, every), kills, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with cluster() as running:
        print(json.dumps(drill(running, given.kills, given.seed), indent=2))


if __name__ == "__main__":
    main()
