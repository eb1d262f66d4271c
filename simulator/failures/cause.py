"""A cause of failures: what it hits, how often, how its units age, how long repairs take.

Rates are failures per 1,000 days of one unit. A unit is a host, or a domain of a tier
(rack, zone, ...) whose hosts all go down at once; `group` consecutive domains below one
parent make one unit where they share a power feed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from random import Random

import numpy as np

from muster.structs import struct
from placement import BadInput
from placement.fabric.tree import Fabric

DAY_S = 86_400
HOST = "host"
REPAIRS = ("exponential", "fixed", "lognormal")


@struct(frozen=True, slots=True)
class RepairTime:
    """How long a failed host is out of service. `mean_h` of 0: the host is back at once (a crashed
    process).

    `kind`: exponential, fixed or lognormal; `sigma`: of the logarithm, for lognormal.
    """

    mean_h: float
    kind: str = "exponential"
    sigma: float = 1.0

    def draw_s(self, random: Random) -> float:
        mean_s = self.mean_h * 3600
        if not mean_s or self.kind == "fixed":
            return mean_s
        if self.kind == "exponential":
            return random.expovariate(1 / mean_s)
        return random.lognormvariate(math.log(mean_s) - self.sigma**2 / 2, self.sigma)


@struct(frozen=True, slots=True)
class LemonHosts:
    """A share of the hosts that fails `factor` times as often as the others."""

    share: float
    factor: float

    def choose(self, hosts: Sequence[str], seed: int) -> tuple[str, ...]:
        """Draw the lemons: the same hosts for every cause under one seed."""
        count = round(self.share * len(hosts))
        return tuple(sorted(Random(f"{seed}/lemons").sample(list(hosts), count)))


@struct(frozen=True, slots=True)
class Precursor:
    """Reports of `signal` that come before failures, and also without any.

    `recall`: share of a cause's failures that are announced. `precision`: share of the
    announcements that a failure follows. `lead_h`: mean time from one to the other, uniform up to
    twice that.
    """

    signal: str
    recall: float
    precision: float
    lead_h: float

    @property
    def false_share(self) -> float:
        """Return how many announcements without a failure there are for each failure."""
        return self.recall * (1 - self.precision) / self.precision


@struct(frozen=True, slots=True)
class FailureCause:
    """A cause of failures, and how often it strikes. `rate`: failures per 1,000 unit-days, in the
    long run. `shape`: of the Weibull time between two failures of a unit; 1 is exponential, less
    than 1 fails most when new (early life), more than 1 wears out. `age_days`: how long units have
    run when the replay begins. `precursor`: what announces its failures, of causes of single hosts;
    None: nothing does."""

    name: str
    rate: float
    repair: RepairTime
    shape: float = 1.0
    age_days: float = 0.0
    scope: str = HOST
    group: int = 1
    lemons: LemonHosts | None = None
    precursor: Precursor | None = None


def failure_units(fabric: Fabric, scope: str, group: int = 1) -> tuple[tuple[str, ...], ...]:
    """Return the hosts of each unit (host, rack, zone) that fails as a whole. Raises: BadInput on a
    scope that this fabric does not have."""
    if scope == HOST:
        units = tuple((host,) for host in fabric.hosts)
        return units if group == 1 else tuple(_grouped(fabric, units, group))
    names = [tier.name for tier in fabric.tiers]
    if scope not in names:
        known = ", ".join([*names, HOST])
        raise BadInput("scope", f"{scope!r} is not a tier of {fabric.name}; tiers are {known}")
    return tuple(_grouped(fabric, _domains(fabric, scope), group))


def _domains(fabric: Fabric, scope: str) -> tuple[tuple[str, ...], ...]:
    tier = next(tier for tier in fabric.tiers if tier.name == scope)
    members = [np.flatnonzero(tier.domain_by_host == i) for i in range(len(tier.domains))]
    return tuple(fabric.names(hosts.tolist()) for hosts in members)


def _grouped(
    fabric: Fabric, units: Sequence[tuple[str, ...]], group: int
) -> Iterator[tuple[str, ...]]:
    """Groups of so many neighbours, never across an outermost domain."""
    index = fabric.index_by_name
    for _, near in groupby(units, key=lambda hosts: fabric.domain(index[hosts[0]])):
        inside = list(near)
        for at in range(0, len(inside), group):
            yield tuple(host for hosts in inside[at : at + group] for host in hosts)
