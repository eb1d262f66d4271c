"""make drill-launch: break ranks, agents, hosts and servers under real gangs, and check what runs.

    python -m drills.launch --minutes 10 --gangs 20 --servers 3 --seed 1

Agents and ranks are processes of this machine, or on ten nodes of a real Slurm (--on slurm) or of
a real Kubernetes API server with a toy kubelet (--on kubernetes). Three servers share a PostgreSQL,
or one has a SQLite file (--servers 1). Every few seconds something is broken: a rank, an agent, a
supervisor or a whole host is killed, a host stands still (SIGSTOP), a host is drained, by muster or
in the cluster, a job cancelled, the leader killed or stopped, slurmctld or the API server killed.
Beside that an observer looks at all processes ten times a second.

Checked: no two attempts ever run on one host; no attempt that leads to nothing is half started for
longer than a lease while somebody leads; every attempt of which a rank was killed is over in the
end; every gang ends; those that complete have summed up each step exactly once, across all their
restarts; no attempt has published a checkpoint after its successor raised the fence; the time of
the log is that of the clock; and the log is one that the simulator's invariant checker accepts.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from drills.hosts import GPUS, KINDS, NODES, ProcessHosts, Undo, hosts_of, missing_for, rank_of
from placement.workload.request import SpareRule
from scheduler.access.tokens import new_secret
from scheduler.client import Client, ServiceError
from scheduler.core.policies.job_terms import RunSpec
from scheduler.files.fabrics import fabricyaml
from scheduler.v1 import job_pb2
from scripts.local_host import environments, send
from simulator.collectors.invariants import InvariantViolated
from tests.build import spec
from tests.e2e.gangs import ROOT, TRAIN, check_log
from tests.e2e.processes import RunningServer
from tests.ports import free_port
from tests.postgres import cluster

WIDTH = 2  # hosts of a gang
LEASE_S = 4
SLACK_S = 4.0  # on a machine that is busy with all this
LIVE = (job_pb2.JOB_STATE_QUEUED, job_pb2.JOB_STATE_RUNNING, job_pb2.JOB_STATE_INTERRUPTED)


@dataclass
class DrillOptions:
    minutes: float
    gangs: int
    servers: int
    seed: int
    pause_s: float
    on: str = "processes"
    holding: str = "gang"


# --- the cluster ------------------------------------------------------------


class DrillServer(RunningServer):
    """One server of the drill, on ports that it keeps."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder, ["--config", str(folder / f"{name}.yaml")], name)
        self.address, self.agents = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.name = name

    def configure(self, keys: dict[str, Any], env: dict[str, str] | None) -> None:
        self.env = env
        own = {"listen": self.address, "log": {"level": "info"}, "console": {"listen": "off"}}
        keys = keys | own | {"agents": keys["agents"] | {"listen": self.agents}}
        (self.folder / f"{self.name}.yaml").write_text(yaml.safe_dump(keys))


class DrillCluster:
    """Servers and hosts in one folder."""

    def __init__(self, folder: Path, options: DrillOptions, store: str) -> None:
        self.hosts = hosts_of(options.on, folder, options.gangs, options.holding)
        self.servers = [DrillServer(folder, f"server-{n}") for n in range(options.servers)]
        self.address = ",".join(server.address for server in self.servers)
        self._secret = new_secret()
        (folder / "secret").write_text(self._secret)
        (folder / "fabric.yaml").write_text(fabricyaml.dump(self.hosts.fabric))
        self._agents = ",".join(server.agents for server in self.servers)
        keys: dict[str, Any] = {"fabric": str(folder / "fabric.yaml"), "store": store}
        (folder / "tenants.yaml").write_text(yaml.safe_dump({"restarts": {"avoid_s": 5}}))
        keys["tenants"] = str(folder / "tenants.yaml")
        keys["agents"] = {"lease_s": LEASE_S, "join_secret": str(folder / "secret")}
        if store.startswith("postgresql"):
            keys["lease_s"] = 3
        for server in self.servers:
            server.configure(keys | self.hosts.keys(self._agents), self.hosts.env)
        self._stop = threading.Event()

    @contextmanager
    def running(self) -> Iterator[Client]:
        keeping = threading.Thread(target=self._keep)
        try:
            self.hosts.start(self._agents, self._secret)
            for server in self.servers:
                server.begin()
            with Client(self.address) as client:
                within(60, lambda: client.get_status())
                keeping.start()
                yield client
        finally:
            self._stop.set()
            if keeping.is_alive():
                keeping.join()
            for server in self.servers:
                server.end(signal.SIGTERM)
            self.hosts.close()

    def _keep(self) -> None:
        while not self._stop.is_set():
            self.hosts.look()
            time.sleep(0.1)

    def leader(self) -> DrillServer | None:
        """Return the server that wrote the newest lines of a leader in its log; a single server
        leads."""
        running = [server for server in self.servers if server.process is not None]
        if len(self.servers) == 1:
            return running[0] if running else None
        for server in running:
            if server.role()[0] == "leader":
                return server
        return None


def within(seconds: float, call: object) -> None:
    """Call a function until it does not fail."""
    assert callable(call)
    until_s = time.monotonic() + seconds
    while True:
        try:
            call()
            return
        except ServiceError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.2)


# --- who watches ------------------------------------------------------------


@dataclass
class Half:
    """An attempt that was never seen on all of its hosts. `up_s`: for how long some server led."""

    hosts: set[str] = field(default_factory=set)
    up_s: float = 0.0


class Observer(threading.Thread):
    """Looks at the processes of all ranks, ten times a second."""

    def __init__(self, cluster: DrillCluster) -> None:
        super().__init__(daemon=True)
        self.wrong: list[str] = []
        self.led_s = 0.0  # since when somebody leads; 0: nobody
        self.frozen: set[str] = set()
        self.looks = 0
        self.attempts: set[tuple[str, int]] = set()
        self.ended = threading.Event()
        self.agents = cluster.hosts.agents
        self._first_s: dict[int, float] = {}  # when a pid was first seen
        self._ranks_seen: set[int] = set()
        self._half: dict[tuple[str, int], Half] = defaultdict(Half)
        self._whole: set[tuple[str, int]] = set()

    def run(self) -> None:
        before_s = time.monotonic()
        while not self.ended.is_set():
            now_s = time.monotonic()
            self._look(now_s - before_s)
            before_s = now_s
            time.sleep(max(0.02, 0.1 - (time.monotonic() - now_s)))

    def _look(self, passed_s: float) -> None:
        by_host: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for host, uid, attempt in self._ranks():
            by_host[host].add((uid, attempt))
        self.looks += 1
        hosts_of: dict[tuple[str, int], set[str]] = defaultdict(set)
        for host, running in by_host.items():
            if len(running) > 1:
                self.wrong.append(f"{host} runs {len(running)} attempts: {sorted(running)}")
            for key in running:
                hosts_of[key].add(host)
        is_led = self.led_s and time.monotonic() - self.led_s > LEASE_S
        for key, hosts in hosts_of.items():
            self.attempts.add(key)
            if len(hosts) == WIDTH:
                self._whole.add(key)
            elif key not in self._whole and not hosts & self.frozen:
                half = self._half[key]
                half.hosts |= hosts
                if len(half.hosts) < WIDTH and is_led:
                    half.up_s += passed_s
                    if half.up_s > LEASE_S + SLACK_S:
                        self.wrong.append(f"{key} was half started for {half.up_s:.1f} s")
                        self._whole.add(key)

    def _ranks(self) -> Iterator[tuple[str, str, int]]:
        """(host, job uid, attempt) of every process of a rank."""
        first: dict[int, float] = {}
        now_s = time.monotonic()
        for name in Path("/proc").iterdir():
            if not name.name.isdecimal():
                continue
            pid = int(name.name)
            first[pid] = self._first_s.get(pid, now_s)
            # One that is no rank for long will be none: before it executes it has no environment.
            if pid in self._ranks_seen or now_s - first[pid] < 3:
                found = rank_of(name, self.agents)
                if found is not None:
                    self._ranks_seen.add(pid)
                    yield found
        self._first_s = first
        self._ranks_seen &= first.keys()


# --- faults ------------------------------------------------------------


class Breaker:
    """Injects faults. `killed`: attempts of which a rank was killed."""

    def __init__(
        self, cluster: DrillCluster, client: Client, observer: Observer, rng: random.Random
    ) -> None:
        self.done: Counter[str] = Counter()
        self.killed: set[tuple[str, int]] = set()
        self._cluster, self._client, self._observer, self._rng = cluster, client, observer, rng
        self._hosts = cluster.hosts
        self._start_controller: Undo | None = None
        self._later: list[tuple[float, object]] = []
        self._kinds = {
            "rank killed": self._rank,
            "agent killed": self._agent,
            "supervisor killed": self._supervisor,
            "host killed": self._host,
            "host frozen": self._freeze,
            "host drained": self._drain,
            "server killed": self._server,
            "server stopped": self._stop_server,
            "controller killed": self._controller,
        }

    def break_something(self) -> None:
        weights = [6, 3, 2, 3, 3, 1, 1, 1 if len(self._cluster.servers) > 1 else 0]
        weights.append(0 if isinstance(self._hosts, ProcessHosts) else 2)
        (kind,) = self._rng.choices(list(self._kinds), weights)
        try:
            if self._kinds[kind]():
                self.done[kind] += 1
        except ServiceError:
            pass

    def mend(self, *, all_of_it: bool = False) -> None:
        """Mend the faults that are due, or all of them."""
        now_s = time.monotonic()
        due = [each for each in self._later if all_of_it or each[0] <= now_s]
        self._later = [each for each in self._later if each not in due]
        for _, mend in due:
            assert callable(mend)
            mend()

    def _in(self, least_s: float, most_s: float, mend: object) -> None:
        self._later.append((time.monotonic() + self._rng.uniform(least_s, most_s), mend))

    def _any(self, *, busy: bool = True) -> str | None:
        found = [
            name
            for name in self._hosts.names
            if name not in self._observer.frozen
            and not self._hosts.is_down(name)
            and (self._hosts.ranks(name) or not busy)
        ]
        return self._rng.choice(found) if found else None

    def _rank(self) -> bool:
        name = self._any()
        ranks = self._hosts.ranks(name) if name else []
        if not ranks:
            return False
        pid = self._rng.choice(ranks)
        found = rank_of(Path("/proc", str(pid)), self._hosts.agents)
        send(signal.SIGKILL, pid)
        if found:
            self.killed.add(found[1:])
        return True

    def _supervisor(self) -> bool:
        name = self._any()
        pids = self._hosts.supervisors(name) if name else []
        send(signal.SIGKILL, *pids)
        return bool(pids)

    def _agent(self) -> bool:
        name = self._any(busy=False)
        return name is not None and self._hosts.kill_agent(name, self._rng.uniform(0, 2))

    def _host(self) -> bool:
        name = self._any()
        if name:
            self._hosts.kill(name, self._rng.uniform(1, 3 * LEASE_S))
        return name is not None

    def _freeze(self) -> bool:
        name = self._any()
        if name is None:
            return False
        self._observer.frozen.add(name)
        thaw = self._hosts.freeze(name)

        def end() -> None:
            thaw()
            self._in(2, 2, lambda: self._observer.frozen.discard(name))

        self._in(1, 5 * LEASE_S, end)
        return True

    def _drain(self) -> bool:
        name = self._any()
        if name is None:
            return False
        resume = self._hosts.drain(name) if self._rng.random() < 0.5 else None
        if resume is not None:

            def end() -> None:
                self._resume_controller()
                resume()

            self._in(10, 20, end)
        else:
            self._client.drain_host(name)
            self._in(10, 20, lambda: within(60, lambda: self._client.uncordon_host(name)))
        return True

    def _controller(self) -> bool:
        if self._start_controller is not None:
            return False
        self._start_controller = self._hosts.stop_controller()
        self._in(1, 10, self._resume_controller)
        return True

    def _resume_controller(self) -> None:
        start, self._start_controller = self._start_controller, None
        if start is not None:
            start()

    def _server(self) -> bool:
        server = self._cluster.leader()
        if server is None:
            return False
        self._observer.led_s = 0.0
        server.end(signal.SIGKILL)
        self._in(0, 3, server.begin)
        return True

    def _stop_server(self) -> bool:
        server = self._cluster.leader()
        if server is None or server.process is None:
            return False
        self._observer.led_s = 0.0
        server.process.send_signal(signal.SIGSTOP)
        process = server.process
        self._in(6, 12, lambda: process.send_signal(signal.SIGCONT))
        return True


# --- the drill ------------------------------------------------------------


class LaunchDrill:
    def __init__(self, folder: Path, options: DrillOptions, store: str) -> None:
        self._options, self._store = options, store
        self._cluster = DrillCluster(folder, options, store)
        self._rng = random.Random(options.seed)
        self._names = (f"g{n}" for n in range(10**6))
        self._steps: dict[str, int] = {}
        self._live: set[str] = set()
        self._cancelled: set[str] = set()
        self._checkpoints = folder / "checkpoints"

    def run(self) -> list[str]:
        """Run the drill; return what was found wrong."""
        observer = Observer(self._cluster)
        with self._cluster.running() as client:
            observer.start()
            breaker = Breaker(self._cluster, client, observer, self._rng)
            until_s = time.monotonic() + 60 * self._options.minutes
            next_s = time.monotonic() + 15  # agents have to get there first
            while time.monotonic() < until_s:
                self._refill(client, observer)
                if time.monotonic() >= next_s:
                    breaker.break_something()
                    next_s = time.monotonic() + self._rng.expovariate(1 / self._options.pause_s)
                breaker.mend()
                time.sleep(0.2)
            breaker.mend(all_of_it=True)
            breaker.mend(all_of_it=True)
            wrong = self._wait_for_ends(client, observer)
            wrong += self._await_cleanup()
            observer.ended.set()
            observer.join()
            jobs = {job.uid: job for job in client.list_jobs()}
        print(", ".join(f"{count} x {kind}" for kind, count in sorted(breaker.done.items())))
        print(
            f"{len(observer.attempts)} attempts of {len(self._steps)} gangs, {observer.looks} looks"
        )
        wrong += observer.wrong
        wrong += self._unnoticed_deaths(breaker, jobs)
        wrong += self._sums(jobs)
        wrong += self._stale_checkpoints()
        wrong += self._leaps()
        wrong += self._log()
        return wrong

    def _refill(self, client: Client, observer: Observer) -> None:
        """As many gangs as there should be; and whether anybody leads."""
        try:
            jobs = {job.spec.name: job for job in client.list_jobs()}
            if not observer.led_s:
                observer.led_s = time.monotonic()
            self._live = {name for name, job in jobs.items() if job.state in LIVE}
            while len(self._live) < self._options.gangs:
                self._submit(client)
            if self._rng.random() < 0.002:
                name = self._rng.choice(sorted(self._live))
                self._cancelled.add(name)
                client.cancel_job(name)
        except ServiceError:
            observer.led_s = 0.0

    def _submit(self, client: Client) -> None:
        name = next(self._names)
        steps = self._rng.randrange(50, 200)
        self._steps[name] = steps
        command = [sys.executable, TRAIN, "--steps", str(steps), "--step-s", "0.25"]
        # Half of the time it saves, so that hosts stand still, or are cut off, in the middle of it.
        command += ["--save-every", "8", "--save-s", "2"]
        command += ["--checkpoints", str(self._checkpoints / name)]
        run = RunSpec(tuple(command), (("PYTHONPATH", str(ROOT)),), "/tmp", grace_s=5)
        made = spec(name, WIDTH, gpus=GPUS, spares=SpareRule(hosts=0))
        client.create_job(replace(made, run=run), request_id=name)
        self._live.add(name)

    def _wait_for_ends(self, client: Client, observer: Observer) -> list[str]:
        """Nothing is broken any more: all gangs come to their ends."""
        until_s = time.monotonic() + 60 + 0.25 * 400 * 3
        left: list[job_pb2.Job] = []
        while time.monotonic() < until_s:
            with suppress(ServiceError):
                left = [job for job in client.list_jobs() if job.state in LIVE]
                if not left:
                    return []
            time.sleep(0.5)
        return [f"{job.spec.name} has not ended: {job.reason or 'it runs'}" for job in left]

    def _await_cleanup(self) -> list[str]:
        """Wait ten leases for ended gangs to vanish; return what remains of them."""
        until_s = time.monotonic() + 10 * LEASE_S
        while (left := self._cluster.hosts.find_leftovers()) and time.monotonic() < until_s:
            time.sleep(0.5)
        return left

    def _unnoticed_deaths(self, breaker: Breaker, jobs: dict[str, job_pb2.Job]) -> list[str]:
        return [
            f"a rank of attempt {attempt} of {uid} was killed, and nobody took notice"
            for uid, attempt in breaker.killed
            if uid in jobs
            and jobs[uid].attempt == attempt
            and jobs[uid].state == job_pb2.JOB_STATE_COMPLETED
            and not self._is_after_the_end(jobs[uid])
        ]

    def _is_after_the_end(self, job: job_pb2.Job) -> bool:
        """A rank that is killed when all its steps are done loses nothing."""
        return job.saved_checkpoint.step == self._steps[job.spec.name]

    def _sums(self, jobs: dict[str, job_pb2.Job]) -> list[str]:
        """A completed gang has done each step once: its sum says so."""
        wrong = []
        world = WIDTH * GPUS
        for job in jobs.values():
            name = job.spec.name
            if job.state == job_pb2.JOB_STATE_FAILED:
                wrong.append(f"{name} failed: {job.reason}")
            if job.state != job_pb2.JOB_STATE_COMPLETED:
                continue
            steps = self._steps[name]
            total = sum(world * step + world * (world - 1) / 2 for step in range(1, steps + 1))
            found = sorted((self._checkpoints / name).glob(f"*.attempt-*/step-{steps:012d}"))
            if not found:
                wrong.append(f"{name} completed without its last checkpoint")
                continue
            state = json.loads((found[-1] / "state.json").read_text())
            if state != {"step": steps, "value": total}:
                wrong.append(f"{name} summed up {state}, not {total} in {steps} steps")
        return wrong

    def _stale_checkpoints(self) -> list[str]:
        """Published after a later attempt had raised its fence."""
        wrong = []
        for root in self._checkpoints.glob("*"):
            for fences in (root / ".muster-fences").glob("*"):
                raised = {int(path.name): path.stat().st_mtime for path in fences.iterdir()}
                for folder in root.glob(f"{fences.name}.attempt-*"):
                    attempt = int(folder.name.rpartition("-")[2])
                    later = min((at for n, at in raised.items() if n > attempt), default=None)
                    for path in folder.glob("step-*"):
                        if (
                            later
                            and path.suffix != ".partial"
                            and path.stat().st_ctime > later + 0.05
                        ):
                            wrong.append(f"{path} was published after its successor began")
        return wrong

    def _leaps(self) -> list[str]:
        """All servers have one clock, so the time of the log is what it says."""
        lines = (line for s in self._cluster.servers for line in s.log.read_text().splitlines())
        return [f"the time of the log: {line}" for line in lines if "muster.clock" in line]

    def _log(self) -> list[str]:
        """The log of the service, as the simulator checks its own."""
        try:
            count = check_log(self._store)
        except InvariantViolated as error:
            return [f"the log: {error}"]
        print(f"{count} events")
        return []


def drill(options: DrillOptions) -> list[str]:
    with ExitStack() as stack:
        keep = tempfile.mkdtemp(prefix="muster-drill-")
        folder = Path(keep)
        folder.chmod(0o711)
        store = f"sqlite:///{folder / 'm.db'}"
        if options.servers > 1:
            store = stack.enter_context(cluster()).new_database()
        wrong = LaunchDrill(folder, options, store).run()
        print(f"folder: {folder}" if wrong else "nothing was wrong")
        if not wrong:
            shutil.rmtree(folder)
        return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--gangs", type=int, help="20, or 4 on ten nodes")
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause-s", type=float, default=4.0, help="mean time between two faults")
    parser.add_argument("--on", choices=KINDS, default="processes", help="what agents run on")
    parser.add_argument("--holding", choices=("gang", "whole"), default="gang", help="which nodes")
    options = DrillOptions(**vars(parser.parse_args()))
    options.gangs = options.gangs or (20 if options.on == "processes" else 4)
    if options.on != "processes" and options.gangs * WIDTH > NODES:
        parser.error(f"--gangs: {NODES} nodes are too few for {options.gangs} of {WIDTH} hosts")
    if why := missing_for(options.on):
        parser.error(f"--on: {why}")
    wrong = drill(options)
    for text in wrong[:50]:
        print(f"WRONG: {text}")
    assert not any(b"muster-drill-" in environment for _, environment in environments())
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
