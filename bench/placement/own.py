"""muster's own answers: measured, and checked with the referee."""

from __future__ import annotations

import random
import resource
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from bench.peers.graph import deciding_tier
from bench.placement.fabrics import FABRICS, bench_fabric, flat_zones
from bench.placement.instances import GPUS, Instance, small_instance
from placement.fabric import hostset
from placement.fabric.tree import Fabric
from placement.objective import check
from placement.placer import place
from placement.workload.parallelism import Parallelism
from placement.workload.request import Infeasible, Insufficient, Limits, Placement, Request
from tests.build import request


@dataclass(frozen=True, slots=True)
class Own:
    """One instance as muster solved it. `cuts`: bytes by tier, outermost first. `seconds`: by the
    clock, for a solve takes two cores; so the machine has to be idle."""

    index: int
    seed: int
    family: str
    gang: int
    is_trivial: bool  # one outermost domain holds the whole gang
    tier: int | None  # the outermost tier that has to be cut
    seconds: float
    cuts: tuple[int, ...]
    bound: int
    is_optimal: bool

    @property
    def cut(self) -> int:
        return self.cuts[0]

    @property
    def deciding_cut(self) -> int:
        """Bytes over the outermost tier that has to be cut, on which peers are compared."""
        return 0 if self.tier is None else self.cuts[self.tier]

    @property
    def gap(self) -> float:
        return (self.cut - self.bound) / self.cut if self.cut else 0.0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "cut": self.cut, "gap": self.gap}


class Invalid(AssertionError):
    """The referee does not accept an answer."""


def solve(inst: Instance, limits: Limits | None = None) -> tuple[Own, Placement]:
    """Place one instance, and check the answer. Raises: Invalid on anything but a placement that
    the referee accepts."""
    began = time.perf_counter()
    try:
        answer = place(inst.fabric, inst.free, inst.request, limits)
    except Exception as error:
        error.add_note(f"instance {inst.name} {inst.family}: {inst.describe()}")
        raise
    seconds = time.perf_counter() - began
    if not isinstance(answer, Placement):
        raise Invalid(f"{inst.name} {inst.family}: {answer}")
    wrong = check.violations(inst.fabric, inst.free, inst.request, answer)
    if wrong:
        raise Invalid(f"{inst.name} {inst.family}: {'; '.join(wrong)}")
    row = Own(
        index=inst.index,
        seed=inst.seed,
        family=inst.family,
        gang=inst.gang,
        is_trivial=deciding_tier(inst) != 0,
        tier=deciding_tier(inst),
        seconds=seconds,
        cuts=tuple(c.bytes_per_step for c in answer.cuts),
        bound=answer.lower_bound,
        is_optimal=answer.is_optimal,
    )
    return row, answer


def peak_memory_bytes() -> int:
    """Return the peak resident bytes of this process; the kernel counts in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def small_jobs(count: int, seed: int, traces: str) -> list[Own]:
    """Place small jobs in this process, on a fabric that is already known."""
    return [solve(small_instance(i, seed, traces))[0] for i in range(count)]


def refusals(count: int, seed: int) -> dict[str, list[float]]:
    """Measure the seconds of proved refusals: of gangs larger than the fabric, and larger than what
    is free."""
    seconds: dict[str, list[float]] = {"infeasible": [], "insufficient": []}
    for i in range(count):
        rng = random.Random(f"refusal/{seed}/{i}")
        fabric = bench_fabric(FABRICS[i % len(FABRICS)])
        free = hostset.of(rng.sample(range(fabric.host_count), fabric.host_count // 2))
        too_many = fabric.host_count // 2 + rng.randrange(1, fabric.host_count // 4)
        for name, hosts, kind in (
            ("insufficient", too_many, Insufficient),
            ("infeasible", 2 * fabric.host_count, Infeasible),
        ):
            gang = Request(Parallelism(tp=GPUS, dp=hosts))
            began = time.perf_counter()
            answer = place(fabric, free, gang)
            seconds[name].append(time.perf_counter() - began)
            if not isinstance(answer, kind):
                raise Invalid(f"refusal {i}: {hosts} hosts gave {answer}")
    return seconds


def scaling(zones: tuple[int, ...], tries: int, seed: int) -> dict[int, list[float]]:
    """Measure seconds by number of zones, for gangs that need most of what is free in them."""
    seconds: dict[int, list[float]] = {}
    for count in zones:
        fabric = flat_zones(count)
        seconds[count] = [_scaling_once(fabric, count, f"{seed}/{i}") for i in range(tries)]
    return seconds


def _scaling_once(fabric: Fabric, zones: int, seed: str) -> float:
    rng = random.Random(f"scaling/{seed}")
    free = np.zeros(fabric.host_count, dtype=np.bool_)
    for z in range(zones):
        few = rng.randrange(1_024 // zones, 2_048 // zones)
        free[z * 384 : z * 384 + min(few, 384)] = True
    gang = request(
        tp=8,
        pp=16,
        dp=int(free.sum()) * 9 // 160,
        traffic={"dp": 100 * rng.choice((1, 3, 10)), "pp": 300},
    )
    began = time.perf_counter()
    place(fabric, hostset.from_mask(free), replace(gang))
    return time.perf_counter() - began
