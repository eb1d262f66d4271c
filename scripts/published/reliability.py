"""Failures and effective training time as published, replayed.

A gang of N hosts on one switch runs for a hundred failures through the scheduler itself;
nothing stays broken (a stopped host is back at once), so that what is measured is what the
formulas count: the work since the last checkpoint, the restart, and
the failures that hit a restart, which the formulas leave out. ETTR = productive / wall time.
Sources: Kokolis et al. (HPCA 2025); Llama 3 (2024), table 5; ByteRobust (2025).
"""

from __future__ import annotations

from collections import Counter
from functools import cache, partial
from itertools import islice, takewhile
from statistics import fmean

from placement.fabric import Fabric, from_spec
from placement.parallelism import Parallelism
from placement.request import NO_SPARES, Request
from scheduler.core import Tenants
from scheduler.core.job import SECOND_NS, JobSpec
from scheduler.core.tenancy.tenants import Restarts
from scripts.published import Row, Value, near, within
from simulator.failures import parse
from simulator.failures.presets import LLAMA3, RSC1_RATE
from simulator.metrics import Metrics
from simulator.run import Replay, Setting
from simulator.timing import Times, load_times
from simulator.traces.record import TraceJob

DAY_S, SEEDS, FAILURES = 86_400, 3, 100
RESTART_S = 300  # u0 of 5 minutes
# Nobody is given up, waits before a retry or avoids a host: the formulas know none of it.
AT_ONCE = Tenants(restarts=Restarts(attempts=10**9, patience=10**9, avoid_s=0))


@cache
def switch(hosts: int) -> Fabric:
    tiers = [{"name": "zone", "count": 1}, {"name": "host", "count": hosts}]
    return from_spec({"name": "switch", "gpus_per_host": 8, "tiers": tiers})


def mttf_h(gpus: int, failures: int = 20_000) -> float:
    """Mean time between failures of the gang's hosts, RSC-1's rate."""
    stream = parse(f"poisson:rate={RSC1_RATE},repair_h=0")(switch(gpus // 8), 0)
    downs = (outage for outage in stream if outage.is_down)
    return next(islice(downs, failures - 1, None)).time_ns / failures / SECOND_NS / 3600


@cache
def ettr(gpus: int, rate: float, checkpoint_s: int, write_s: int) -> float:
    """Mean over seeds 0, 1, 2, ..."""
    model = load_times(
        f"default,detection.default_s=0,process_start_s={RESTART_S},warmup_s=0,communicators=[],"
        f"checkpoint.gb_per_gpu=0,checkpoint.stall_s={write_s},checkpoint.interval_s={checkpoint_s}"
    )
    return fmean(_ettr(gpus, rate, model, seed) for seed in range(SEEDS))


def _ettr(gpus: int, rate: float, model: Times, seed: int) -> float:
    fabric = switch(gpus // 8)
    until_ns = round(FAILURES * 1000 * DAY_S / (rate * fabric.host_count)) * SECOND_NS
    request = Request(Parallelism(dp=gpus), traffic=(("dp", 1),), spares=NO_SPARES)
    job = TraceJob("gang", 0, 2 * until_ns, 1, gpus, spec=JobSpec("gang", request, 0, None))
    setting = Setting(
        fabric,
        costs=model.costs,
        tenants=AT_ONCE,
        times=model,
        until_ns=until_ns,
    )
    metrics = Metrics()
    outages = parse(f"poisson:rate={rate},repair_h=0")(fabric, seed)
    replay = Replay(setting, [job], metrics.feed, outages)
    replay.run()
    assert replay.modelled
    return float(replay.modelled.told(metrics.spent())["ettr"])


def flat(gpus: int, rate: float, checkpoint_s: int) -> Value:
    """Writes that block nobody."""
    return ettr(gpus, rate, checkpoint_s, 0)


def written(gpus: int, rate: float, write_s: int) -> Value:
    """With blocking writes, at dt* = sqrt(2 w / (N r_f))."""
    per_s = gpus / 8 * rate / 1000 / DAY_S
    return ettr(gpus, rate, round((2 * write_s / per_s) ** 0.5), write_s)


@cache
def llama3_causes(seeds: int = 20) -> Counter[str]:
    """Failures of the 2,048 hosts of the run in 54 days, all seeds together."""
    found: Counter[str] = Counter()
    for seed in range(seeds):
        stream = parse("llama3")(switch(2_048), seed)
        in_time = takewhile(lambda outage: outage.time_ns < 54 * DAY_S * SECOND_NS, stream)
        found.update(outage.cause for outage in in_time if outage.is_down)
    return found


def llama3_count(seeds: int = 20) -> Value:
    return llama3_causes(seeds).total() / seeds


def chi_square(seeds: int = 20) -> Value:
    found = llama3_causes(seeds)
    total = found.total()
    shares = [(name, total * count / 419) for name, count, _ in LLAMA3]
    return sum((found[name] - due) ** 2 / due for name, due in shares)


ROWS = [
    Row(
        "10b", "RSC-1's rate, 16,384 GPUs: MTTF, h, 20,000 failures", "1.8 (1.803)",
        partial(mttf_h, 16_384), near(1.803, 0.03),
    ),
    Row(
        "10c", "... 131,072 GPUs", "0.23 (0.225)", partial(mttf_h, 131_072), near(0.225, 0.03),
    ),
    Row(
        "11", "ETTR of 16,000 GPUs, RSC-1, checkpoints 60 min apart, seeds 0 to 2", "0.70",
        partial(flat, 16_000, RSC1_RATE, 3600), near(0.70, 0.06), slow=True,
    ),
    Row(
        "11b", "... 5 min apart", "0.93",
        partial(flat, 16_000, RSC1_RATE, 300), near(0.93, 0.05), slow=True,
    ),
    Row(
        "13", "ETTR of 12,000 GPUs, RSC-1, writes of 10 s at dt*", "0.9 (0.921)",
        partial(written, 12_000, RSC1_RATE, 10), near(0.921, 0.05), slow=True,
    ),
    Row(
        "13b", "... 1 failure per 1,000 host-days, writes of 5 min at dt*", "0.9 (0.898)",
        partial(written, 12_000, 1.0, 300), near(0.898, 0.05), slow=True,
    ),
    Row(
        "15", "Llama 3: failures of 2,048 hosts in 54 days, mean of seeds 0 to 19", "419",
        llama3_count, within(419, 41),
    ),
    Row(
        "15b", "... causes against table 5: chi-square, 17 degrees of freedom", "-",
        chi_square, within(0, 33.4),
    ),
]  # fmt: skip
