"""Small jobs on small fabrics, for make bench-emulated: what one machine can send for real.

A function of the seed alone: 4 zones 8:1 of 2 racks 2:1 of 4 hosts (ratios to network cards), of
which others hold some at random. Jobs give their bytes and their compute, so that no share of
the model that was fitted to clusters stands between formula, simulation and packets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.steps.instances import StepInstance
from bench.steps.peers import PEERS, placed
from placement.fabric import hostset
from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from placement.workload.parallelism import Parallelism
from placement.workload.request import Objective, Request
from placement.workload.training import Batch, DataParallel, PipelineSchedule, Training

MB = 1_000_000
WAYS = ("muster", "cut", "fewest domains", "by name", "Slurm block", "random")
PEER_OF = {
    "cut": "muster, objective cut",
    "fewest domains": "Kueue TAS",
    "by name": "by name",
    "Slurm block": "Slurm block",
    "random": "random",
}
LEAST_FREE = 18


def fabric_of(ranks_per_host: int, zone_ratio: float = 8) -> Fabric:
    """Return a fabric of 32 hosts whose network cards carry 20 Gbit/s together."""
    tiers = [
        {"name": "zone", "count": 4, "oversubscription": zone_ratio},
        {"name": "rack", "count": 2, "oversubscription": 2},
        {"name": "host", "count": 4},
    ]
    spec = {"name": f"lab-{ranks_per_host}", "gpus_per_host": ranks_per_host}
    return from_spec({**spec, "nic_gbps": 20 / ranks_per_host, "tiers": tiers})


def _job(
    sent_mb: dict[str, int],
    micro: int = 8,
    chunks: int = 1,
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B,
    kind: DataParallel = DataParallel.FSDP,
    compute_s: float = 2.0,
    **sizes: Any,
) -> Request:
    replicas = sizes.get("dp", 1) * sizes.get("ep", 1)
    return Request(
        Parallelism(**sizes),
        tuple((axis, mb * MB) for axis, mb in sent_mb.items()),
        batch=Batch(micro * replicas, 1, chunks, schedule=schedule),
        training=Training(data_parallel=kind),
        compute_s=compute_s,
        objective=Objective.TIME,
    )


ZB, DDP = PipelineSchedule.ZERO_BUBBLE, DataParallel.DDP
JOBS: dict[str, tuple[int, Request]] = {
    "fsdp dp12": (1, _job({"dp": 3000}, 1, dp=12, compute_s=1.0)),
    "ddp dp16": (1, _job({"dp": 2000}, 4, dp=16, kind=DDP)),
    "pp4 dp4": (1, _job({"pp": 1600, "dp": 1500}, pp=4, dp=4)),
    "pp8 dp2": (1, _job({"pp": 1600, "dp": 1500}, 16, pp=8, dp=2, compute_s=3.0)),
    "pp4 v2 dp4": (1, _job({"pp": 3200, "dp": 1500}, 8, 2, pp=4, dp=4)),
    "pp4 zb dp4": (1, _job({"pp": 1600, "dp": 1500}, schedule=ZB, pp=4, dp=4)),
    "pp4 dp3": (1, _job({"pp": 800, "dp": 3000}, 12, pp=4, dp=3)),
    "ep8 dp2": (1, _job({"ep": 400, "dp": 500}, 4, ep=8, dp=2)),
    "ep4 dp4": (1, _job({"ep": 600, "dp": 800}, 4, ep=4, dp=4)),
    "ep4 pp2 dp2": (1, _job({"ep": 500, "pp": 1200, "dp": 800}, ep=4, pp=2, dp=2)),
    "cp4 dp4": (1, _job({"cp": 2500, "dp": 1000}, 4, cp=4, dp=4)),
    "cp2 pp4 dp2": (1, _job({"cp": 1200, "pp": 1000, "dp": 1000}, cp=2, pp=4, dp=2)),
    "tp2 pp2 dp4": (2, _job({"tp": 4000, "pp": 1600, "dp": 1500}, tp=2, pp=2, dp=4)),
    "tp2 pp4 dp4": (2, _job({"tp": 2000, "pp": 1000, "dp": 1000}, tp=2, pp=4, dp=4)),
}


def layouts(name: str, seed: int) -> tuple[Fabric, Request, dict[str, Sequence[int]]]:
    """Return the fabric of a job, its request and its hosts as each way places it."""
    ranks, request = JOBS[name]
    fabric = fabric_of(ranks)
    random = np.random.default_rng([seed, list(JOBS).index(name)])
    gang = request.hosts_needed(ranks)
    count = max(LEAST_FREE, gang + 2) if gang > 8 else LEAST_FREE
    free = np.sort(random.permutation(fabric.host_count)[:count]).astype(np.int64)
    inst = StepInstance(name, fabric, hostset.of(free.tolist()), request, 0.0)
    found: dict[str, Sequence[int]] = {"muster": placed(inst, request).hosts}
    for way in WAYS[1:]:
        found[way] = [int(host) for host in PEERS[PEER_OF[way]](inst, free, gang)]
    return fabric, request, found
