"""`make drill-failures`: failures as clusters have them, in a lab, and in the simulator.

A gang of three hosts and a spare steps in a lab of two zones of two racks of two hosts; a step
sends some 40 kB through the host of its first rank. Where an uplink is slow or lossy the gang has
six hosts, two of them in the other zone; where it is defragmented, two. Beside what the lab did: of
scripts in which hosts are silent for a lease, what `muster replay` makes of the same downs and ups;
of slow links, the fluid simulation of such steps.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from lab.cluster import Lab, up
from lab.faults import Fault
from lab.plan import plan_lab
from lab.serving import serve
from muster.structs import replace
from network.step_simulation import play
from network.step_tasks import Exchange, StepTasks, Task
from placement.fabric.reader import from_spec
from placement.workload.request import SpareRule
from tests.build import fabric_spec, job_to_mapping
from tests.e2e.gangs import gang

LEASE_S, LOOK_S = 3, 3
SCALE, VECTOR_BYTES = 1 / 200_000, 8_000
STEP_S, BUSY_STEP_S = 0.2, 0.02  # compute of a step; of gangs that send most of the time
STEPS = 20  # of a simulation: so many that the end of the last one counts little
FAULT_S, SLOW_S = 24.0, 90.0  # a slow host is known from some dozens of steps
GANG = "stepping"
SPEC = fabric_spec(2, 2, 2, gpus=2)
_MUSTER = (sys.executable, "-c", "from scheduler.cli import main; main()")


class ScriptResult(NamedTuple):
    """The result of one script of faults. `attempts`: those begun after the fault; `back_s`: from
    the fault to the last launch, 0 without; `simulated`: attempts of the simulator, -1 where no
    host goes down; `simulated_per_s`: steps a second of the fluid simulation, before and with a
    slow link."""

    kind: str
    attempts: int
    left: tuple[str, ...]
    back_s: float
    before_per_s: float
    in_fault_per_s: float
    not_healthy: tuple[str, ...]
    simulated: int
    simulated_per_s: tuple[float, ...] = ()


class FailureLab:
    """A lab with a gang whose ranks step."""

    def __init__(self, folder: Path, lab: Lab) -> None:
        self.folder, self.lab = folder, lab

    def start(self, kind: str) -> None:
        (self.lab.folder / "fabric.yaml").write_text(yaml.safe_dump(SPEC))
        config = self.lab.folder / "server.yaml"
        config.write_text(yaml.safe_dump({"agents": {"stragglers_s": LOOK_S}}))
        options = [f"--config={config}"]
        fabric = self.lab.folder / "fabric.yaml"
        self.lab = serve(self.lab, fabric, agents=True, lease_s=LEASE_S, options=options)
        if kind == DEFRAGMENTED:  # two others fill a zone, and one of them ends
            self._submit("before", 2)
            self._submit("beside", 2)
        hosts = {DEFRAGMENTED: 2, **dict.fromkeys(ACROSS, 6)}.get(kind, 3)
        words: tuple[str, ...] = ("--step-s", str(BUSY_STEP_S if kind in ACROSS else STEP_S))
        if kind == "a slow host":
            words += ("--slow-rank", "2", "--slower", "1.5")
        self._submit(GANG, hosts, *words, spares=int(hosts == 3), save_every=2)
        assert self.wait(lambda: self.step() > 4), "the gang makes no steps"
        if kind == DEFRAGMENTED:
            self.run_muster("cancel", "before")

    def _submit(
        self, name: str, hosts: int, *words: str, spares: int = 0, save_every: int = 10**6
    ) -> None:
        job = gang(
            name,
            self.folder,
            hosts,
            steps=10**7,
            save_every=save_every,
            spares=SpareRule(hosts=spares),
            arguments=words,
        )
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(job_to_mapping(job)))
        self.run_muster("submit", str(path))
        running = "JOB_STATE_RUNNING"
        assert self.wait(lambda: self.job(name).get("state") == running), f"{name} does not run"

    def run_muster(self, *words: str) -> str:
        return self.lab.run(
            "client", ["env", f"MUSTER_ADDRESS={self.lab.servers}", *_MUSTER, *words]
        )

    def job(self, name: str = GANG) -> dict[str, Any]:
        return dict(json.loads(self.run_muster("job", name, "-o", "json")))

    def hosts(self) -> dict[str, str]:
        """Return the states of hosts that are not healthy."""
        rows = json.loads(self.run_muster("hosts", "-o", "json"))["hosts"]
        states = {row["name"]: row.get("state", "").removeprefix("HOST_STATE_") for row in rows}
        return {name: state for name, state in states.items() if state != "HEALTHY"}

    def step(self) -> int:
        """Return the newest step that was saved."""
        saved = (self.folder / "checkpoints" / GANG).rglob("step-*")
        numbers = (path.name.removeprefix("step-") for path in saved)
        return max((int(number) for number in numbers if number.isdigit()), default=0)

    def wait(self, holds: Callable[[], bool], within_s: float = 60.0) -> bool:
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s:
            with suppress(OSError, ValueError):
                if holds():
                    return True
            time.sleep(0.2)
        return False

    def rate(self, seconds: float) -> float:
        before, began_s = self.step(), time.monotonic()
        time.sleep(seconds)
        return (self.step() - before) / (time.monotonic() - began_s)

    def play(self, kind: str) -> ScriptResult:
        """Measure, inject the faults of a script, and measure again."""
        before = self.job()
        mine = before["placement"]["hosts"]
        before_per_s = self.rate(16.0)
        in_fault = self._break(kind, mine[1])
        after = self.job()
        back_s = 0.0
        if after["attempt"] != before["attempt"]:
            back_s = datetime.fromisoformat(after["launch_time"]).timestamp() - self._began_s
        self.lab = self.lab.with_faults([])
        downs = self._downs(kind, mine[1])
        left = tuple(sorted(set(mine) - set(after["placement"]["hosts"])))
        states = tuple(f"{name} {state}" for name, state in self.hosts().items())
        slow = self._far_zone()
        shares = (1.0, 0.5) if kind == "uplink of the zone at half" else ()
        return ScriptResult(
            kind,
            after["attempt"] - before["attempt"],
            left,
            round(back_s, 1),
            round(before_per_s, 2),
            round(in_fault, 2),
            states,
            simulated_attempts(self.folder, downs) if downs or kind == DEFRAGMENTED else -1,
            tuple(round(simulated_rate(mine, slow, left), 2) for left in shares),
        )

    def _break(self, kind: str, host: str) -> float:
        """Make the fault for its time. Returns steps a second in it."""
        self._began_s = time.time()
        rack, zone = host.rpartition("-")[0], self._far_zone()
        links = {link.name: link.bits_per_s for link in self.lab.plan.links}
        match kind:
            case "NIC flaps, 1 s of 4":
                return self._flap(host, 1.0, 3.0)
            case "NIC flaps, 6 s of 8":
                return self._flap(host, 6.0, 2.0)
            case "NIC loses 1 %":
                self.lab = self.lab.with_faults([Fault(host, loss=0.01)])
            case "rack loses its power":
                down = [Fault(name, loss=1.0) for name in self.lab.plan.inside[rack]]
                self.lab = self.lab.with_faults(down)
            case "uplink of the zone loses 1 %":
                self.lab = self.lab.with_faults([Fault(zone, loss=0.01)])
            case "defragmented":
                self.run_muster("defrag", "--for-hosts", "4", "--apply")
                return self.rate(FAULT_S)
            case "uplink of the zone at half":
                self.lab = self.lab.with_faults([Fault(zone, bits_per_s=links[zone] / 2)])
        return self.rate(FAULT_S if self.lab.faults else SLOW_S)

    def _far_zone(self) -> str:
        """The zone in which fewest hosts of the gang are."""
        zones: list[str] = [host.partition("-")[0] for host in self.job()["placement"]["hosts"]]
        return min(set(zones), key=zones.count)

    def _flap(self, host: str, off_s: float, on_s: float) -> float:
        before, began_s = self.step(), time.monotonic()
        while time.monotonic() < began_s + FAULT_S:
            self.lab = self.lab.with_faults([Fault(host, loss=1.0)])
            time.sleep(off_s)
            self.lab = self.lab.with_faults([])
            time.sleep(on_s)
        return (self.step() - before) / (time.monotonic() - began_s)

    def _downs(self, kind: str, host: str) -> list[tuple[float, str, str]]:
        """Return the host events of a replay of this script, where hosts are silent for a lease."""
        match kind:
            case "NIC flaps, 6 s of 8":
                times = [8.0 * n for n in range(3)]
                return [row for at in times for row in ((at, host, "down"), (at + 6, host, "up"))]
            case "rack loses its power":
                rack = host.rpartition("-")[0]
                return [(0.0, name, "down") for name in self.lab.plan.inside[rack]]
        return []


def simulated_rate(hosts: list[str], zone: str, left: float) -> float:
    """Return the steps a second of the fluid simulation where so much of a zone's uplink is left.

    Each rank computes, sends a vector to the first, and goes on when it is sent the sum; the first
    goes on once it has all vectors, while its sums are under way: one after the other, as it puts
    them into the queue of its network card, so that ranks told early send again meanwhile.
    """
    fabric = from_spec(SPEC)
    outer, index = fabric.tiers[0], {name: i for i, name in enumerate(fabric.hosts)}
    shares = np.where(np.array(outer.domains) == zone, left, 1.0)
    slow = replace(outer, uplink_bytes_per_s=outer.uplink_bytes_per_s * shares)
    unit = np.repeat([index[host] for host in hosts], SPEC["gpus_per_host"])
    ranks = range(len(unit))
    size, one = np.array([VECTOR_BYTES / SCALE]), np.array([1])
    tasks: list[Task] = []

    def add(task: Task) -> int:
        tasks.append(task)
        return len(tasks) - 1

    def send(src: int, dst: int, after: list[int]) -> int:
        ends = np.array([src, dst])
        sent = Exchange("dp", ends, ends[:1], ends[1:], size, one)
        return add(Task(src, exchange=sent, share=1.0, after=after))

    ready: list[list[int]] = [[] for _ in ranks]
    for _ in range(STEPS):
        computed = [add(Task(rank, seconds=BUSY_STEP_S, after=ready[rank])) for rank in ranks]
        whole = [computed[0], *(send(rank, 0, [computed[rank]]) for rank in ranks[1:])]
        sums = list[int]()
        for rank in ranks[1:]:
            sums.append(send(0, rank, [*whole, *sums[-1:]]))
        ready = [whole, *([each] for each in sums)]
    tiers = (slow, *fabric.tiers[1:])
    return STEPS / play(replace(fabric, tiers=tiers), StepTasks(tasks, unit, 1)).seconds


def simulated_attempts(folder: Path, downs: list[tuple[float, str, str]]) -> int:
    """Count the attempts beyond the first that a gang makes when the simulator plays the same downs
    and ups, or, with none, moves one of two gangs so that a zone of four hosts is free."""
    fabric, jobs, events = folder / "f.yaml", folder / "jobs.jsonl", folder / "events.csv"
    fabric.write_text(yaml.safe_dump(SPEC))
    gangs = {GANG: (3, 600)} if downs else {"before": (2, 30), "beside": (2, 600), GANG: (2, 600)}
    rows = [
        {
            "submit_s": number,
            "run_s": run_s,
            "name": name,
            "parallelism": {"tp": 2, "dp": hosts},
            "traffic": {"dp": 10},
            "spares": int(bool(downs)),
        }
        for number, (name, (hosts, run_s)) in enumerate(gangs.items())
    ]
    jobs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tenants = folder / "tenants.yaml"
    rule = {
        "defragment": {"every_h": 1, "hosts": 4},
        "preemption": {"checkpoint_s": 1, "restart_s": 1},
    }
    tenants.write_text(yaml.safe_dump({"tenants": [{"name": "all"}], "default": "all", **rule}))
    with events.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["time_s", "host", "state", "cause"])
        table.writerows([60 + at, host, state, "agent-lost"] for at, host, state in downs)
    given = ["--trace-format", "muster", "--fabric", str(fabric)]
    given += ["--failures", str(events)] if downs else ["--tenants", str(tenants)]
    given += ["--detect-s", str(LEASE_S), "--checkpoint-s", "1", "--restart-s", "1"]
    report = folder / "report"
    command = [*_MUSTER, "replay", str(jobs), *given, "--report", str(report)]
    subprocess.run(command, check=True, capture_output=True)
    lines = (report / "events.jsonl").read_text().splitlines()
    attempts: list[int] = [json.loads(line)["event"].get("attempt", 0) for line in lines]
    return max(attempts) - 1


ACROSS = ("uplink of the zone at half", "uplink of the zone loses 1 %")
DEFRAGMENTED = "defragmented"
KINDS = (
    "NIC flaps, 1 s of 4",
    "NIC loses 1 %",
    *ACROSS,
    "NIC flaps, 6 s of 8",
    "rack loses its power",
    "a slow host",
    DEFRAGMENTED,
)


@contextmanager
def failure_lab(kind: str) -> Iterator[FailureLab]:
    """Return the lab of this drill. Raises: InputError where namespaces cannot be had."""
    with tempfile.TemporaryDirectory(prefix="muster-failures-", dir="/tmp") as name:
        folder = Path(name)
        lab = up(folder / "lab", plan_lab(from_spec(SPEC), SCALE, servers=1))
        try:
            made = FailureLab(folder, lab)
            made.start(kind)
            yield made
        finally:
            lab.down()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", choices=KINDS, action="append")
    for kind in parser.parse_args().only or KINDS:
        with failure_lab(kind) as made:
            print(json.dumps(made.play(kind)._asdict()), flush=True)


if __name__ == "__main__":
    main()
