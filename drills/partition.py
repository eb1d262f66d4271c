"""`make drill-partition`: cut the network of a lab while clients write and a gang steps.

Three servers, PostgreSQL, agents and clients are in namespaces of one machine, with a link each
(docs/lab.md). Each kind of cut lasts longer than three leases of an agent. Checked after each:

- the history of every name is linearizable, and every acknowledged job is in the log once, whose
  times and terms do not decrease;
- the gang runs in the attempt in which it began, and no rank of another one is there;
- an elastic gang, whose host a client reports failed and repaired by request ids, each put twice,
  has ranks of one attempt at most, and each acknowledged report is in the log once.

Printed: the longest time without an acknowledged write, calls without an answer, and what a client
that begins in the cut says, with its exit code and the seconds until its first word.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count, pairwise
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import psycopg
import yaml

from drills.linearizable import CallKind, RecordedCall, Seen, is_linearizable
from drills.load import RecordedLoad
from lab.cluster import PORT, Lab, up
from lab.database import SOCKETS, follow, promote, stop_postgres
from lab.faults import Direction, Fault
from lab.plan import DATABASE, STANDBY, plan_lab
from lab.serving import serve
from placement.fabric.constraints import Constraints
from placement.fabric.reader import from_spec
from placement.workload.request import NO_SPARES
from scheduler.client import Client, ServiceError
from scheduler.core.model.requests import parse_request_id
from scheduler.v1 import service_pb2
from scripts.local_host import environments
from tests.build import job_to_mapping
from tests.e2e.gangs import check_log, gang

AGENT_LEASE_S = 3
CUT_S = 4.0 * AGENT_LEASE_S
BEFORE_S, AFTER_S = 2.0, 8.0
SERVERS = ("server1", "server2", "server3")
SEEN_S = 2.0  # until somebody promotes a standby
GANG, ELASTIC = "steps", "elastic"
POOLS = {
    GANG: Constraints(labels=(("pool", GANG),)),
    ELASTIC: Constraints(labels=(("pool", ELASTIC),)),
}
SPEC = {
    "name": "two-pools",
    "gpus_per_host": 2,
    "nic_gbps": 400,
    "tiers": [{"name": "zone"}, {"name": "rack"}, {"name": "host"}],
    "domains": [
        {
            "name": "z0",
            "oversubscription": 7,
            "labels": {"pool": GANG},
            "domains": {"count": 2, "hosts": 2},
        },
        {
            "name": "z1",
            "oversubscription": 7,
            "labels": {"pool": ELASTIC},
            "domains": {"count": 1, "hosts": 2},
        },
    ],
}
# Each change of a host resizes its gang: nothing of the gang's own past stands in the way.
TENANTS = {
    "tenants": [{"name": "all"}],
    "default": "all",
    "preemption": {"min_run_s": 0, "checkpoint_s": 0, "restart_s": 0},
    "restarts": {"attempts": 1000, "patience": 1000, "avoid_s": 0},
}
# Jobs that wait begin after the elastic gang ends, as far as anybody can foresee: else it may not
# grow while they count on its hosts.
ELASTIC_S, LATER_S = 3_600, 10_000_000
RESIZE_S = 2.0  # between two requests: what a gang of two ranks takes to begin anew
# Steps the wall clock of a server, and no other. Version 0.9.10 fails the call by which Python
# sleeps, and its fix for waits by the monotonic clock makes them 20 ms longer.
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
SLEEP = "import select, time; time.sleep = lambda seconds: select.select((), (), (), seconds)"
# What it leaves in /dev/shm when it is killed fails the next process of that number.
OWN_SHM = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'
_MUSTER = (sys.executable, "-c", "from scheduler.cli import main; main()")


class CutResult(NamedTuple):
    """The result of one cut of the network. `histories`: names of jobs whose calls were checked.
    `gap_s`: the longest time without an acknowledged write. `reports`: acknowledged reports of a
    host. `resizes`: those of the elastic gang. `said`: the first line of a client that began in the
    cut, after `said_s` seconds; `code`: its exit code."""

    kind: str
    calls: int
    histories: int
    unanswered: int
    gap_s: float
    reports: int
    resizes: int
    said: str
    said_s: float
    code: int


def faults_by_kind(leader: str, zones: Sequence[str]) -> dict[str, tuple[Fault, ...]]:
    """Return the faults of each kind of cut, in the order of the drill, while `leader` leads."""
    others = [name for name in SERVERS if name != leader]
    from_database = (Fault(leader, "database"), Fault(leader, "standby"))
    near, far = (leader, "client", *zones[:1]), (*others, "database", "standby", *zones[1:])
    return {
        "leader from database": from_database,
        "leader to database, one way": (Fault(leader, "database", Direction.UP),),
        "database to leader, one way": (Fault("database", leader, Direction.UP),),
        "leader from followers": tuple(Fault(leader, other) for other in others),
        "leader from agents": tuple(Fault(leader, zone) for zone in zones),
        "agents from all servers": tuple(Fault(one, zone) for one in SERVERS for zone in zones),
        "clients from leader": (Fault("client", leader),),
        "half and half": tuple(Fault(one, other) for one in near for other in far),
        "flapping": from_database,
        "database slow": (Fault("database", bits_per_s=1e6),),
        "database lossy": (Fault("database", loss=0.05),),
        "standby lost": (Fault("standby", loss=1.0),),
        "leader's clock an hour behind": (),
        "leader's clock an hour ahead": (),
        "database lost, standby promoted": (Fault("database", loss=1.0),),
    }


KINDS = tuple(faults_by_kind(SERVERS[0], ()))
LOST = "but this server has read it up to version"


class PartitionLab:
    """A lab with three servers on PostgreSQL, an agent on each host, and a gang that steps."""

    def __init__(self, folder: Path, lab: Lab, lease_s: int) -> None:
        self.folder, self.lab, self.primary, self._lease_s = folder, lab, DATABASE, lease_s
        self._names = {f"{node.address}:{PORT}": node.name for node in lab.plan.servers}
        self._listening = ThreadPoolExecutor(1)

    def start(self) -> None:
        (self.folder / "sitecustomize.py").write_text(SLEEP)
        for name in SERVERS:
            self._set_clock(name, 0)
        self.lab = serve(
            self.lab,
            self.lab.folder / "fabric.yaml",
            agents=True,
            lease_s=self._lease_s,
            options=[
                "--overrun=extend",  # jobs of the load have limits as marks
                f"--tenants={self._write('tenants.yaml', TENANTS)}",
                "--resize-every-s=1",
                "--least-gain-percent=0",
            ],
            under=self._with_clock if FAKETIME else lambda name: (),
        )
        for name in (GANG, ELASTIC):
            job = gang(
                name,
                self.folder,
                steps=10**7,
                spares=NO_SPARES,
                arguments=("--step-s", "0.2"),
                where=POOLS[name],
                min_dp=int(name == ELASTIC),
                limit_s=ELASTIC_S if name == ELASTIC else None,
            )
            self.run_muster("submit", str(self._write(f"{name}.yaml", job_to_mapping(job))))
        self._wait(lambda: self.job().get("launch_time") and self.job(ELASTIC).get("launch_time"))

    def _write(self, name: str, content: object) -> Path:
        path = self.folder / name
        path.write_text(yaml.safe_dump(content))
        return path

    def _with_clock(self, name: str) -> list[str]:
        path = os.pathsep.join([str(self.folder), *sys.path])
        return [
            *("unshare", "--mount", "sh", "-c", OWN_SHM, "sh"),
            "env",
            f"LD_PRELOAD={FAKETIME}",
            f"FAKETIME_TIMESTAMP_FILE={self.folder / name}.clock",
            "FAKETIME_CACHE_DURATION=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
            "FAKETIME_FORCE_MONOTONIC_FIX=0",
            f"PYTHONPATH={path}",
        ]

    def _set_clock(self, name: str, ahead_s: int) -> None:
        new = self.folder / "clock.new"
        new.write_text(f"{ahead_s:+d}")
        new.replace(self.folder / f"{name}.clock")

    def _log(self, name: str) -> Path:
        return self.lab.folder / f"{name}.log"

    def _wait(self, holds: Any, within_s: float = 90.0) -> None:
        until_s = time.monotonic() + within_s
        while not holds():
            if time.monotonic() > until_s:
                logs = "\n".join(self._log(name).read_text()[-2_000:] for name in SERVERS)
                raise AssertionError(f"not within {within_s:g} s: {self.job()}\n{logs}")
            time.sleep(0.2)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Read the log by the socket of the database, which no cut affects."""
        where = f"host=/proc/{self.lab.keeper}/root{SOCKETS}/{self.primary} user=postgres"
        with psycopg.connect(where) as connection:
            return connection.execute(query.encode()).fetchall()

    def run_muster(self, *words: str) -> str:
        """Run `muster` with `words` on the client's host; return its output."""
        return self.lab.run("client", [*self._muster(), *words])

    def _muster(self) -> list[str]:
        return ["env", f"MUSTER_ADDRESS={self.lab.servers}", *_MUSTER]

    def job(self, name: str = GANG) -> dict[str, Any]:
        with suppress(OSError):
            return dict(json.loads(self.run_muster("job", name, "-o", "json")))
        return {}

    def leader(self) -> str:
        """Return the server that holds the lead, by the database."""
        found: list[str] = []

        def is_led() -> bool:
            found[:] = [row[0] for row in self.rows("SELECT address FROM leader")]
            return bool(found and found[0] in self._names)

        self._wait(is_led)
        return self._names[found[0]]

    def cut(self, kind: str, seed: int) -> CutResult:
        """Cut the network, load servers meanwhile, heal, and check. Raises: AssertionError."""
        before, leader = self.job(), self.leader()
        host = sorted(self.lab.plan.inside["z1"])[-1]
        given = (str(BEFORE_S + CUT_S + AFTER_S), str(seed), f"k{seed}", self.lab.servers, host)
        module = [sys.executable, "-m", "drills.partition", "--load", *given]
        load = subprocess.Popen(self.lab.command("client", module), stdout=subprocess.PIPE)
        assert load.stdout is not None
        load.stdout.readline()  # it has begun
        time.sleep(BEFORE_S)
        zones = [name for name in self.lab.plan.inside if not name.count("-")]
        wrong = faults_by_kind(leader, zones)[kind]
        self.lab = self.lab.with_faults(wrong)
        self._inject_side_fault(kind, leader)
        until_s = time.monotonic() + CUT_S
        client = self._client()
        while time.monotonic() < until_s:
            time.sleep(1.0)
            self._check_attempts(kind)
            if kind == "flapping":
                self.lab = self.lab.with_faults(() if self.lab.faults else wrong)
        self.lab = self.lab.with_faults(())
        self._set_clock(leader, 0)
        said, said_s, code = client.result(timeout=60)
        output, _ = load.communicate(timeout=180)
        found = json.loads(output)
        assert found["wrong"] == [], f"{kind}: not linearizable: {found['wrong']}"
        resizes = self._check_log(kind, found["acknowledged"], found["reports"], f"k{seed}-")
        self._check_gang(kind, before)
        if "clock" in kind:
            assert "the machine's clock is" in self._log(leader).read_text(), f"{kind}: no step"
        counts = (found["calls"], found["histories"], found["unanswered"], round(found["gap_s"], 2))
        resized = (len(found["reports"]), resizes)
        return CutResult(kind, *counts, *resized, said, round(said_s, 1), code)

    def _inject_side_fault(self, kind: str, leader: str) -> None:
        """Inject what goes with a kind of cut: a clock step, or a standby made primary."""
        match kind:
            case "leader's clock an hour ahead":
                self._set_clock(leader, 3600)
            case "leader's clock an hour behind":
                self._set_clock(leader, -3600)
            case "database lost, standby promoted":
                self.promote(STANDBY)

    def promote(self, standby: str) -> None:
        """Take the primary down as if it had no power, and promote its standby."""
        stop_postgres(self.lab, self.primary)
        time.sleep(SEEN_S)
        promote(self.lab, standby)
        self.primary = standby

    def lose_what_was_not_copied(self) -> str:
        """After a promotion, promote a standby that lacks acknowledged writes. No server may go on
        from its log.

        Returns what the servers say. Raises: AssertionError.
        """
        shutil.rmtree(self.lab.folder / "postgres" / DATABASE)
        follow(self.lab, DATABASE, STANDBY)  # and commits do not wait for it
        self.lab = self.lab.with_faults([Fault(STANDBY, DATABASE)])
        self.run_muster("cordon", self.lab.plan.nodes[0].name)
        shown = self.rows("SELECT MAX(version) FROM log")[0][0]
        time.sleep(1.0)  # all servers have read it
        self.promote(DATABASE)
        self.lab = self.lab.with_faults([])
        assert self.rows("SELECT MAX(version) FROM log")[0][0] < shown
        self._wait(lambda: all(LOST in self._log(name).read_text() for name in SERVERS))
        return next(row for row in self._log(SERVERS[0]).read_text().splitlines() if LOST in row)

    def _client(self) -> Future[tuple[str, float, int]]:
        """Begin a command in the cut: its first line, after how long, its exit code."""
        began_s = time.monotonic()
        command = subprocess.Popen(
            self.lab.command("client", [*self._muster(), "cancel", "nobody"]),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

        def hear() -> tuple[str, float, int]:
            with command:
                assert command.stdout is not None
                line = command.stdout.readline().strip()
                said_s = time.monotonic() - began_s
                command.stdout.read()
            return line, said_s, command.returncode

        return self._listening.submit(hear)

    def _check_log(
        self, kind: str, acknowledged: Sequence[str], reports: Sequence[str], prefix: str
    ) -> int:
        """Every acknowledged job and report is there once, and terms and times do not decrease.

        Returns how often the elastic gang was resized meanwhile.
        """
        rows = self.rows("SELECT term, time_ns, type, body FROM log ORDER BY version")
        for column, what in enumerate(("terms", "times")):
            along = [row[column] for row in rows]
            assert along == sorted(along), f"{kind}: {what} decrease along the log"
        bodies = [(name, json.loads(body)) for *_, name, body in rows]
        made = Counter(body.get("uid") for name, body in bodies if name == "JobSubmitted")
        odd = {uid: made[uid] for uid in acknowledged if made[uid] != 1}
        assert not odd, f"{kind}: acknowledged, and in the log so often: {odd}"
        ids = (parse_request_id(body.get("request_id", "")).id for _, body in bodies)
        asked = Counter(each for each in ids if each)
        odd = {each: asked[each] for each in reports if asked[each] != 1}
        odd |= {each: count for each, count in asked.items() if count > 1}
        assert not odd, f"{kind}: requests that are in the log so often: {odd}"
        began = next(i for i, (_, body) in enumerate(bodies) if prefix in body.get("name", ""))
        return sum(name == "GangResized" for name, _ in bodies[began:])

    def _check_gang(self, kind: str, before: dict[str, Any]) -> None:
        """It runs in its attempt, on hosts that are well; the elastic one runs in its last."""
        for name in (GANG, ELASTIC):
            self._wait(lambda name=name: self.job(name).get("launch_time"))
        now = self.job()
        assert now["attempt"] == before["attempt"], f"{kind}: {before} became {now}"
        found = self._check_attempts(kind)
        assert found[GANG] == {str(now["attempt"])}, f"{kind}: {found}"

    def _check_attempts(self, kind: str) -> dict[str, set[str]]:
        """Return the attempts of each gang whose ranks run; assert at most one each."""
        found: dict[str, set[str]] = {GANG: set(), ELASTIC: set()}
        for _, env in environments():
            own = dict(
                part.split("=", 1)
                for part in env.decode(errors="replace").split("\0")
                if "=" in part
            )
            if own.get("MUSTER_JOB") in found:
                found[own["MUSTER_JOB"]].add(own["MUSTER_ATTEMPT"])
        assert all(len(attempts) <= 1 for attempts in found.values()), f"{kind}: {found}"
        return found

    def check_whole_log(self) -> int:
        """Check the whole log by the simulator's checker, and return how many events it has.
        Raises: InvariantViolated."""
        where = f"/proc/{self.lab.keeper}/root{SOCKETS}/{self.primary}"
        return check_log(f"postgresql://postgres@/postgres?host={where}")


@contextmanager
def partition_lab(lease_s: int = AGENT_LEASE_S) -> Iterator[PartitionLab]:
    """Return a lab of two zones, of four and of two hosts. `lease_s`: of agents. Raises: InputError
    if refused."""
    with tempfile.TemporaryDirectory(prefix="muster-partition-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        lab = up(folder / "lab", plan_lab(from_spec(SPEC), 1 / 20_000, len(SERVERS)))
        try:
            (lab.folder / "fabric.yaml").write_text(yaml.safe_dump(SPEC))
            made = PartitionLab(folder, lab, lease_s)
            made.start()
            yield made
        finally:
            lab.down()


class Reports(Thread):
    """A client that reports a host failed and repaired, in turns, until `stop`. `acknowledged`: ids
    of requests that were answered; each is put twice, and again while no server answers."""

    def __init__(self, addresses: str, host: str, prefix: str) -> None:
        super().__init__()
        self.acknowledged: list[str] = []
        self.stop = Event()
        self._addresses, self._host, self._prefix = addresses, host, prefix

    def run(self) -> None:
        with Client(self._addresses, deadline_s=5) as client:
            for number in count():
                if self.stop.wait(RESIZE_S) and number % 2 == 0:
                    return
                signal = "repaired" if number % 2 else "gpu-lost"
                request_id = f"{self._prefix}-report-{number}"
                report = service_pb2.ReportHostRequest(
                    name=self._host, signal=signal, request_id=request_id
                )
                answered = 0
                while answered < 2:
                    with suppress(ServiceError):
                        client.report_hosts([report])
                        answered += 1
                self.acknowledged.append(request_id)


def load_for(seconds: float, seed: int, prefix: str, addresses: str, host: str) -> dict[str, Any]:
    """Make calls for so long, and return what became of them. `host`: is reported failed and
    repaired."""
    load = RecordedLoad(addresses, seed, prefix, gpus=2, where=POOLS[GANG], limit_s=LATER_S)
    reports = Reports(addresses, host, prefix)
    began_s = time.monotonic()
    load.start()
    reports.start()
    time.sleep(seconds)
    ended_s = time.monotonic()
    load.finish()
    reports.stop.set()
    reports.join()
    calls = [call for history in load.histories.values() for call in history]
    writes = sorted(call.ended for call in calls if _is_acknowledged(call))
    moments = [began_s, *(at_s for at_s in writes if at_s < ended_s), ended_s]
    histories = load.histories.items()
    return {
        "calls": len(calls),
        "histories": len(histories),
        "unanswered": sum(call.is_open for call in calls),
        "gap_s": max(b - a for a, b in pairwise(moments)),
        "wrong": [name for name, history in histories if not is_linearizable(history)],
        "acknowledged": list(load.acknowledged.values()),
        "reports": reports.acknowledged,
    }


def _is_acknowledged(call: RecordedCall) -> bool:
    return call.kind is not CallKind.GET and call.ended < math.inf and isinstance(call.answer, Seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", choices=KINDS, action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--load", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.load:
        seconds, seed, prefix, addresses, host = given.load
        print("begins", flush=True)
        print(json.dumps(load_for(float(seconds), int(seed), prefix, addresses, host)))
        return
    kinds = given.only or KINDS
    if FAKETIME is None and any("clock" in kind for kind in kinds):
        print("no libfaketime here (apt-get install faketime): clocks are not stepped", flush=True)
        kinds = [kind for kind in kinds if "clock" not in kind]
    with partition_lab() as made:
        for number, kind in enumerate(kinds):
            print(json.dumps(made.cut(kind, 100 * given.seed + number)._asdict()), flush=True)
        print(f"{made.check_whole_log():,} events of the log hold", flush=True)
        if not given.only and made.primary == STANDBY:
            print("and not copied, promoted:", made.lose_what_was_not_copied(), flush=True)


if __name__ == "__main__":
    main()
