"""How well stragglers are found: the tables of docs/stragglers.md.

    python -m bench.steps.stragglers             gangs that are made up, of which the truth is known
    python -m bench.steps.stragglers FOLDER      the recorded traces of "Understanding Stragglers in
                                                 Large Model Training Using What-if Analysis" (OSDI
                                                 2025): who is slow there, and how well a slow rank
                                                 is found in their noise

FOLDER: `data` of github.com/ByteDance-Seed/StragglerAnalysis, with trace-AR.parquet (one worker
slowed on purpose), trace-ST.parquet (the last stage has more work) and trace-SE.parquet (sequences
of unlike length). Needs pyarrow.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scheduler.observe.stragglers import MeasuredGang, Measurement, Suspect, SuspectKind, stragglers
from tests.stragglers_made import Case, case, quality

COMPUTES = ("forward-compute", "backward-compute")
INJECTED, STEPS = 40, 30


def print_made() -> None:
    """Print precision and recall over made-up gangs."""
    for groups in (False, True):
        print("ranks and collectives" if groups else "ranks alone")
        print("| hosts | slower | noise of a step | precision | recall |\n|---|---|---|---|---|")
        for hosts in (8, 64, 256):
            for slower, noise in ((0.3, 0.05), (0.1, 0.03), (0.05, 0.03), (0.03, 0.03)):
                seeds = range(100, 140 if hosts < 256 else 110)
                made = [case(seed, hosts, slower, noise, groups=groups) for seed in seeds]
                precision, recall = quality(made)
                shares = f"{slower:.0%} | {noise:.0%} | {precision:.2f} | {recall:.2f}"
                print(f"| {hosts} | {shares} |", flush=True)


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded trace of workers. `stages`: of each worker."""

    seconds: dict[tuple[int, int], float]
    stages: dict[int, int]

    @property
    def gang(self) -> MeasuredGang:
        """Return the workers as a gang, each on a host of its own, for traces do not say which
        shared one."""
        names = tuple(f"worker-{number}" for number in range(len(self.stages)))
        return MeasuredGang(names, 1, {})

    def measurements(self, *, by_stage: bool) -> list[Measurement]:
        return [
            Measurement(step, (worker,), s, f"stage {self.stages[worker]}" if by_stage else "all")
            for (step, worker), s in self.seconds.items()
        ]


def read_recording(path: Path) -> Recording:
    import pyarrow.parquet as parquet

    table: Any = parquet.read_table(path, columns=["rank", "stage", "step", "optype", "duration"])
    rows = table.to_pydict()
    numbers = {rank: number for number, rank in enumerate(sorted(set(rows["rank"])))}
    seconds: dict[tuple[int, int], float] = defaultdict(float)
    stages = {}
    for rank, stage, step, what, took in zip(*rows.values(), strict=True):
        stages[numbers[rank]] = stage
        if what in COMPUTES:
            seconds[step, numbers[rank]] += took
    return Recording(dict(seconds), stages)


def slow_one_worker(source: Recording, seed: int, slower: float, noise_only: set[int]) -> Case:
    """Return a case in which one worker of `noise_only` is slower in up to STEPS steps in a row."""
    rng = np.random.default_rng(seed)
    steps = sorted({step for step, _ in source.seconds})
    first = int(rng.integers(max(1, len(steps) - STEPS)))
    kept = set(steps[first : first + STEPS])
    victim = sorted(noise_only)[rng.integers(len(noise_only))]
    seconds = {
        (step, worker): s * (1 + slower if worker == victim else 1)
        for (step, worker), s in source.seconds.items()
        if step in kept and worker in noise_only
    }
    made = Recording(seconds, source.stages)
    measured = made.measurements(by_stage=True)
    gang = made.gang
    truth = {(suspect.kind, suspect.name, suspect.gpu) for suspect in [_host(gang, victim)]}
    return Case(gang, measured, truth)


def _host(gang: MeasuredGang, worker: int) -> Suspect:
    return Suspect(SuspectKind.HOST, gang.hosts[worker], None, "", 0.0, 1.0, 1, 1)


def print_recorded(folder: Path) -> None:
    """Print who is slow in recorded traces, and how well slowed workers are found in them."""
    traces = {name: read_recording(folder / f"trace-{name}.parquet") for name in ("AR", "ST", "SE")}
    print("| trace | workers | steps | times compared | named |\n|---|---|---|---|---|")
    for name, trace in traces.items():
        steps = len({step for step, _ in trace.seconds})
        for by_stage in (True, False):
            found = stragglers(trace.gang, trace.measurements(by_stage=by_stage))
            sure = [f"{e.name} {e.slower:.0%} ({e.confidence:.2f})" for e in found]
            how = "within a stage" if by_stage else "all"
            text = ", ".join(sure) or "nobody"
            print(f"| {name} | {len(trace.stages)} | {steps} | {how} | {text} |")
    print("\n| noise of | slower by | precision | recall |\n|---|---|---|---|")
    healthy = {
        "AR": {w for w, stage in traces["AR"].stages.items() if stage != 0},
        "SE": set(traces["SE"].stages),
    }
    for name, workers in healthy.items():
        for slower in (0.5, 0.2, 0.1, 0.05):
            made = [
                slow_one_worker(traces[name], seed, slower, workers) for seed in range(INJECTED)
            ]
            precision, recall = quality(made)
            print(f"| {name} | {slower:.0%} | {precision:.2f} | {recall:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", help="of recorded traces")
    folder = parser.parse_args().folder
    if folder is None:
        print_made()
    else:
        print_recorded(folder)


if __name__ == "__main__":
    main()
