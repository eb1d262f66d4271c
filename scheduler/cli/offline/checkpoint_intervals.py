"""How often to write a checkpoint, and how much of the time is then productive.

A gang fails every `mean_s` seconds on average (mu, exponential). A write stops it for
`write_s` (C). After a failure it is down for `down_s` (D) and then reads its state and
starts for `restart_s` (R). A period T is the time from one write to the next *with the
write*, so that T - C of it is work.

Efficiency is exact under these assumptions, failures during a restart included, for a
restart is begun again (Daly 2006):

    E(T) = (T - C) / ((mu + D) exp(R / mu) (exp(T / mu) - 1))

The optimum is the T of the largest E. Source of the table that validates it: Aupy, Robert,
Vivien, Zaidouni (2013).
"""

from __future__ import annotations

from math import exp, expm1, inf

from muster.structs import struct

DAY_S = 86_400


@struct(frozen=True, slots=True)
class FailureModel:
    """Failures of a gang. Units: seconds; `mean_s` between two failures of the gang."""

    mean_s: float
    write_s: float
    restart_s: float = 0.0
    down_s: float = 0.0

    @property
    def lost_s(self) -> float:
        """Seconds that each failure costs beside the work since the last checkpoint."""
        return self.restart_s + self.down_s


def mean_between_s(hosts: int, failures_per_host_day: float) -> float:
    """Mean time between failures of a gang, all of whose hosts fail at that rate."""
    per_day = hosts * failures_per_host_day
    return DAY_S / per_day if per_day else inf


def efficiency(faults: FailureModel, period_s: float) -> float:
    """Return the share of the time that is work with this period between checkpoints, 0 to 1."""
    mean, work = faults.mean_s, period_s - faults.write_s
    if work <= 0:
        return 0.0
    if mean == inf:
        return work / period_s
    if max(period_s, faults.restart_s) / mean > 700:  # exp would not fit a float
        return 0.0
    return work / ((mean + faults.down_s) * exp(faults.restart_s / mean) * expm1(period_s / mean))


def optimal(faults: FailureModel) -> float:
    """Return the period of the largest efficiency, to a part in a million: E has one peak.

    E' = 0 is 1 - (T - C) / mu = exp(-T / mu): its left side falls below its right from the peak on.
    """
    mean, write = faults.mean_s, faults.write_s
    low, high = write, write + mean
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        rises = 1 - (middle - write) / mean > exp(-middle / mean)
        low, high = (middle, high) if rises else (low, middle)
    return (low + high) / 2


FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


def sensitivity(faults: FailureModel) -> tuple[tuple[float, float, float], ...]:
    """Return (factor, period, efficiency) for periods around the optimal one."""
    work = optimal(faults) - faults.write_s
    periods = [(factor, factor * work + faults.write_s) for factor in FACTORS]
    return tuple((factor, t, efficiency(faults, t)) for factor, t in periods)


# --- published closed forms of ETTR ----------------------------------------------


def effective_share(faults: FailureModel) -> float:
    """Return the share left when each failure stops all for `lost_s`: (mu - lost) / mu.

    Source: FT-HSDP (2026): 18 min between failures, 10 min of recovery: 44 %.
    """
    return max(0.0, 1 - faults.lost_s / faults.mean_s)


STORAGE_GB_PER_S = 2_000.0  # sustained, for all of Llama 3's cluster (2024, 3.3.1)
