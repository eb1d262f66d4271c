"""Arnold's own measure (2025) in Arnold's own setting: about 1,000 hosts in minipods with
random free capacity, weighted max spread alpha x (DP group) + (1 - alpha) x (PP group)."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bench.peers import bipartition, partitioners, rank_order
from bench.peers.graph import PartitioningTask, tasks
from bench.placement.fabrics import flat_zones
from bench.placement.instances import Instance
from placement.fabric import hostset
from placement.fabric.tree import Ints
from placement.placer import place
from placement.workload.request import Objective, Placement, Request
from tests.build import request

SETTINGS = ((8, 128, 4), (16, 64, 8), (32, 32, 8))  # minipods, hosts of each, stages
ALPHAS = (0.2, 0.5, 0.8)


@dataclass(frozen=True, slots=True)
class Spread:
    """The spreads that muster and the peers found for one gang, by name."""

    name: str
    alpha: float
    spread: dict[str, float]
    seconds: float


def run(tries: int, seed: int) -> list[Spread]:
    return list(_run(tries, seed))


def _run(tries: int, seed: int) -> Iterator[Spread]:
    for minipods, hosts, stages in SETTINGS:
        for i in range(tries):
            for alpha in ALPHAS:
                inst = instance(minipods, hosts, stages, alpha, f"{seed}/{i}")
                yield measured(inst, alpha, f"{minipods} x {hosts}, PP {stages}")


def instance(minipods: int, hosts: int, stages: int, alpha: float, seed: str) -> Instance:
    fabric = flat_zones(minipods, hosts // 2)
    rng = random.Random(f"arnold/{seed}/{minipods}")
    free = np.zeros(fabric.host_count, dtype=np.bool_)
    for q in range(minipods):
        first = q * hosts
        free[first : first + rng.randrange(hosts // 4, hosts + 1)] = True
    replicas = int(int(free.sum()) * rng.uniform(0.5, 0.95)) // stages
    traffic = {"dp": round(100 * alpha), "pp": round(100 * (1 - alpha))}
    gang = request(tp=8, pp=stages, dp=replicas, traffic=traffic)
    return Instance(0, 1, fabric.name, "hosts", "dense", fabric, hostset.from_mask(free), gang)


def measured(inst: Instance, alpha: float, name: str) -> Spread:
    task = tasks(inst)[0]
    began = time.perf_counter()
    ours = _ours(inst, alpha)
    seconds = time.perf_counter() - began
    found = {
        "muster": [ours],
        "best-fit": rank_order.best_fit(task),
        "random": rank_order.randomly(task),
        "packing": rank_order.fewest_domains(task),
        "recursive bipartition": list(_bipartition(task)),
        "Arnold-MIP": list(rank_order.arnold(task, (alpha,))),
    }
    spread = {
        who: min(weighted_spread(inst.request, task.gpus, part, alpha) for part in parts)
        for who, parts in found.items()
        if parts
    }
    return Spread(name, alpha, spread, seconds)


def _ours(inst: Instance, alpha: float) -> Ints:
    gang = replace(inst.request, objective=Objective.SPREAD, spread_alpha=alpha)
    answer = place(inst.fabric, inst.free, gang)
    assert isinstance(answer, Placement), answer
    return inst.fabric.tiers[0].domain_by_host[list(answer.hosts)]


def _bipartition(task: PartitioningTask) -> Iterator[Ints]:
    scotch = shutil.which("scotch_gmap")
    return partitioners.scotch(task) if scotch else bipartition.kernighan_lin(task)


def weighted_spread(gang: Request, gpus: int, domain_by_block: Ints, alpha: float) -> float:
    grid = np.repeat(domain_by_block, gpus).reshape(tuple(reversed(gang.parallelism.sizes)))
    axes = gang.parallelism.axes

    def widest(axis: str) -> int:
        lines = np.sort(np.moveaxis(grid, len(axes) - 1 - axes.index(axis), -1), axis=-1)
        return int(1 + (lines[..., 1:] != lines[..., :-1]).sum(axis=-1).max())

    return alpha * widest("dp") + (1 - alpha) * widest("pp")
