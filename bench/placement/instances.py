"""Seeded instances: what is free on one of four fabrics, and a gang to place there.

inst = instance(17, seed=1)         the 18th of seed 1, the same on every machine
inst.family                         "roce-24k/racks/context"
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from bench.placement.capacity import CAPACITIES, free_hosts
from bench.placement.fabrics import FABRICS, bench_fabric
from bench.placement.jobs import GPUS, KINDS, request
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric, Ints
from placement.workload.request import Request

SMALL = 64  # hosts of a small job, at most
MOST = 3_000


@dataclass(frozen=True, slots=True)
class Instance:
    """A gang to place on what is free of a fabric. `index` and `seed` rebuild it."""

    index: int
    seed: int
    fabric_name: str
    capacity: str
    job: str
    fabric: Fabric
    free: HostSet
    request: Request

    @property
    def family(self) -> str:
        return f"{self.fabric_name}/{self.capacity}/{self.job}"

    @property
    def name(self) -> str:
        return f"{self.seed}:{self.index}"

    @property
    def gang(self) -> int:
        return self.request.hosts_needed(self.fabric.gpus_per_host)

    def free_by_domain(self, tier: int = 0) -> Ints:
        """Count the free hosts of each domain. Shape: (domains,)."""
        level = self.fabric.tiers[tier]
        mask = hostset.to_mask(self.free, self.fabric.host_count)
        return np.bincount(level.domain_by_host[mask], minlength=len(level.domains))

    def describe(self) -> str:
        p = self.request.parallelism
        sizes = " ".join(f"{a}{p.size(a)}" for a in p.axes)
        traffic = " ".join(f"{a}={b}" for a, b in self.request.traffic)
        patterns = " ".join(f"{a}:{c.value}" for a, c in self.request.collectives)
        free = sorted((int(n) for n in self.free_by_domain() if n), reverse=True)
        return (
            f"{self.gang} hosts, {sizes}, order {p.order}, bytes {traffic} {patterns};"
            f" free {free[:12]}{' ..' if len(free) > 12 else ''}"
        )


def families() -> list[tuple[str, str, str]]:
    """Return all families (fabric, capacity, job), shuffled once so that any prefix is a fair
    sample.

    Small jobs never get whole zones: they would fit inside one.
    """
    every = [
        (fabric, capacity, job)
        for fabric, capacity, job in product(FABRICS, CAPACITIES, KINDS)
        if not (job == "small" and capacity == "zones")
    ]
    random.Random("families").shuffle(every)
    return every


def instance(index: int, seed: int = 1, traces: str = "") -> Instance:
    every = families()
    fabric_name, capacity, job = every[index % len(every)]
    rng = random.Random(f"{seed}/{index}")
    fabric = bench_fabric(fabric_name, traces)
    target = _gang_size(fabric, job, rng)
    wanted = min(fabric.host_count, round(target / rng.uniform(0.35, 1.0)))
    free = free_hosts(fabric, capacity, wanted, rng)
    gang = request(job, min(target, free.bit_count()), rng)
    return Instance(index, seed, fabric_name, capacity, job, fabric, free, gang)


def instances(count: int, seed: int = 1, traces: str = "") -> Iterator[Instance]:
    return (instance(i, seed, traces) for i in range(count))


def _gang_size(fabric: Fabric, job: str, rng: random.Random) -> int:
    if job == "small":
        return round(2 ** rng.uniform(1, 6))
    most = min(MOST, round(fabric.host_count * 0.97))
    return round(SMALL * float((most / SMALL) ** rng.uniform(0.1, 1)))


def small_instance(index: int, seed: int = 1, traces: str = "") -> Instance:
    """Return a small job on scattered free hosts, to measure the time of a call."""
    rng = random.Random(f"small/{seed}/{index}")
    fabric_name = FABRICS[index % len(FABRICS)]
    fabric = bench_fabric(fabric_name, traces)
    target = _gang_size(fabric, "small", rng)
    capacity = rng.choice(("racks", "hosts", "replay"))
    free = free_hosts(fabric, capacity, round(target / rng.uniform(0.05, 1.0)), rng)
    gang = request("small", min(target, free.bit_count()), rng)
    return Instance(index, seed, fabric_name, capacity, "small", fabric, free, gang)


__all__ = ["GPUS", "Instance", "families", "instance", "instances", "small_instance"]
