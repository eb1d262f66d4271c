"""make bench-copies: seconds until a gang steps again, from memory and from storage.

    python -m bench.service.copies [--state-mb N] [--repeat N] [--lab]

Four ranks on two hosts of `muster serve --launcher local`, and a spare; each rank has a state of
its own (examples/gang/train_sharded.py), which all write into storage, this machine's disk, past
its cache, every 200 steps of 0.1 s, and with `checkpoint.peers` into memory every 40. Half-way
between two checkpoints a rank is killed, or a host with all that runs there, until the first step
of the next attempt. With --lab hosts are namespaces of `muster lab` behind links of their fabric:
copies take the way that packets take, storage does not. Its links are scaled down: with states of
5 MB copies become complete in time, with 100 MB a lost host goes on from storage.

Printed is a Markdown table of medians, with the largest in brackets. The exit code is 1 when an
attempt did not begin where it should have.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import yaml

from bench.service.launch import NotAsMeant
from bench.tables import table
from lab.cluster import up
from lab.plan import CLIENT, fitting_scale, plan_lab
from lab.serving import serve
from placement.fabric.reader import from_spec
from placement.workload.request import SpareRule
from scheduler.client import Client
from scheduler.core.policies.job_terms import CheckpointTerms, RunSpec
from scheduler.v1 import job_pb2
from scripts.local_host import LocalHost
from tests.build import fabric_spec, spec
from tests.e2e.gangs import ROOT, is_launched, local_server, until

SAVE_EVERY, COPY_EVERY, STEP_S = 200, 40, 0.1
GPUS, COPIES_GB = 2, "8"
Rows = dict[str, list[tuple[float, int, float]]]
PROGRAM = str(ROOT / "examples" / "gang" / "train_sharded.py")
_BEGAN = re.compile(r"from step (\d+) at ([\d.]+)\n(\w+)(?:, \w+)?: loaded in ([\d.]+)")


class TimedFaults:
    """One gang, on which one fault after the other is tried. `rows`: of each, by its name, seconds
    until it steps, steps that it makes again, and seconds until it is where it was."""

    def __init__(self, client: Client, folder: Path, state_mb: int, *, in_memory: bool) -> None:
        self.rows: Rows = {}
        self._client, self._in_memory = client, in_memory
        command = [sys.executable, PROGRAM, "--steps", "1000000", "--step-s", str(STEP_S)]
        command += ["--state-mb", str(state_mb), "--save-every", str(SAVE_EVERY)]
        command += ["--copy-every", str(COPY_EVERY if in_memory else 0)]
        command += ["--checkpoints", str(folder / "checkpoints")]
        run = RunSpec(tuple(command), (("PYTHONPATH", str(ROOT)),), "/tmp")
        made = spec("gang", 2, gpus=GPUS, spares=SpareRule(hosts=1))
        terms = CheckpointTerms(peers=int(in_memory), peer_interval_s=1)
        client.create_job(replace(made, run=run, checkpoint=terms))
        until(client, "gang", is_launched(1))
        self._attempt, self._begun_at = 1, 0

    def steady(self) -> job_pb2.Job:
        """Wait until the gang has saved, is half-way to the next checkpoint, and has a spare."""

        def is_there(job: job_pb2.Job) -> bool:
            step, half = job.progress.step, SAVE_EVERY // 2
            is_half_way = half <= step % SAVE_EVERY < half + 10
            return step > self._begun_at + SAVE_EVERY and is_half_way and bool(job.placement.spares)

        return until(self._client, "gang", is_there, within_s=120)

    def measure(
        self, name: str, fault: Callable[[job_pb2.Job], AbstractContextManager[None]]
    ) -> None:
        """Break something, and wait until the gang is where it was."""
        job = self.steady()
        failed_s, at_step = time.time(), job.progress.step
        with fault(job):
            self._attempt += 1
            until(self._client, "gang", is_launched(self._attempt), within_s=120)
            text = b"".join(self._client.tail_logs("gang")).decode()
            while not (found := _BEGAN.search(text)):
                time.sleep(0.05)
                text = b"".join(self._client.tail_logs("gang")).decode()
            step, begun_s, source = int(found[1]), float(found[2]), found[3]
            self._begun_at = step
            if source != ("memory" if self._in_memory else "storage"):
                raise NotAsMeant(f"attempt {self._attempt} began with {source}")
            until(self._client, "gang", lambda job: job.progress.step >= at_step, within_s=120)
        again = (begun_s - failed_s, at_step - step, time.time() - failed_s)
        self.rows.setdefault(name, []).append(again)
        print(f"{name}, {source}: {again}", file=sys.stderr, flush=True)


def measure(
    client: Client, folder: Path, agents: Path, state_mb: int, repeat: int, *, in_memory: bool
) -> Rows:
    """Try every fault `repeat` times. `agents`: the folder with those of all hosts."""

    def kill_rank(job: job_pb2.Job) -> AbstractContextManager[None]:
        os.kill(LocalHost(agents / job.placement.hosts[1]).ranks()[-1], signal.SIGKILL)
        return nullcontext()

    def kill_host(job: job_pb2.Job) -> AbstractContextManager[None]:
        return LocalHost(agents / job.placement.hosts[1]).dead()

    gang = TimedFaults(client, folder, state_mb, in_memory=in_memory)
    for _ in range(repeat):
        gang.measure("rank killed", kill_rank)
        gang.measure("host killed", kill_host)
    client.cancel_job("gang")
    return gang.rows


def measure_locally(state_mb: int, repeat: int, *, in_memory: bool) -> Rows:
    """Hosts are processes of this machine."""
    with tempfile.TemporaryDirectory(prefix="muster-copies-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        options = ("--agent-copies-gb", COPIES_GB)
        with local_server(folder, *options, racks=2, hosts=2 + repeat) as (_, client):
            agents = folder / "m.db.agents"
            return measure(client, folder, agents, state_mb, repeat, in_memory=in_memory)


def measure_in_lab(state_mb: int, repeat: int, *, in_memory: bool) -> Rows:
    """Hosts are namespaces, in which this module runs once more."""
    with tempfile.TemporaryDirectory(prefix="muster-copies-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        spec_of_fabric = fabric_spec(1, 2, 2 + repeat, gpus=GPUS)
        path = folder / "fabric.yaml"
        path.write_text(yaml.safe_dump(spec_of_fabric))
        fabric = from_spec(spec_of_fabric)
        lab = up(folder / "lab", plan_lab(fabric, fitting_scale(fabric), 1), lambda *_: None)
        try:
            lab = serve(lab, path, agents=True, options=[f"--agent-copies-gb={COPIES_GB}"])
            words = [sys.executable, "-m", "bench.service.copies", "--inside", lab.servers]
            words += ["--folder", str(folder), "--repeat", str(repeat)]
            words += ["--state-mb", str(state_mb), *(["--in-memory"] if in_memory else [])]
            rows: Rows = json.loads(lab.run(CLIENT, words))
            return rows
        finally:
            lab.down()


def cells_of(columns: dict[str, Rows]) -> Iterator[list[str]]:
    titles = ("{} → stepping again, s", "{}: steps made again", "{} → where it was, s")
    for name in next(iter(columns.values())):
        for place, title in enumerate(titles):
            cells = (_text([row[place] for row in rows[name]]) for rows in columns.values())
            yield [title.format(name), *cells]


def _text(values: list[float]) -> str:
    most = f" ({max(values):.3g})" if len(values) > 1 else ""
    return f"{statistics.median(values):.3g}{most}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state-mb", type=int, default=100, help="of each of four ranks")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--lab", action="store_true", help="hosts are namespaces of a lab")
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--in-memory", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    size = (options.state_mb, options.repeat)
    if options.inside:
        with Client(options.inside) as client:
            agents = options.folder / "lab" / "agents"
            in_memory = options.in_memory
            print(json.dumps(measure(client, options.folder, agents, *size, in_memory=in_memory)))
        return 0
    measured = measure_in_lab if options.lab else measure_locally
    columns = {}
    try:
        for title, in_memory in (("storage", False), ("memory", True)):
            columns[title] = measured(*size, in_memory=in_memory)
    except NotAsMeant as error:
        print(f"not as it should be: {error}", file=sys.stderr)
        return 1
    print(table(["", *columns], cells_of(columns)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
