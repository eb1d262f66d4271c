"""Spare hosts as published, replayed: a fleet that trains on while hosts are away, and how
many hosts more a job needs to be running almost always.

Sources: ByteRobust (2025); Cui et al., Story of Two GPUs (SC 2025).
"""

from __future__ import annotations

from functools import cache, partial
from statistics import fmean

from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from placement.workload.parallelism import Parallelism
from placement.workload.request import NO_SPARES, Request, SpareRule
from scheduler.core import Tenants
from scheduler.core.model.job import SECOND_NS, JobSpec
from scripts.published.reliability import AT_ONCE
from simulator.collectors.metrics import Metrics
from simulator.experiment import Experiment
from simulator.failures import parse
from simulator.replay import Replay
from simulator.timing import TimeAccount, TimeModel, load_time_model
from simulator.traces.record import TraceJob

DAY_S, SEEDS = 86_400, 3


def replayed(
    fabric: Fabric,
    request: Request,
    failures: str,
    days: int,
    seed: int,
    times: TimeModel,
    tenants: Tenants | None = None,
) -> Metrics:
    """One job, cut off after so many days."""
    until_ns = days * DAY_S * SECOND_NS
    spec = JobSpec("job", request, 0, None)
    job = TraceJob("job", 0, 2 * until_ns, 1, request.parallelism.world_size, spec=spec)
    experiment = Experiment(
        fabric, costs=times.costs, tenants=tenants, times=times, until_ns=until_ns
    )
    metrics = Metrics()
    replay = Replay(experiment, [job], metrics.feed, parse(failures)(fabric, seed))
    metrics.follow(replay)
    replay.run()
    return metrics


# --- 20: 9,600 GPUs for three months ---------------------------------------------------

MONTHS_DAYS, MINUTE_S = 90, 60
# ByteRobust's restart is not published part by part: detection by inspection, a start that
# together with 10 s of communicators and the warm-up takes what FT-HSDP measured at 16K.
# Its checkpoints block nobody: they go to peers in the background.
ROBUST = (
    "default,detection.default_s=30,process_start_s=150,checkpoint.interval_s=600,"
    "checkpoint.write_gb_per_s=1000000000"
)


def four_zones() -> Fabric:
    tiers = [
        {"name": "zone", "count": 4, "oversubscription": 7},
        {"name": "rack", "count": 192},
        {"name": "host", "count": 2},
    ]
    return from_spec({"name": "four-zones", "gpus_per_host": 8, "tiers": tiers})


@cache
def months() -> tuple[float, float]:
    """ETTR of 1,200 hosts with sized spares, mean of seeds, and minutes lost in a failure."""
    request = Request(
        Parallelism(tp=8, pp=8, dp=150), traffic=(("pp", 1), ("dp", 4)), spares=SpareRule()
    )
    shares, minutes = [], []
    for seed in range(SEEDS):
        failures = "poisson:rate=3.79,repair_h=24"
        metrics = replayed(
            four_zones(), request, failures, MONTHS_DAYS, seed, load_time_model(ROBUST)
        )
        parts = metrics.parts()
        lost_s = sum(parts["job_s"].values()) - parts["job_s"]["productive"]
        shares.append(parts["ettr"])
        minutes.append(lost_s / metrics.restarts / MINUTE_S)
    return fmean(shares), fmean(minutes)


# --- 22: how many hosts more -------------------------------------------------------------

GPUS, PER_HOST, MONTH_DAYS, WANTED = 608, 4, 30, 0.999
HOST_MTBF_H = 145  # fitted: with it 8 hosts are needed when a host is away for 2.2 h


def away(spares: int, recovery_h: float, seed: int) -> TimeAccount:
    """Account for a month of a job on 152 hosts of 152 + spares."""
    hosts = GPUS // PER_HOST
    tiers = [{"name": "zone", "count": 1}, {"name": "host", "count": hosts + spares}]
    fabric = from_spec({"name": "delta", "gpus_per_host": PER_HOST, "tiers": tiers})
    request = Request(Parallelism(dp=GPUS), traffic=(("dp", 1),), spares=NO_SPARES)
    failures = f"poisson:rate={24_000 / HOST_MTBF_H},repair_h={recovery_h}"
    times = load_time_model("default,detection.default_s=0,network.is_modelled=false")
    metrics = replayed(fabric, request, failures, MONTH_DAYS, seed, times, AT_ONCE)
    return metrics.accounts()[0]


def availability(spares: int, recovery_h: float) -> float:
    """Share of the month in which there were hosts enough, mean of seeds."""
    return fmean(
        1 - (time.queueing + time.rescheduling) / time.total
        for time in (away(spares, recovery_h, seed) for seed in range(SEEDS))
    )


@cache
def needed_percent(recovery_h: float, most: int = 32) -> float:
    """GPUs more than the job has with which it is available as wanted; bisection."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        if availability(middle, recovery_h) >= WANTED:
            high = middle
        else:
            low = middle + 1
    return 100 * low * PER_HOST / GPUS


OURS = {
    "20": lambda: months()[0],
    "20b": lambda: months()[1],
    "22": partial(needed_percent, 2.2),
    "22b": partial(needed_percent, 5 / 60),
}
