"""PostgreSQL for several servers of a lab: a primary, and a standby that has what is acknowledged.

PostgreSQL refuses user 0, whom a lab is to itself. It runs as user 1 of one more user namespace,
who is the same to files, so no other user of the machine is needed, with root or without.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from lab.cluster import Lab, refuse
from lab.plan import DATABASE, STANDBY

PORT = 5432
SOCKETS = "/run"  # of the keeper's: {SOCKETS}/{node}, which no cut concerns
ORDINARY = ("unshare", "--user", "--map-user=1", "--map-group=1", "--")


def postgres_programs() -> Path | None:
    """Return the folder of the newest initdb: on PATH, else where Debian installs it."""
    if on_path := shutil.which("initdb"):
        return Path(on_path).resolve().parent
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(versions, key=lambda initdb: float(initdb.parts[-3]), default=None)
    return None if newest is None else newest.parent


def check_postgres() -> Path:
    """Return the folder of its programs. Raises: InputError when there are none."""
    found = postgres_programs()
    if found is None:
        raise refuse("several servers need PostgreSQL: apt-get install postgresql", "servers")
    return found


def start_database(lab: Lab) -> str:
    """Start a primary on `database` and a standby of it on `standby`, to which every commit is
    copied before it is acknowledged. Returns the URL that names both. Raises: InputError."""
    programs, home = check_postgres(), lab.folder / "postgres"
    home.mkdir()
    try:
        for name in (DATABASE, STANDBY):
            lab.run("", ["mkdir", f"{SOCKETS}/{name}"])
        made = [str(programs / "initdb"), "-D", str(home / DATABASE), "-U", "postgres"]
        lab.run("", [*ORDINARY, *made, "-A", "trust", "-E", "UTF8"])
        with (home / DATABASE / "pg_hba.conf").open("a") as file:
            file.write("host all,replication all 10.88.0.0/16 trust\n")
        start_postgres(lab, DATABASE)
        follow(lab, STANDBY, DATABASE)
        keep_copies(lab, DATABASE, STANDBY)
    except OSError as error:
        lab.down()
        raise refuse(f"PostgreSQL does not start: {error}", "servers") from None
    return f"postgresql://postgres@{','.join(map(_where(lab), (DATABASE, STANDBY)))}/postgres"


def _where(lab: Lab) -> Callable[[str], str]:
    return lambda name: f"{lab.plan.node(name).address}:{PORT}"


def follow(lab: Lab, name: str, primary: str) -> None:
    """Copy the data of `primary`, and start a standby that receives what is written there."""
    source = f"host={lab.plan.node(primary).address} port={PORT} user=postgres"
    to = ["-d", f"{source} application_name={name}", "-D", str(lab.folder / "postgres" / name)]
    copy = [str(check_postgres() / "pg_basebackup"), "-R", "-c", "fast", *to]
    lab.run(name, [*ORDINARY, *copy])
    start_postgres(lab, name)


def start_postgres(lab: Lab, name: str) -> None:
    """Start the server whose data are those of a node, on it. Raises: InputError."""
    words = [str(check_postgres() / "postgres"), "-D", str(lab.folder / "postgres" / name)]
    words += ["-c", "listen_addresses=*", "-c", f"port={PORT}"]
    words += ["-c", "recovery_init_sync_method=syncfs"]  # not 2 s of fsync of each file
    words += ["-c", f"unix_socket_directories={SOCKETS}/{name}"]
    lab.begin(name, [*ORDINARY, *words], lambda: is_ready(lab, name))


def stop_postgres(lab: Lab, name: str) -> None:
    """Kill the server on a node as a power failure would. Raises: OSError."""
    words = ["stop", "-m", "immediate", "-D", str(lab.folder / "postgres" / name)]
    lab.run("", [*ORDINARY, str(check_postgres() / "pg_ctl"), *words])


def is_ready(lab: Lab, name: str) -> bool:
    try:
        lab.run("", [str(check_postgres() / "pg_isready"), "-h", f"{SOCKETS}/{name}"])
    except OSError:
        return False
    return True


def ask_database(lab: Lab, name: str, query: str) -> str:
    """Run SQL on a database of the lab, whichever links are cut, and return its answer as text.
    Raises: OSError."""
    words = ["-h", f"{SOCKETS}/{name}", "-U", "postgres", "-qAtXc", query]
    return lab.run("", [str(check_postgres() / "psql"), *words])


def keep_copies(lab: Lab, name: str, standby: str) -> None:
    """Let commits wait for their copy on `standby`; with "", for none. Raises: OSError."""
    ask_database(lab, name, f"ALTER SYSTEM SET synchronous_standby_names = '{standby}'")
    ask_database(lab, name, "SELECT pg_reload_conf()")


def promote(lab: Lab, name: str) -> None:
    """Make a standby the primary. Raises: OSError."""
    ask_database(lab, name, "SELECT pg_promote()")
