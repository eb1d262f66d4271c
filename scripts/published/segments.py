"""A day of RSC-1's job mix on 5,004 trays of GB200 racks: what segments cost in occupancy.

NVIDIA's study of Slurm's block scheduling simulates 5,000 nodes of GB200 NVL72: jobs of 128 GPUs
and more in segments of 16 nodes of a rack, those of 32 to 64 in segments of 4, smaller ones in
segments of 1, against a scheduler that knows no topology. Its jobs are not published. Here
they are drawn from RSC-1's published mix (simulator/mixes), as much as the trays can do and more,
and every job runs through the scheduler: what is compared is the share of trays that gangs hold
from the 12th to the 36th hour. Source: "Unlock Exascale Performance on NVIDIA GB200 NVL72 with
Slurm Topology-Aware Job Scheduling", NVIDIA technical blog, 2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial

from placement.fabric.constraints import Constraints
from placement.fabric.reader import from_spec
from scheduler.core import State
from scheduler.core.model.events import Event
from scripts.published import Value
from simulator.experiment import Experiment
from simulator.mixes.fit import fit
from simulator.mixes.generate import MixRequest, generate
from simulator.mixes.published import MIXES
from simulator.placers import PlacementStrategy
from simulator.replay import Replay
from simulator.traces.mapping import job_spec
from simulator.traces.record import SECOND_NS, TraceJob

RACKS, TRAYS, GPUS = 278, 18, 4
JOBS_BY_LOAD = {1.0: 17_000, 1.4: 19_000}  # enough for 40 hours and more
HOUR_NS = 3_600 * SECOND_NS
BEGIN_NS, END_NS = 12 * HOUR_NS, 36 * HOUR_NS
SEGMENTS = ((128, 16), (32, 4))  # from so many GPUs on, trays that share a rack


@dataclass(slots=True)
class Occupancy:
    """Trays held, summed over the time between BEGIN_NS and END_NS."""

    since_ns: int = 0
    held: int = 0
    tray_ns: int = 0

    def feed(self, event: Event, state: State) -> None:
        begin_ns = max(self.since_ns, BEGIN_NS)
        end_ns = min(event.time_ns, END_NS)
        self.tray_ns += self.held * max(0, end_ns - begin_ns)
        self.since_ns, self.held = event.time_ns, state.index.held.bit_count()

    @property
    def share(self) -> float:
        return self.tray_ns / (END_NS - BEGIN_NS) / (RACKS * TRAYS)


@cache
def occupancy(load: float, *, has_segments: bool, seed: int = 0) -> float:
    """`load`: what the jobs ask for, over what the trays can do. Processor time with segments: 26 s
    at 1.0, 140 s at 1.4."""
    tiers = [{"name": "rack", "count": RACKS}, {"name": "host", "count": TRAYS}]
    fabric = from_spec({"name": "gb200", "gpus_per_host": GPUS, "tiers": tiers})
    placement = PlacementStrategy.STEP_TIME if has_segments else PlacementStrategy.RANDOM
    experiment = Experiment(fabric, placement=placement, seed=seed, until_ns=END_NS)
    jobs = segmented(load, seed) if has_segments else drawn(load, seed)
    held = Occupancy()
    Replay(experiment, jobs, held.feed).run()
    return held.share


def drawn(load: float, seed: int) -> Iterator[TraceJob]:
    mix, jobs = fit(MIXES["rsc-1"]), JOBS_BY_LOAD[load]
    yield from generate(MixRequest(mix, jobs, RACKS * TRAYS, GPUS, load, seed))


def segmented(load: float, seed: int) -> Iterator[TraceJob]:
    """Yield jobs with segments, halved until they divide the job."""
    for job in drawn(load, seed):
        trays = -(-job.gpus // GPUS)
        segment = next((n for least, n in SEGMENTS if job.gpus >= least), 1)
        while trays % segment:
            segment //= 2
        if segment == 1:
            yield job
            continue
        spec = job_spec(job, GPUS, None)
        request = replace(spec.request, where=Constraints(segment=segment))
        yield replace(job, spec=replace(spec, request=request))


def ratio(load: float) -> Value:
    return occupancy(load, has_segments=True) / occupancy(load, has_segments=False)


OURS = {
    "38": partial(ratio, 1.0),
    "38b": partial(ratio, 1.4),
}
