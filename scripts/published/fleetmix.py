"""Four weeks of RSC-1's jobs with its failures: how many attempts a host ends, and whose time.

Jobs are drawn from the published mix (simulator/mixes), as many a day as published. Those of
more than a host run through the scheduler, on pods of 20 hosts; smaller ones, nine of ten, share
hosts and take a tenth of the time: each meets the failures of one host while it runs. Source:
Kokolis et al. (HPCA 2025).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import exp

from placement.fabric.reader import from_spec
from scheduler.core import State
from scheduler.core.fold.attempts import AttemptLeft, EffectReader, attempt_changes
from scheduler.core.model.events import Event
from scripts.published import Value
from simulator.experiment import Experiment
from simulator.failures import parse
from simulator.failures.presets import RSC1_RATE
from simulator.mixes.fit import fit
from simulator.mixes.generate import MixRequest, generate
from simulator.mixes.published import MIXES
from simulator.replay import Replay
from simulator.traces.record import SECOND_NS, TraceJob

DAYS, JOBS_A_DAY, GPUS, DAY_S = 28, 7_200, 8, 86_400
PODS, POD = 102, 20


@dataclass(slots=True)
class Hits:
    """Attempts and GPU seconds, all and those that a failed host ended."""

    attempts: float = 0
    hit: float = 0
    gpu_s: float = 0
    hit_gpu_s: float = 0

    def count(self, gpus: int, ran_s: float, share: float) -> None:
        """An attempt of which so large a share was hit."""
        self.attempts += 1
        self.hit += share
        self.gpu_s += gpus * ran_s
        self.hit_gpu_s += gpus * ran_s * share


@cache
def weeks(seed: int = 0) -> Hits:
    """Every job that arrives in 28 days, to its end."""
    tiers = [{"name": "pod", "count": PODS}, {"name": "host", "count": POD}]
    fabric = from_spec({"name": "rsc-1", "gpus_per_host": GPUS, "tiers": tiers})
    hits, effects = Hits(), EffectReader()

    def sink(event: Event, state: State) -> None:
        for change in attempt_changes(effects.read(event, state)):
            if isinstance(change, AttemptLeft):
                run, ran_s = change.run, change.ran_ns / SECOND_NS
                hits.count(GPUS * len(run.hosts), ran_s, float(run.stop_ns is not None))

    jobs = in_four_weeks(seed)
    for job in jobs:
        if job.gpus <= GPUS:
            ran_s = job.run_ns / SECOND_NS
            hits.count(job.gpus, ran_s, 1 - exp(-RSC1_RATE / 1000 / DAY_S * ran_s))
    large = [replace(job, gpus=-(-job.gpus // GPUS) * GPUS) for job in jobs if job.gpus > GPUS]
    Replay(Experiment(fabric), large, sink, parse("rsc1")(fabric, seed)).run()
    return hits


def in_four_weeks(seed: int) -> list[TraceJob]:
    """The mix, its arrivals drawn together so that they fill 28 days."""
    wanted = MixRequest(fit(MIXES["rsc-1"]), DAYS * JOBS_A_DAY, PODS * POD, GPUS, 1.0, seed)
    jobs = list(generate(wanted))
    scale = DAYS * DAY_S * SECOND_NS / max(job.submit_ns for job in jobs)
    return [replace(job, submit_ns=round(job.submit_ns * scale)) for job in jobs]


def attempts_percent() -> Value:
    return 100 * weeks().hit / weeks().attempts


def time_percent() -> Value:
    return 100 * weeks().hit_gpu_s / weeks().gpu_s


OURS = {
    "34": attempts_percent,
    "34b": time_percent,
}
