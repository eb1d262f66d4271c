"""Llama 3 405B on 16,384 GPUs: what crosses zones, and how long a step takes.

Six zones of RoCE-24K: five full ones and 128 hosts of the sixth. Source: Llama 3 (2024),
table 4 and section 3.3; the cut worked out from its shapes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random
from statistics import fmean

import numpy as np

from placement import place
from placement.fabric.hostset import full
from placement.fabric.reader import preset
from placement.fabric.tree import Fabric
from placement.objective.axis_loads import NIC, axis_loads
from placement.objective.cut import egress
from placement.objective.step_time import StepTime, step_time
from placement.workload.request import Collective, Placement, Request
from placement.workload.training import Batch
from scripts.published import Value
from scripts.published.traffic import LLAMA3_RUNS

HOSTS, STAGES = 2_048, 16
IN_ORDER = tuple(range(HOSTS))  # 24 replicas a zone, consecutive ranks
CHUNKS = 8  # 126 layers are 16 x 8 - 2


@cache
def roce() -> Fabric:
    return preset("roce-24k")


def run(row: int, chunks: int = CHUNKS) -> Request:
    """A row of table 4, its pipeline in so many chunks."""
    published = LLAMA3_RUNS[row - 1]
    sequences = published.batch.global_sequences if published.batch else 0
    batch = Batch(sequences, virtual_stages=chunks)
    return replace(published, batch=batch)


def zone_tb(request: Request, hosts: tuple[int, ...] = IN_ORDER) -> float:
    """Return the TB that leave a full inner zone per step."""
    return egress(roce(), request, hosts)[1] / 1e12


def uplink_s(terabytes: float) -> float:
    return terabytes * 1e12 / float(roce().tiers[0].uplink_bytes_per_s[1])


def only(axis: str, request: Request) -> Request:
    """Nothing but one axis sends."""
    silent = tuple((other, 0) for other in ("tp", "cp", "pp", "dp") if other != axis)
    return replace(request, traffic=silent)


@cache
def random_order_tb(seeds: int = 200) -> float:
    """Replicas in random order on the same hosts: mean of the five full zones and seeds."""
    request = only("dp", run(2, 1))
    leaving = []
    for seed in range(seeds):
        order = Random(seed).sample(range(HOSTS // STAGES), HOSTS // STAGES)
        hosts = [STAGES * replica + stage for replica in order for stage in range(STAGES)]
        leaving += egress(roce(), request, hosts)[:5]
    return fmean(leaving) / 1e12


def hierarchical() -> Request:
    return only("dp", replace(run(2, 1), collectives=(("dp", Collective.HIERARCHICAL),)))


def stages_in_zones_tb() -> Value:
    """Three stages of all replicas to a zone, 1, 2 and 8 chunks."""
    replicas = HOSTS // STAGES
    hosts = tuple(replicas * s + r for r in range(replicas) for s in range(STAGES))
    return tuple(round(zone_tb(only("pp", run(2, chunks)), hosts), 2) for chunks in (1, 2, 8))


def nic_s() -> float:
    """Data-parallel bytes of a GPU over its network card."""
    loads = axis_loads(roce(), run(2, 1), IN_ORDER)
    return next(load.on(NIC) for load in loads if load.traffic.axis == "dp")


def tflops(row: int) -> float:
    """Return TFLOP/s of one GPU over the whole step, consecutive ranks on RoCE-24K."""
    request = run(row)
    ranks = request.parallelism.world_size
    step = step_time(roce(), request, range(ranks // 8))
    return step.flops / ranks / step.seconds / 1e12


@cache
def step_on(fabric: str, way: str) -> StepTime:
    """Row 2 on an empty cluster, placed by muster or at random."""
    network, request = preset(fabric), run(2)
    if way == "at random":
        hosts = np.random.default_rng(0).permutation(network.host_count)[:HOSTS].tolist()
        return step_time(network, request, hosts)
    answer = place(network, full(network.host_count), request)
    assert isinstance(answer, Placement)
    return step_time(network, request, answer.hosts)


def ratio(way: str) -> float:
    """Step on RoCE-24K over step on IB-24K."""
    return step_on("roce-24k", way).seconds / step_on("ib-24k", way).seconds


OURS = {
    "31": lambda: zone_tb(only("dp", run(2, 1))),
    "31b": random_order_tb,
    "31c": lambda: uplink_s(zone_tb(only("dp", run(2, 1)))),
    "31d": lambda: uplink_s(random_order_tb()),
    "31e": nic_s,
    "31f": lambda: zone_tb(hierarchical()),
    "31g": stages_in_zones_tb,
    "31h": lambda: tflops(1),
    "31i": lambda: tflops(2),
    "31j": lambda: tflops(3),
    "31k": lambda: ratio("muster"),
    "31l": lambda: ratio("at random"),
}
