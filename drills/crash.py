"""make drill-crash: kill -9 a real server again and again, and hold it to what it answered.

    python -m drills.crash --kills 1000 --seed 1 [--postgres]

Each round three clients submit, cancel, end, and break and mend hosts, until the server is
killed at a random moment. It is started again, every call that got no answer is made again
with the same request_id, and then every answer must hold: jobs with their uids, cancelled
jobs, states of hosts. At the end the whole log is read: each job is in it once, no host is
ever held twice, snapshots are what the log leads to, and the server's last word is the
replay's. The moments are drawn from the seed; what the server does by then is not.

With the log in PostgreSQL (make drill-crash-postgres) it is in every tenth round not the server
that is killed but the process of PostgreSQL that serves it, after which PostgreSQL ends every
session and recovers.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Thread

import psycopg

from scheduler.client import Client, ServiceError
from scheduler.core import State, apply
from scheduler.core.model.events import Event, JobSubmitted
from scheduler.eventlog.store import open_store
from scheduler.eventlog.store.verify import verify
from scheduler.v1 import host_pb2, job_pb2
from tests.build import exactly, spec
from tests.e2e.processes import ServerProcess
from tests.postgres import cluster
from tests.waiting import wait_until

RUNNING, CANCELLED = job_pb2.JOB_STATE_RUNNING, job_pb2.JOB_STATE_CANCELLED
HEALTHY, FAILED = host_pb2.HOST_STATE_HEALTHY, host_pb2.HOST_STATE_FAILED
CORDONED, DRAINING = host_pb2.HOST_STATE_CORDONED, host_pb2.HOST_STATE_DRAINING
LONGEST_S = 0.15  # from the first call of a round to its kill
RECENT = 200  # jobs that are looked up after each kill; the log has the rest
MOST_LIVE = 12  # jobs of one client
MOST_BROKEN = 4  # of 16 hosts
_SESSIONS = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'muster'"
    " AND datname = current_database() ORDER BY backend_start"
)


@dataclass
class Worker:
    """One client, with the answers that it got and the call that got none."""

    random: Random
    name: str
    uid_by_name: dict[str, str] = field(default_factory=dict)
    live: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    state_by_host: dict[str, int] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    answered: Counter[str] = field(default_factory=Counter)

    def work(self, client: Client) -> None:
        """Make calls until one fails, which remains pending."""
        while True:
            self.pending = self._next()
            try:
                self._call(client, *self.pending)
            except ServiceError as error:
                if error.code in ("UNAVAILABLE", "CANCELLED", "UNKNOWN", "INTERNAL"):
                    return
                self.answered[f"refused {error.reason}"] += 1
            self.pending = ()

    def settle(self, client: Client) -> None:
        """Make the pending call again."""
        if self.pending:
            try:
                self._call(client, *self.pending)
            except ServiceError as error:
                self.answered[f"refused {error.reason}"] += 1
            self.pending = ()

    def _next(self) -> tuple[str, ...]:
        if self.hosts:
            return self._next_host()
        if len(self.live) > MOST_LIVE:  # the oldest: it runs, or nothing ever will
            return (self.random.choice(("cancel", "end")), self.live[0])
        if self.live and self.random.random() < 0.5:
            name = self.random.choice(self.live)
            return (self.random.choice(("cancel", "end", "end")), name)
        return ("submit", f"{self.name}-{len(self.uid_by_name):06d}")

    def _next_host(self) -> tuple[str, ...]:
        broken = [host for host, state in self.state_by_host.items() if state != HEALTHY]
        if broken and (len(broken) >= MOST_BROKEN or self.random.random() < 0.4):
            host = self.random.choice(broken)
            return ("repair" if self.state_by_host[host] == FAILED else "uncordon", host)
        host = self.random.choice([host for host in self.hosts if host not in broken])
        return (self.random.choice(("fail", "fail", "cordon", "drain")), host)

    def _call(self, client: Client, what: str, name: str) -> None:
        match what:
            case "submit":
                self._submit(client, name)
            case "cancel":
                assert client.cancel_job(name).state == CANCELLED
                self.cancelled.append(name)
                self._over(name)
            case "end":
                client.end_job(name, job_pb2.JOB_STATE_COMPLETED)
                self._over(name)
            case "fail" | "repair":
                signal = "gpu-lost" if what == "fail" else "repaired"
                reported = client.report_host(name, signal)
                assert reported is not None, name
                self.state_by_host[name] = reported.state
            case "cordon":
                self.state_by_host[name] = client.cordon_host(name).state
            case "drain":
                self.state_by_host[name] = client.drain_host(name).state
            case "uncordon":
                self.state_by_host[name] = client.uncordon_host(name).state
        self.answered[what] += 1

    def _submit(self, client: Client, name: str) -> None:
        """Drawn from the name, so that a second try asks for the same."""
        draw = Random(name)
        wanted = spec(name, draw.randint(1, 6), spares=exactly(draw.randint(0, 1)))
        job = client.create_job(wanted, request_id=name)
        known = self.uid_by_name.setdefault(name, job.uid)
        assert known == job.uid, f"a retry made another {name}"
        self.live.append(name)

    def _over(self, name: str) -> None:
        if name in self.live:
            self.live.remove(name)


class CrashDrill:
    """A server that is killed again and again, and its three clients."""

    def __init__(self, server: ServerProcess, seed: int) -> None:
        self.server = server
        self.random = Random(seed)
        hosts = tuple(f"z{z}-r{r}-h{h}" for z in range(2) for r in range(4) for h in range(2))
        seeds = [Random(self.random.random()) for _ in range(3)]
        self.workers = [
            Worker(seeds[0], "a"),
            Worker(seeds[1], "b"),
            Worker(seeds[2], "hosts", hosts=hosts),
        ]

    def round(self) -> None:
        """Load, kill, restart, settle, check."""
        clients = [Client(self.server.address, retries=False) for _ in self.workers]
        threads = [
            Thread(target=worker.work, args=(client,))
            for worker, client in zip(self.workers, clients, strict=True)
        ]
        for thread in threads:
            thread.start()
        time.sleep(self.random.uniform(0, LONGEST_S))
        self.strike()
        for thread, client in zip(threads, clients, strict=True):
            thread.join()
            client.close()
        self.recover()
        with Client(self.server.address) as client:
            for worker in self.workers:
                worker.settle(client)
            self.check(client)

    def strike(self) -> None:
        self.server.kill()

    def recover(self) -> None:
        self.start()

    def start(self) -> None:
        self.server.start("--snapshot-every", "50")

    def check(self, client: Client) -> None:
        """Check that everything that was ever answered still holds."""
        jobs = {job.spec.name: job for job in client.list_jobs()}
        for worker in self.workers:
            for name in [*worker.uid_by_name][-RECENT:]:
                assert jobs[name].uid == worker.uid_by_name[name], name
            for name in worker.cancelled[-RECENT // 4 :]:
                assert jobs[name].state == CANCELLED, name
        states = {host.name: host.state for host in client.list_hosts()}
        for host, state in self.workers[-1].state_by_host.items():
            drained = state == DRAINING and states[host] == CORDONED
            assert states[host] == state or drained, f"{host}: {states[host]}, not {state}"
        held = Counter(host for job in self._running(client, jobs) for host in _hosts(job))
        assert [host for host, times in held.items() if times > 1] == []

    def _running(self, client: Client, jobs: dict[str, job_pb2.Job]) -> list[job_pb2.Job]:
        return [client.get_job(name) for name, job in jobs.items() if job.state == RUNNING]

    def finish(self) -> dict[str, object]:
        """Stop the server in good order, then read the whole log."""
        assert self.server.end() == 0
        store = open_store(self.server.url)
        try:
            report = verify(store)
            assert report.problems == (), report.problems
            events = [event for _, event in store.read()]
        finally:
            store.close()
        uids = {name: uid for w in self.workers for name, uid in w.uid_by_name.items()}
        state = referee(events, uids)
        assert state == report.state
        answered = sum((worker.answered for worker in self.workers), Counter[str]())
        kinds = Counter(type(event).__name__ for event in events)
        return {
            "answered": dict(answered),
            "events": dict(kinds),
            "snapshots": len(report.snapshots),
        }


def _hosts(job: job_pb2.Job) -> list[str]:
    return [*job.placement.hosts, *job.placement.spares]


def referee(events: list[Event], uid_by_name: dict[str, str]) -> State:
    """Fold the log, and check that it has each job once and as it was answered, and no host held by
    two."""
    submitted = Counter(event.spec.name for event in events if isinstance(event, JobSubmitted))
    assert set(submitted.values()) <= {1}, "a job is in the log twice"
    logged = {e.spec.name: e.uid for e in events if isinstance(e, JobSubmitted)}
    assert logged == uid_by_name, "the log has other jobs than were answered"
    state = State.empty()
    for event in events:
        state = apply(state, event)
        running = [state.jobs[name] for name in state.index.running]
        held = sum(len(job.hosts) + len(job.spares) for job in running)
        assert held == state.index.held.bit_count(), f"a host is held twice at {state.version}"
    return state


class PostgresDrill(CrashDrill):
    """The crash drill on PostgreSQL. `every`: in one of so many rounds, a process of the database
    is killed."""

    def __init__(self, server: ServerProcess, seed: int, every: int = 10) -> None:
        super().__init__(server, seed)
        self.rounds = self.database_kills = 0
        self._every = every

    def strike(self) -> None:
        self.rounds += 1
        if self.rounds % self._every:
            self.server.kill()
        else:
            kill_a_backend(self.server.url)
            self.database_kills += 1

    def recover(self) -> None:
        if self.rounds % self._every:
            self.start()
        # A leader that has lost its session notices when it is asked for the newest state.
        wait_until(lambda: self.server.role(("muster-read", "latest"))[0] == "leader", 60)

    def finish(self) -> dict[str, object]:
        return {"database_kills": self.database_kills, **super().finish()}


def kill_a_backend(database: str) -> None:
    """Kill -9 the oldest session, so that PostgreSQL ends all sessions and recovers."""
    with psycopg.connect(database) as connection:
        row = connection.execute(_SESSIONS).fetchone()
    assert row is not None
    os.kill(int(row[0]), signal.SIGKILL)


def run(crash: CrashDrill, kills: int, seed: int) -> dict[str, object]:
    """Run so many rounds, then the last check."""
    began = time.monotonic()
    crash.start()
    try:
        for number in range(kills):
            crash.round()
            if number % 20 == 19:
                print(f"{number + 1} kills, {time.monotonic() - began:.0f} s", file=sys.stderr)
        found = crash.finish()
    finally:
        crash.server.kill()
    return {"kills": kills, "seed": seed, "seconds": round(time.monotonic() - began), **found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--postgres", action="store_true", help="The log is in a new PostgreSQL.")
    args = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if args.postgres:
            url = stack.enter_context(cluster()).new_database()
            crash: CrashDrill = PostgresDrill(ServerProcess(folder, url), args.seed)
        else:
            crash = CrashDrill(ServerProcess(folder), args.seed)
        print(json.dumps(run(crash, args.kills, args.seed), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
