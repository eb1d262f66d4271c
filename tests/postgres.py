"""A real PostgreSQL for tests: a private cluster on loopback, or MUSTER_TEST_POSTGRES=URL.

The binaries are Debian's (`apt-get install postgresql`). PostgreSQL refuses to run as
root, so root runs it as the user of the package, else as nobody.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from lab.database import postgres_programs
from tests.ports import free_port

_SETTINGS = (
    *("max_connections=200", "shared_buffers=32MB", "max_wal_size=128MB"),
    "recovery_init_sync_method=syncfs",  # else a crash costs an fsync of every file
)
_ADMIN = "postgres"


class NoPostgres(Exception):
    """None can be had here; the message says why."""


@dataclass
class Cluster:
    """A running server that makes databases. `url`: of an administrator."""

    url: str
    process: subprocess.Popen[bytes] | None = None
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def new_database(self) -> str:
        """The URL of an empty database that nobody else uses."""
        name = f"muster_{os.getpid()}_{next(self._numbers)}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url_of(name)

    def drop_database(self, url: str) -> None:
        name = conninfo_to_dict(url)["dbname"]
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())

    def url_of(self, name: str, **parts: Any) -> str:
        given = {**conninfo_to_dict(self.url), "dbname": name, **parts}
        user = f"{given['user']}:{given['password']}" if "password" in given else given["user"]
        return f"postgresql://{user}@{given['host']}:{given['port']}/{given['dbname']}"

    def terminate_backends(self, url: str) -> int:
        """End every session with the database at `url`; how many there were."""
        name = conninfo_to_dict(url)["dbname"]
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
        with psycopg.connect(self.url, autocommit=True) as connection:
            return len(connection.execute(query, (name,)).fetchall())


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Raises: NoPostgres."""
    given = os.environ.get("MUSTER_TEST_POSTGRES")
    if given:
        yield Cluster(make_conninfo(given))
        return
    found = binaries()
    folder = Path(tempfile.mkdtemp(prefix="muster-postgres-", dir="/tmp"))
    try:
        with _running(found, folder) as started:
            yield started
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def binaries() -> Path:
    """The folder of the newest initdb. Raises: NoPostgres."""
    found = postgres_programs()
    if found is None:
        raise NoPostgres("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    return found


@contextmanager
def _running(found: Path, folder: Path) -> Iterator[Cluster]:
    """A cluster in `folder`, made and started."""
    user = postgres_user()
    if user:
        shutil.chown(folder, user.pw_uid, user.pw_gid)
    data, port = folder / "data", free_port()
    init = [found / "initdb", "-D", data, "-U", _ADMIN, "-A", "trust", "--no-sync", "-E", "UTF8"]
    made = subprocess.run(init, capture_output=True, text=True, **as_user(user))
    if made.returncode:
        raise NoPostgres(f"initdb failed: {made.stderr.strip()}")
    options = [f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={folder}"]
    command = [str(found / "postgres"), "-D", str(data)]
    for option in (*options, *_SETTINGS):
        command += ["-c", option]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, **as_user(user))
    url = f"postgresql://{_ADMIN}@127.0.0.1:{port}/postgres"
    try:
        _wait(url, process, folder / "server.log")
        yield Cluster(url, process)
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait(60)


def postgres_user() -> pwd.struct_passwd | None:
    """Whom root lends the server to."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NoPostgres("PostgreSQL does not run as root, and there is no other user here")


def as_user(user: pwd.struct_passwd | None) -> dict[str, Any]:
    if user is None:
        return {}
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "cwd": "/"}


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(400):
        if process.poll() is not None:
            break
        try:
            psycopg.connect(url, connect_timeout=2).close()
            return
        except psycopg.OperationalError:
            time.sleep(0.05)
    raise NoPostgres(f"PostgreSQL did not start: {log.read_text()[-500:]}")
