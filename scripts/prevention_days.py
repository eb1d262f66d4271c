"""Replay the 54 days of Llama 3 405B with gangs that leave hosts before they fail.

    python -m scripts.prevention_days [SEED ...]

Some of the failures of table 5 are announced here by counted reports, beside reports that no
failure follows. Each kind of monitor is replayed under each policy and seed, and the table is
printed as Markdown; docs/llama3-54-days.md has it. Seeds are 101 to 103 unless others are named.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from muster.structs import replace
from placement.fabric.tree import Fabric
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.health import (
    HealthPolicy,
    HealthRule,
    PreventionAction,
    PreventionPolicy,
)
from scheduler.core.policies.health_signals import DAY_S, SIGNALS, Effect, Threshold
from scripts.llama3_days import DAYS, FAILURES, Result, Variant, replayed
from simulator.failures import FailureStream, merged, parse
from simulator.failures.cause import FailureCause, Precursor
from simulator.failures.presets import preset
from simulator.failures.process import outages

SIGNAL, SEEDS = "ecc-correctable", (101, 102, 103)
HBM = ("gpu-hbm3",)
HARDWARE = (
    *("faulty-gpu", "gpu-hbm3", "gpu-sram", "gpu-system-processor", "gpu-thermal"),
    *("network-switch-cable", "nic"),
)
# Planned stops, which the preset lacks.
PLANNED = FAILURES.partition(";")[2]
# A write every 472 s of work and 10 s, after a restart of 200 s, and 0.3 % longer steps: so that
# the scheduler counts on checkpoints when they have just been written.
COSTS = Costs(checkpoint_s=484, restart_s=200, detect_s=30)


@dataclass(frozen=True, slots=True)
class Monitor:
    """A source of reports that announce failures of these causes."""

    name: str
    causes: tuple[str, ...]
    precursor: Precursor

    def stream(self, fabric: Fabric, seed: int) -> FailureStream:
        """Return the failures of table 5, some of them announced, and the planned stops."""
        named = [self.announced(cause) for cause in preset("llama3")]
        streams = [outages(cause, fabric, seed) for cause in named]
        return FailureStream(merged([*streams, parse(PLANNED)(fabric, seed)]))

    def announced(self, cause: FailureCause) -> FailureCause:
        return replace(cause, precursor=self.precursor) if cause.name in self.causes else cause


SILENT = Monitor("none", (), Precursor(SIGNAL, 1, 1, 1))
MONITORS = (
    Monitor(
        "half of hardware, a day before, right in 50 %", HARDWARE, Precursor(SIGNAL, 0.5, 0.5, 24)
    ),
    Monitor(
        "half of hardware, an hour before, right in 90 %", HARDWARE, Precursor(SIGNAL, 0.5, 0.9, 1)
    ),
    # Schroeder et al. (SIGMETRICS 2009): 70 to 80 % of uncorrectable errors of memory come in the
    # month of a corrected one or the next; after one, 0.1 to 2.3 % of memory has the other in a
    # month. These are the larger of both probabilities, the most favourable to leaving early.
    Monitor("corrected errors of memory", HBM, Precursor(SIGNAL, 0.8, 0.023, 15 * 24)),
)


def _reports(effect: Effect) -> HealthPolicy:
    rule = replace(SIGNALS[SIGNAL], thresholds=(Threshold(1000, DAY_S, effect),))
    return HealthPolicy(rules=(HealthRule(SIGNAL, rule),))


AT_A_STOP = _reports(Effect.SUSPECT)
POLICIES = {
    "left at the next stop": AT_A_STOP,
    "left at a checkpoint where that pays": replace(
        AT_A_STOP, prevention=PreventionPolicy(action=PreventionAction.SWAP)
    ),
    "always left at a checkpoint": _reports(Effect.RETIRE),
}


def gpu_hours(result: Result) -> float:
    """Return the productive GPU-hours of the run."""
    return result.ettr * DAYS * 24 * 16_384


def run(monitor: Monitor, policy: str, seed: int) -> Result:
    """Replay the failures of one seed."""
    variant = Variant(policy, costs=COSTS, health=POLICIES.get(policy))
    result = replayed(variant, variant.fabric, monitor.stream(variant.fabric, seed))
    counts = f"{result.interruptions} stops, {result.retired} retired, {result.false_swaps} wrongly"
    print(f"{monitor.name}, {policy}, {seed}: {counts}, {result.ettr:.5f}", file=sys.stderr)
    return result


def row(monitor: str, policy: str, results: Sequence[Result], without: Sequence[Result]) -> str:
    """Return a line of the table: means over the seeds, and what was saved seed by seed."""
    saved = [gpu_hours(a) - gpu_hours(b) for a, b in zip(results, without, strict=True)]
    return (
        f"| {monitor} | {policy} | {fmean(r.interruptions for r in results):.0f}"
        f" | {fmean(r.retired for r in results):.0f}"
        f" | {fmean(r.false_swaps for r in results):.0f}"
        f" | {100 * fmean(r.ettr for r in results):.2f} %"
        f" | {fmean(saved):+,.0f} ({min(saved):+,.0f} to {max(saved):+,.0f}) |"
    )


def main(arguments: list[str]) -> int:
    seeds = [int(text) for text in arguments] or SEEDS
    print(
        "| monitor | hosts of which it reports | stops by failures | hosts retired | without need"
        " | effective training time | GPU-hours saved |\n|---|---|---|---|---|---|---|"
    )
    without = [run(SILENT, "", seed) for seed in seeds]
    print(row(SILENT.name, "", without, without), flush=True)
    for monitor in MONITORS:
        for policy in POLICIES:
            results = [run(monitor, policy, seed) for seed in seeds]
            print(row(monitor.name, policy, results, without), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
