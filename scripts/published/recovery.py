"""Failures and what is done about them, as published: rates, checkpoints, copies, standbys."""

from __future__ import annotations

from placement import Sizing
from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from placement.workload.parallelism import Parallelism
from placement.workload.request import Request
from scheduler.cli.offline.checkpoint import (
    FailureModel,
    effective_share,
    mean_between_s,
    optimal,
)
from scheduler.core.rules.peer_copies import choose_holders, survival
from scripts.published import Value

RSC_1 = 6.5e-3  # failures per node-day (Kokolis et al. 2025)
GPUS, HOUR_S = 8, 3_600

# Aupy et al. (2013): mu, and the optimal period, seconds, for 2^10 to 2^19 processors;
# C = R = 600 s, D = 60 s.
PERIODS = (
    (3_849_609, 68_240),
    (1_924_805, 48_320),
    (962_402, 34_189),
    (481_201, 24_231),
    (240_601, 17_194),
    (120_300, 12_218),
    (60_150, 8_701),
    (30_075, 6_214),
    (15_038, 4_458),
    (7_519, 3_218),
)


def worst_period_percent() -> Value:
    """Return the largest distance of the 10 periods from those printed."""
    worst = 0.0
    for mean_s, printed in PERIODS:
        faults = FailureModel(mean_s, write_s=600, restart_s=600, down_s=60)
        worst = max(worst, abs(optimal(faults) / printed - 1))
    return 100 * worst


def hours_between(*gpus: int) -> Value:
    return tuple(mean_between_s(n // GPUS, RSC_1) / HOUR_S for n in gpus)


def racks(hosts: int) -> Fabric:
    """A host to a rack, a GPU to a host."""
    tiers = [{"name": "zone", "count": 1}, {"name": "rack", "count": hosts}]
    spec = {"name": "racks", "gpus_per_host": 1, "tiers": [*tiers, {"name": "host", "count": 1}]}
    return from_spec(spec)


def survival_odds(machines: int, *failed: int) -> Value:
    """Probability that state survives so many failures at once: two copies in all."""
    gang = Request(Parallelism(dp=machines))
    holders = choose_holders(racks(machines), gang, range(machines), peers=1)
    return tuple(survival(holders, k).probability for k in failed)


def pools(machines: int, *chances: float) -> Value:
    return tuple(Sizing(chance, repair_days=1).size(machines) for chance in chances)


OURS = {
    "10": lambda: hours_between(16_384, 131_072),
    "17": worst_period_percent,
    "18": lambda: effective_share(FailureModel(18 * 60, 0, 10 * 60)),
    "19": lambda: pools(1_024, 0.81e-3, 1e-3, 1.2e-3),
    "23": lambda: survival_odds(16, 2, 3),
}
