"""`make drill-failures`: failures as clusters have them, in a lab, and in the simulator.

A gang of three hosts and a spare steps in a lab of two zones of two racks of two hosts; a step
sends some 40 kB through the host of its first rank. Of scripts in which hosts are silent for a
lease, what `muster replay` makes of the same downs and ups is beside what the lab did.
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

import yaml

from lab.cluster import Lab, up
from lab.faults import Fault
from lab.plan import plan_lab
from lab.serving import serve
from placement.fabric.tree import from_spec
from placement.workload.request import SpareRule
from scheduler.files.job import job_to_mapping
from tests.build import fabric_spec
from tests.e2e.gangs import gang

LEASE_S, LOOK_S = 3, 3
FAULT_S, SLOW_S = 24.0, 90.0  # a slow host is known from some dozens of steps
GANG = "stepping"
SPEC = fabric_spec(2, 2, 2, gpus=2)
_MUSTER = (sys.executable, "-c", "from scheduler.cli import main; main()")


class Outcome(NamedTuple):
    """Of one script. `attempts`: that began after the fault; `back_s`: from the fault to the last
    launch, 0 without; `simulated`: attempts of the simulator, -1 where no host goes down."""

    kind: str
    attempts: int
    left: tuple[str, ...]
    back_s: float
    before_per_s: float
    in_fault_per_s: float
    not_healthy: tuple[str, ...]
    simulated: int


class FailureLab:
    """A lab whose gang steps."""

    def __init__(self, folder: Path, lab: Lab) -> None:
        self.folder, self.lab = folder, lab

    def start(self, *arguments: str) -> None:
        (self.lab.folder / "fabric.yaml").write_text(yaml.safe_dump(SPEC))
        config = self.lab.folder / "server.yaml"
        config.write_text(yaml.safe_dump({"agents": {"stragglers_s": LOOK_S}}))
        options = [f"--config={config}"]
        fabric = self.lab.folder / "fabric.yaml"
        self.lab = serve(self.lab, fabric, agents=True, lease_s=LEASE_S, options=options)
        words = ("--step-s", "0.2", *arguments)
        job = gang(
            GANG,
            self.folder,
            3,
            steps=10**7,
            save_every=2,
            spares=SpareRule(hosts=1),
            arguments=words,
        )
        (self.folder / "job.yaml").write_text(yaml.safe_dump(job_to_mapping(job)))
        self.asked("submit", str(self.folder / "job.yaml"))
        self.wait(lambda: self.step() > 4)

    def asked(self, *words: str) -> str:
        return self.lab.run(
            "client", ["env", f"MUSTER_ADDRESS={self.lab.servers}", *_MUSTER, *words]
        )

    def job(self) -> dict[str, Any]:
        return dict(json.loads(self.asked("job", GANG, "-o", "json")))

    def hosts(self) -> dict[str, str]:
        """States of hosts that are not healthy."""
        rows = json.loads(self.asked("hosts", "-o", "json"))["hosts"]
        states = {row["name"]: row.get("state", "").removeprefix("HOST_STATE_") for row in rows}
        return {name: state for name, state in states.items() if state != "HEALTHY"}

    def step(self) -> int:
        """The newest step that was saved."""
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

    def play(self, kind: str) -> Outcome:
        """Measure, break, measure."""
        before = self.job()
        mine = before["placement"]["hosts"]
        before_per_s = self.rate(8.0)
        in_fault = self._break(kind, mine[1])
        after = self.job()
        back_s = 0.0
        if after["attempt"] != before["attempt"]:
            back_s = datetime.fromisoformat(after["launch_time"]).timestamp() - self._began_s
        self.lab = self.lab.with_faults([])
        downs = self._downs(kind, mine[1])
        left = tuple(sorted(set(mine) - set(after["placement"]["hosts"])))
        states = tuple(f"{name} {state}" for name, state in self.hosts().items())
        return Outcome(
            kind,
            after["attempt"] - before["attempt"],
            left,
            round(back_s, 1),
            round(before_per_s, 2),
            round(in_fault, 2),
            states,
            simulated_attempts(self.folder, mine, downs) if downs else -1,
        )

    def _break(self, kind: str, host: str) -> float:
        """Make the fault for its time. Returns steps a second in it."""
        self._began_s = time.time()
        rack, zone = host.rpartition("-")[0], host.partition("-")[0]
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
            case "uplink of the zone at half":
                self.lab = self.lab.with_faults([Fault(zone, bits_per_s=links[zone] / 2)])
        return self.rate(FAULT_S if self.lab.faults else SLOW_S)

    def _flap(self, host: str, off_s: float, on_s: float) -> float:
        before, began_s = self.step(), time.monotonic()
        while time.monotonic() < began_s + FAULT_S:
            self.lab = self.lab.with_faults([Fault(host, loss=1.0)])
            time.sleep(off_s)
            self.lab = self.lab.with_faults([])
            time.sleep(on_s)
        return (self.step() - before) / (time.monotonic() - began_s)

    def _downs(self, kind: str, host: str) -> list[tuple[float, str, str]]:
        """The same script as host events of a replay, where hosts are silent for a lease."""
        match kind:
            case "NIC flaps, 6 s of 8":
                times = [8.0 * n for n in range(3)]
                return [row for at in times for row in ((at, host, "down"), (at + 6, host, "up"))]
            case "rack loses its power":
                rack = host.rpartition("-")[0]
                return [(0.0, name, "down") for name in self.lab.plan.inside[rack]]
        return []


def simulated_attempts(folder: Path, hosts: list[str], downs: list[tuple[float, str, str]]) -> int:
    """Attempts beyond the first of the gang when the simulator plays the same downs and ups."""
    fabric, jobs, events = folder / "f.yaml", folder / "jobs.jsonl", folder / "events.csv"
    fabric.write_text(yaml.safe_dump(SPEC))
    job = {"submit_s": 0, "run_s": 600, "name": GANG, "parallelism": {"tp": 2, "dp": 3}}
    jobs.write_text(json.dumps({**job, "traffic": {"dp": 10}, "spares": 1}) + "\n")
    with events.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["time_s", "host", "state", "cause"])
        rows.writerows([60 + at, host, state, "agent-lost"] for at, host, state in downs)
    given = ["--trace-format", "muster", "--fabric", str(fabric), "--failures", str(events)]
    given += ["--detect-s", str(LEASE_S), "--checkpoint-s", "1", "--restart-s", "1"]
    report = folder / "report"
    command = [*_MUSTER, "replay", str(jobs), *given, "--report", str(report)]
    subprocess.run(command, check=True, capture_output=True)
    lines = (report / "events.jsonl").read_text().splitlines()
    return max(json.loads(line)["event"].get("attempt", 0) for line in lines) - 1


KINDS = (
    "NIC flaps, 1 s of 4",
    "NIC loses 1 %",
    "uplink of the zone at half",
    "NIC flaps, 6 s of 8",
    "rack loses its power",
    "a slow host",
)


@contextmanager
def failure_lab(*arguments: str) -> Iterator[FailureLab]:
    """Raises: InputError where namespaces cannot be had."""
    with tempfile.TemporaryDirectory(prefix="muster-failures-", dir="/tmp") as name:
        folder = Path(name)
        lab = up(folder / "lab", plan_lab(from_spec(SPEC), 1 / 200_000, servers=1))
        try:
            made = FailureLab(folder, lab)
            made.start(*arguments)
            yield made
        finally:
            lab.down()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", choices=KINDS, action="append")
    for kind in parser.parse_args().only or KINDS:
        slow = ("--slow-rank", "2", "--slower", "1.5") if kind == "a slow host" else ()
        with failure_lab(*slow) as made:
            print(json.dumps(made.play(kind)._asdict()), flush=True)


if __name__ == "__main__":
    main()
