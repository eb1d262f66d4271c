"""`make drill-partition`: cut the network of a lab while clients write and a gang steps.

Three servers, PostgreSQL, agents and clients are in namespaces of one machine, with a link each
(docs/lab.md). Each kind of cut lasts longer than three leases of an agent. Checked after each:

- the history of every name is linearizable, and every acknowledged job is in the log once;
- the gang runs in the attempt in which it began, and no rank of another one is there.

Printed: the longest time without an acknowledged write, calls without an answer, and what a client
that begins in the cut says, with its exit code and the seconds until its first word.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import yaml

from lab.cluster import Lab, start_agents, up
from lab.faults import Direction, Fault
from lab.plan import plan_lab
from placement.fabric.tree import from_spec
from placement.workload.request import NO_SPARES
from scheduler.files.job import job_to_mapping
from scripts.local_host import environments
from tests.build import fabric_spec
from tests.drills.linearizable import Call, Kind, Seen, is_linearizable
from tests.drills.load import Load
from tests.e2e.gangs import gang
from tests.postgres import as_user, binaries, postgres_user

PORT, AGENT_PORT, DATABASE_PORT = 7443, 7444, 5432
AGENT_LEASE_S = 3
CUT_S = 4.0 * AGENT_LEASE_S
BEFORE_S, AFTER_S = 2.0, 8.0
SERVERS = ("server1", "server2", "server3")
GANG = "steps"
_MUSTER = (sys.executable, "-c", "from scheduler.cli import main; main()")


class Outcome(NamedTuple):
    """Of one cut. `gap_s`: longest time without an acknowledged write. `said`: the first line of a
    client that began in the cut, after `said_s` seconds; `code`: with which it ended."""

    kind: str
    calls: int
    unanswered: int
    gap_s: float
    said: str
    said_s: float
    code: int


def faults_of(kind: str, lab: Lab, leader: str) -> tuple[Fault, ...]:
    """The faults of a kind, while `leader` leads."""
    zones = [name for name in lab.plan.inside if not name.count("-")]
    others = [name for name in SERVERS if name != leader]
    match kind:
        case "leader from database" | "flapping":
            return (Fault(leader, "database"),)
        case "leader to database, one way":
            return (Fault(leader, "database", Direction.UP),)
        case "database to leader, one way":
            return (Fault("database", leader, Direction.UP),)
        case "leader from followers":
            return tuple(Fault(leader, other) for other in others)
        case "leader from agents":
            return tuple(Fault(leader, zone) for zone in zones)
        case "agents from all servers":
            return tuple(Fault(server, zone) for server in SERVERS for zone in zones)
        case "clients from leader":
            return (Fault("client", leader),)
        case "half and half":
            near, far = (leader, "client", zones[0]), (*others, "database", *zones[1:])
            return tuple(Fault(one, other) for one in near for other in far)
        case "database slow":
            return (Fault("database", bits_per_s=1e6),)
        case "database lossy":
            return (Fault("database", loss=0.05),)
    raise ValueError(kind)


KINDS = (
    "leader from database",
    "leader to database, one way",
    "database to leader, one way",
    "leader from followers",
    "leader from agents",
    "agents from all servers",
    "clients from leader",
    "half and half",
    "flapping",
    "database slow",
    "database lossy",
)


class PartitionLab:
    """A lab with three servers on PostgreSQL, an agent on each host, and a gang that steps."""

    def __init__(self, folder: Path, lab: Lab) -> None:
        self.folder, self.lab = folder, lab
        at = {node.name: node.address for node in lab.plan.nodes}
        self.addresses = ",".join(f"{at[name]}:{PORT}" for name in SERVERS)
        self._names = {f"{at[name]}:{PORT}": name for name in SERVERS}
        self._at = at
        self._listening = ThreadPoolExecutor(1)

    def start(self) -> None:
        data, bin_folder = self.folder / "postgres", binaries()
        data.mkdir()
        user = postgres_user()
        if user is not None:
            shutil.chown(data, user.pw_uid, user.pw_gid)
        made = [str(bin_folder / "initdb"), "-D", str(data / "data"), "-U", "postgres", "-A"]
        subprocess.run(
            [*made, "trust", "-E", "UTF8"], check=True, capture_output=True, **as_user(user)
        )
        with (data / "data" / "pg_hba.conf").open("a") as file:
            file.write("host all all 0.0.0.0/0 trust\n")
        words = [str(bin_folder / "postgres"), "-D", str(data / "data")]
        words += ["-c", "listen_addresses=*", "-c", f"port={DATABASE_PORT}"]
        words += ["-c", f"unix_socket_directories={data}"]
        if user is not None:
            drop = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
            words = [*drop, *words]
        self._start("database", words)
        self._wait(self._has_database)
        store = f"postgresql://postgres@{self._at['database']}:{DATABASE_PORT}/postgres"
        for name in SERVERS:
            own = self._at[name]
            options = [f"--store={store}", f"--listen={own}:{PORT}", "--insecure", "--console=off"]
            options += [f"--agents={own}:{AGENT_PORT}", f"--agent-lease-s={AGENT_LEASE_S}"]
            options += ["--overrun=extend"]  # jobs of the load have limits as marks
            options += [f"--fabric={self.lab.folder / 'fabric.yaml'}"]
            self._start(name, [*_MUSTER, "serve", *options])
            self._wait(lambda name=name: "muster serves" in self._log(name).read_text())
        start_agents(self.lab, ",".join(f"{self._at[name]}:{AGENT_PORT}" for name in SERVERS))
        job = gang(GANG, self.folder, steps=10**7, spares=NO_SPARES, arguments=("--step-s", "0.2"))
        (self.folder / "job.yaml").write_text(yaml.safe_dump(job_to_mapping(job)))
        self.asked("submit", str(self.folder / "job.yaml"))
        self._wait(lambda: self.job().get("launch_time"))

    def _log(self, name: str) -> Path:
        return self.lab.folder / f"{name}.log"

    def _start(self, name: str, words: Sequence[str]) -> None:
        self.lab.start(name, words, self._log(name)).returncode = 0  # it ends with the lab

    def _wait(self, holds: Any, within_s: float = 90.0) -> None:
        until_s = time.monotonic() + within_s
        while not holds():
            if time.monotonic() > until_s:
                logs = "\n".join(self._log(name).read_text()[-2_000:] for name in SERVERS)
                raise AssertionError(f"not within {within_s:g} s: {self.job()}\n{logs}")
            time.sleep(0.2)

    def _has_database(self) -> bool:
        with suppress(psycopg.Error):
            self.rows("SELECT 1")
            return True
        return False

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """By the socket of the database, which no cut concerns."""
        where = f"host={self.folder / 'postgres'} port={DATABASE_PORT} user=postgres"
        with psycopg.connect(where) as connection:
            return connection.execute(query.encode()).fetchall()

    def asked(self, *words: str) -> str:
        """What a command says on the client's host."""
        given = ["env", f"MUSTER_ADDRESS={self.addresses}", *_MUSTER, *words]
        return self.lab.run("client", given)

    def job(self) -> dict[str, Any]:
        with suppress(OSError):
            return dict(json.loads(self.asked("job", GANG, "-o", "json")))
        return {}

    def leader(self) -> str:
        """The server that holds the lead, as the database has it."""
        found: list[str] = []

        def is_led() -> bool:
            found[:] = [row[0] for row in self.rows("SELECT address FROM leader")]
            return bool(found and found[0] in self._names)

        self._wait(is_led)
        return self._names[found[0]]

    def cut(self, kind: str, seed: int) -> Outcome:
        """Cut, load meanwhile, heal; check. Raises: AssertionError."""
        before, leader = self.job(), self.leader()
        given = (str(BEFORE_S + CUT_S + AFTER_S), str(seed), f"k{seed}", self.addresses)
        module = [sys.executable, "-m", "tests.drills.partition", "--load", *given]
        load = subprocess.Popen(self.lab.command("client", module), stdout=subprocess.PIPE)
        assert load.stdout is not None
        load.stdout.readline()  # it has begun
        time.sleep(BEFORE_S)
        wrong = faults_of(kind, self.lab, leader)
        self.lab = self.lab.with_faults(wrong)
        until_s = time.monotonic() + CUT_S
        client = self._client()
        while time.monotonic() < until_s:
            time.sleep(1.0)
            if kind == "flapping":
                self.lab = self.lab.with_faults(() if self.lab.faults else wrong)
        self.lab = self.lab.with_faults(())
        said, said_s, code = client.result(timeout=60)
        output, _ = load.communicate(timeout=180)
        found = json.loads(output)
        assert found["wrong"] == [], f"{kind}: not linearizable: {found['wrong']}"
        self._check_log(kind, found["acknowledged"])
        self._check_gang(kind, before)
        return Outcome(
            kind, found["calls"], found["unanswered"], found["gap_s"], said, said_s, code
        )

    def _client(self) -> Future[tuple[str, float, int]]:
        """Begin a command in the cut: its first line, after how long, its exit code."""
        words = ["env", f"MUSTER_ADDRESS={self.addresses}", *_MUSTER, "cancel", "nobody"]
        began_s = time.monotonic()
        asked = subprocess.Popen(
            self.lab.command("client", words),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

        def hear() -> tuple[str, float, int]:
            with asked:
                assert asked.stdout is not None
                line = asked.stdout.readline().strip()
                said_s = time.monotonic() - began_s
                asked.stdout.read()
            return line, said_s, asked.returncode

        return self._listening.submit(hear)

    def _check_log(self, kind: str, acknowledged: Sequence[str]) -> None:
        """Every acknowledged job is there once, and terms do not decrease."""
        rows = self.rows("SELECT term, type, body FROM log ORDER BY version")
        terms = [row[0] for row in rows]
        assert terms == sorted(terms), f"{kind}: terms decrease along the log"
        made = [json.loads(body).get("uid") for _, name, body in rows if name == "JobSubmitted"]
        counts = {uid: made.count(uid) for uid in acknowledged}
        odd = {uid: count for uid, count in counts.items() if count != 1}
        assert not odd, f"{kind}: acknowledged, and in the log so often: {odd}"

    def _check_gang(self, kind: str, before: dict[str, Any]) -> None:
        """It runs in its attempt, alone, on hosts that are well."""
        self._wait(lambda: self.job().get("state") == "JOB_STATE_RUNNING", 30)
        now = self.job()
        assert now["attempt"] == before["attempt"], f"{kind}: {before} became {now}"
        mark = f"MUSTER_JOB={GANG}".encode()
        found = [env.split(b"\0") for _, env in environments() if mark in env.split(b"\0")]
        attempts = {part for env in found for part in env if part.startswith(b"MUSTER_ATTEMPT=")}
        assert attempts == {f"MUSTER_ATTEMPT={now['attempt']}".encode()}, f"{kind}: {attempts}"


@contextmanager
def partition_lab() -> Iterator[PartitionLab]:
    """Two zones of two hosts. Raises: InputError where namespaces cannot be had."""
    spec = fabric_spec(2, 1, 2, gpus=2)
    with tempfile.TemporaryDirectory(prefix="muster-partition-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        lab = up(folder / "lab", plan_lab(from_spec(spec), 1 / 20_000, len(SERVERS)))
        try:
            (lab.folder / "fabric.yaml").write_text(yaml.safe_dump(spec))
            made = PartitionLab(folder, lab)
            made.start()
            yield made
        finally:
            lab.down()


def load_for(seconds: float, seed: int, prefix: str, addresses: str) -> dict[str, Any]:
    """Put calls for so long; what became of them."""
    load = Load(addresses, seed, prefix, gpus=2)
    began_s = time.monotonic()
    load.start()
    time.sleep(seconds)
    ended_s = time.monotonic()
    load.finish()
    calls = [call for history in load.histories.values() for call in history]
    writes = sorted(call.ended for call in calls if _is_acknowledged(call))
    moments = [began_s, *(at_s for at_s in writes if at_s < ended_s), ended_s]
    histories = load.histories.items()
    return {
        "calls": len(calls),
        "unanswered": sum(call.is_open for call in calls),
        "gap_s": max(b - a for a, b in pairwise(moments)),
        "wrong": [name for name, history in histories if not is_linearizable(history)],
        "acknowledged": list(load.acknowledged.values()),
    }


def _is_acknowledged(call: Call) -> bool:
    return call.kind is not Kind.GET and call.ended < math.inf and isinstance(call.answer, Seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", choices=KINDS, action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--load", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.load:
        seconds, seed, prefix, addresses = given.load
        print("begins", flush=True)
        print(json.dumps(load_for(float(seconds), int(seed), prefix, addresses)))
        return
    with partition_lab() as made:
        for number, kind in enumerate(given.only or KINDS):
            print(json.dumps(made.cut(kind, 100 * given.seed + number)._asdict()), flush=True)


if __name__ == "__main__":
    main()
