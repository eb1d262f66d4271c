"""make bench-emulated: the formula of a step, its simulation, and packets that ranks really send.

    python -m bench.steps.emulated [--seed 1] [--job NAME] [--steps 3] [--under-load] [--docs FILE]
    python -m bench.steps.emulated --no-packets      # formula against simulation, any machine

Jobs and placements are those of emulated_jobs.py. A lab of namespaces plays them in random order.
Its emulation needs an idle machine, so a busy one is refused. `--docs docs/lab.md` renews the table
of packets there.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import numpy as np

from bench.steps.emulated_jobs import JOBS, fabric_of, layouts
from bench.tables import percent, renew_page, table
from lab.cluster import up
from lab.measure import measure_tasks, refuse_load
from lab.plan import fitting_scale, plan_lab
from network.step_simulation import simulate_step
from network.step_tasks import step_tasks
from placement.fabric.tree import Fabric
from placement.objective.step_time import step_time
from scheduler.files.errors import InputError

GOALS = "median 5 %, worst 20 %, Spearman 0.97, gains within 10 points"
NOISE = 0.02  # of a step: what two measurements of one placement differ by on an idle machine


@dataclass(frozen=True, slots=True)
class EmulatedRow:
    """Seconds of a step of one job in one way. `measured`: the median; None without packets."""

    job: str
    seed: int
    way: str
    formula: float
    simulated: float
    measured: float | None = None

    @property
    def best(self) -> float:
        """Seconds of a step, measured by packets if they were sent, else simulated."""
        return self.simulated if self.measured is None else self.measured


Measure = Callable[[Fabric, str, Sequence[int]], float]


def compare(
    names: Sequence[str], seeds: Sequence[int], measure: Measure | None = None
) -> list[EmulatedRow]:
    """Compare each job in each way; ways that take the same hosts are simulated once."""
    asked = [(name, seed) for name in names for seed in seeds]
    random.Random(f"bench-emulated {seeds}").shuffle(asked)
    rows = []
    for name, seed in asked:
        fabric, request, ways = layouts(name, seed)
        known: dict[tuple[int, ...], tuple[float, float, float | None]] = {}
        order = list(dict.fromkeys(map(tuple, ways.values())))
        random.Random(f"{name} {seed}").shuffle(order)
        for hosts in order:
            step = step_time(fabric, request, hosts)
            simulated = simulate_step(fabric, request, hosts, step.compute_s).seconds
            took = measure(fabric, name, hosts) if measure else None
            known[hosts] = step.seconds, simulated, took
            print(f"{name} ({seed}): {step.seconds:.2f}/{simulated:.2f}/{took}", file=sys.stderr)
        rows += [EmulatedRow(name, seed, way, *known[tuple(hosts)]) for way, hosts in ways.items()]
    return sorted(rows, key=lambda row: (names.index(row.job), row.seed))


@contextmanager
def labs(steps: int) -> Iterator[Measure]:
    """Make a lab for each number of ranks a host, and measure in it."""
    made = {}
    with tempfile.TemporaryDirectory(prefix="bench-emulated-") as folder:
        try:
            for ranks in sorted({ranks for ranks, _ in JOBS.values()}):
                fabric = fabric_of(ranks)
                made[ranks] = up(
                    Path(folder) / str(ranks), plan_lab(fabric, fitting_scale(fabric), 0)
                )

            def measure(fabric: Fabric, name: str, hosts: Sequence[int]) -> float:
                ranks, request = JOBS[name]
                tasks = step_tasks(fabric, request, hosts, request.compute_s or 0.0, merged=False)
                return float(np.median(measure_tasks(made[ranks], fabric, tasks, steps)))

            yield measure
        finally:
            for lab in made.values():
                lab.down()


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's rank correlation; equal values share one rank."""
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    _, place, count = np.unique(np.round(values, 6), return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]


def by_instance(rows: Sequence[EmulatedRow]) -> list[list[EmulatedRow]]:
    """Group the ways of one job on one seed, muster's first."""
    return [list(each) for _, each in groupby(rows, lambda row: (row.job, row.seed))]


def summary(rows: Sequence[EmulatedRow], noise: float = NOISE) -> dict[str, float]:
    """Summarise the errors of the formula as shares, how it orders the ways, and which gains it
    predicts."""
    errors = [abs(row.formula / row.best - 1) for row in rows]
    gains, slower = [], 0
    for ways in by_instance(rows):
        ours, named = ways[0], next(row for row in ways if row.way == "by name")
        gains.append(abs(named.formula / ours.formula - named.best / ours.best))
        slower += ours.best > min(row.best for row in ways) * (1 + noise)
    return {
        "median": float(np.median(errors)),
        "p90": float(np.quantile(errors, 0.9)),
        "worst": max(errors),
        "spearman": spearman([row.formula for row in rows], [row.best for row in rows]),
        "gain off, median": float(np.median(gains)),
        "gain off, worst": max(gains),
        "muster slower": slower,
    }


def text(rows: Sequence[EmulatedRow]) -> str:
    """Write a line for each job and seed, then the summary."""
    ways = list(dict.fromkeys(row.way for row in rows))
    body = []
    for each in by_instance(rows):
        cells = ["/".join(f"{s:.2f}" for s in _seconds(row)) for row in each]
        body.append([f"{each[0].job} ({each[0].seed})", *cells])
    kinds = "formula/simulated" if rows[0].measured is None else "formula/simulated/measured"
    found = summary(rows)
    shown = [
        (name, f"{value:.3f}" if name == "spearman" else percent(value))
        for name, value in found.items()
        if name != "muster slower"
    ]
    shown.append(("muster slower by over 2 %", f"{found['muster slower']} of {len(body)}"))
    if rows[0].measured is not None:
        apart = [abs(row.simulated / row.best - 1) for row in rows]
        shown += [
            ("simulation, median", percent(float(np.median(apart)))),
            ("simulation, worst", percent(max(apart))),
        ]
    head = (f"seconds: {kinds}", *ways)
    return f"{table(head, body)}\n\n{table(('formula', 'found'), shown)}\n\ngoals: {GOALS}"


def _seconds(row: EmulatedRow) -> list[float]:
    return [row.formula, row.simulated, *([] if row.measured is None else [row.measured])]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--seed", type=int, action="append")
    options.add_argument("--job", action="append", choices=JOBS)
    options.add_argument("--steps", type=int, default=3)
    options.add_argument("--under-load", action="store_true")
    options.add_argument("--no-packets", action="store_true")
    options.add_argument("--docs", type=Path, help="the page whose table of packets is renewed")
    given = options.parse_args()
    if given.docs and given.no_packets:
        options.error("--docs is for what was measured: not with --no-packets")
    names, seeds = given.job or list(JOBS), given.seed or [1]
    if given.no_packets:
        print(text(compare(names, seeds)))
        return 0
    try:
        if not given.under_load:
            refuse_load()
        began = os.getloadavg()[0]
        with labs(given.steps) as measure:
            found = text(compare(names, seeds, measure))
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    load = f"{began:.1f} before, {os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores"
    told = f"{datetime.now(UTC).date()}, {given.steps} steps each; load: {load}\n\n{found}\n"
    print(told)
    if given.docs:
        renew_page(told, given.docs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
