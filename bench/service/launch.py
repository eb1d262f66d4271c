"""make bench-launch: seconds until a real gang steps, and steps again after a fault.

    python -m bench.service.launch [--ranks 4 16] [--repeat N] [--torch PYTHON]

`muster serve --launcher local` with a lease of 3 s on four hosts and two spares, and a host
more for each that will fail, since a gang avoids those for a while; all are this machine. Ranks
all-reduce over plain sockets (examples/gang/train.py); with --torch PYTHON, an interpreter that
has torch, over gloo (train_torch.py). A first step is made when all ranks have exchanged a
vector, and says so itself in the log of rank 0. Measured, cold and from warm processes:

    launch   from the start in the log until the first step
    rank     one rank killed -9, until the first step of the next attempt, from its checkpoint
    host     an agent and all that it runs killed -9, until the first step on the spare
    frozen   all of a host stopped (SIGSTOP): until the log has it, until the first step; and from
             SIGCONT until none of its stale ranks is left

Printed is a Markdown table of medians, with the largest in brackets where there are several.
The exit code is 1 when an attempt did not go on from a checkpoint of the one before.
"""

from __future__ import annotations

import argparse
import re
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.tables import table
from placement.workload.request import SpareRule
from scheduler.client import Client
from scheduler.core.policies.job_terms import RunSpec
from scheduler.v1 import host_pb2, job_pb2, service_pb2
from scripts.local_host import LocalHost, send
from tests.build import spec
from tests.e2e.gangs import ROOT, local_server

GANG = ROOT / "examples" / "gang"
HOSTS, SPARES, LEASE_S = 4, 2, 3
PATIENCE_S = 120.0
STEPS = 10**6
_BEGAN = re.compile(r"attempt (\d+): from step (\d+) at ([\d.]+)")
ROWS = {
    "launch": "launch → first step",
    "rank": "rank killed → stepping again",
    "host": "host killed → stepping again on the spare",
    "known": "host frozen, lease 3 s → known",
    "frozen": "host frozen, lease 3 s → stepping again",
    "thawed": "host thaws → its stale ranks are dead",
}


class NotAsMeant(Exception):
    """The gang did not do what was to be measured."""


class TimedGang:
    """One gang, on which one fault after the other is measured. `settle_s`: until all spares are
    warm again."""

    def __init__(
        self, folder: Path, client: Client, name: str, ranks: int, run: RunSpec, settle_s: float
    ) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self._folder, self._client, self._settle_s = folder, client, settle_s
        self._name, self._attempt = name, 0
        self._ranks, self._run = ranks, run

    def start(self) -> None:
        made = spec(self._name, HOSTS, gpus=self._ranks // HOSTS, spares=SpareRule(hosts=SPARES))
        self._client.create_job(replace(made, run=self._run))
        at_s, _ = self._first_step(1)
        for change in self._client.watch_jobs(0, self._name):
            if change.change == service_pb2.JOB_CHANGE_STARTED:
                self.seconds["launch"].append(at_s - change.change_time.ToNanoseconds() / 1e9)
                return

    def end(self) -> None:
        self._client.cancel_job(self._name)

    def kill_rank(self) -> None:
        job = self._steady()
        killed_s = time.time()
        send(signal.SIGKILL, self._host(job.placement.hosts[1]).ranks()[-1])
        self._measured("rank", killed_s)

    def kill_host(self) -> None:
        job = self._steady()
        victim = job.placement.hosts[1]
        with self._host(victim).dead():
            killed_s = time.time()  # it was killed, and its lock is held
            self._measured("host", killed_s)
        self._is_back(victim)

    def freeze_host(self) -> None:
        job = self._steady()
        host = self._host(job.placement.hosts[1])
        stale = set(host.ranks())
        frozen_s = time.time()
        pids = host.freeze()
        try:
            self._measured("frozen", frozen_s)
            known_s = self._interrupted_s(self._attempt)
            self.seconds["known"].append(known_s - frozen_s)
        finally:
            thawed_s = time.time()
            send(signal.SIGCONT, *pids)
        while stale & set(host.ranks()):
            time.sleep(0.005)
        self.seconds["thawed"].append(time.time() - thawed_s)
        self._is_back(host.name)

    def _measured(self, name: str, since_s: float) -> None:
        at_s, step = self._first_step(self._attempt + 1)
        if step == 0:
            raise NotAsMeant(f"attempt {self._attempt} began anew")
        self.seconds[name].append(at_s - since_s)

    def _first_step(self, attempt: int) -> tuple[float, int]:
        """When all ranks of an attempt had met, and from which step it went on."""
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            job = self._client.get_job(self._name)
            if job.attempt >= attempt and job.HasField("launch_time"):
                text = b"".join(self._client.tail_logs(self._name)).decode()
                for number, step, at_s in _BEGAN.findall(text):
                    if int(number) == attempt:
                        self._attempt = attempt
                        return float(at_s), int(step)
            time.sleep(0.05)
        raise NotAsMeant(f"attempt {attempt} made no step: {job}")

    def _steady(self) -> job_pb2.Job:
        """The job once it has a checkpoint of this attempt and a spare, all of them warm."""
        time.sleep(self._settle_s)
        checkpoints = self._folder / "checkpoints"
        pattern = f"*.attempt-{self._attempt:06d}/step-????????????"
        until_s = time.monotonic() + PATIENCE_S
        while True:
            job = self._client.get_job(self._name)
            if job.placement.spares and any(checkpoints.glob(pattern)):
                return job
            if time.monotonic() > until_s:
                raise NotAsMeant(f"not as it was before: {job}")
            time.sleep(0.05)

    def _interrupted_s(self, attempt: int) -> float:
        """When the log had the end of the attempt before this one."""
        at_s = 0.0
        for change in self._client.watch_jobs(0, self._name):
            if change.change == service_pb2.JOB_CHANGE_INTERRUPTED:
                at_s = change.change_time.ToNanoseconds() / 1e9
            elif change.change == service_pb2.JOB_CHANGE_SWAPPED and change.job.attempt == attempt:
                return at_s
        raise AssertionError("a watch ends with its caller")

    def _is_back(self, host: str) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while self._client.get_host(host).state != host_pb2.HOST_STATE_HEALTHY:
            if time.monotonic() > until_s:
                raise NotAsMeant(f"{host} does not come back")
            time.sleep(0.05)

    def _host(self, name: str) -> LocalHost:
        return LocalHost(self._folder / "m.db.agents" / name)


def measure(ranks: int, repeat: int, torch: str, *, warm: bool) -> dict[str, list[float]]:
    """Measure all faults, on a new server."""
    with tempfile.TemporaryDirectory(prefix="muster-launch-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        modules: tuple[str, ...] = ()
        if warm:
            modules = ("torch", "torch.distributed") if torch else ("argparse", "array", "json")
        program = GANG / ("train_torch.py" if torch else "train.py")
        arguments = ("--steps", str(STEPS), "--checkpoints", str(folder / "checkpoints"))
        command = (torch or sys.executable, str(program), *arguments)
        run = RunSpec(command, (("PYTHONPATH", str(ROOT)),), "/tmp", warm=modules)
        settle_s = (20.0 if torch else 4.0) if warm else 1.0
        sizes = {"racks": 1, "hosts": HOSTS + SPARES + 2 * repeat, "gpus": ranks // HOSTS}
        with local_server(folder, **sizes, lease_s=LEASE_S) as (_, client):
            if warm:  # leaves warm processes for the next one
                before = TimedGang(folder, client, "before", ranks, run, settle_s)
                before.start()
                time.sleep(settle_s)
                before.end()
                time.sleep(settle_s)
            gang = TimedGang(folder, client, "gang", ranks, run, settle_s)
            gang.start()
            for _ in range(repeat):
                gang.kill_rank()
                gang.kill_host()
                gang.freeze_host()
            gang.end()
            return gang.seconds


def rows_of(columns: dict[str, dict[str, list[float]]]) -> Iterator[list[str]]:
    for key, title in ROWS.items():
        yield [title, *(text_of(seconds[key]) for seconds in columns.values())]


def text_of(seconds: list[float]) -> str:
    if len(seconds) < 2:
        return f"{seconds[0]:.2f}"
    return f"{statistics.median(seconds):.2f} ({max(seconds):.2f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--torch", default="", help="an interpreter that has torch: ranks use gloo")
    options = parser.parse_args()
    columns = {}
    try:
        for ranks in options.ranks:
            for warm in (False, True):
                title = f"{ranks} ranks, {'warm' if warm else 'cold'}"
                columns[title] = measure(ranks, options.repeat, options.torch, warm=warm)
                print(f"{title}: {dict(columns[title])}", file=sys.stderr, flush=True)
    except NotAsMeant as error:
        print(f"not as it should be: {error}", file=sys.stderr)
        return 1
    print(table(["seconds", *columns], rows_of(columns)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
