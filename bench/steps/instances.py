"""Instances of make bench-time: published training jobs on fabrics that other gangs partly fill.

inst = timed(7, seed=1)     the eighth of seed 1, the same on every machine
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from bench.placement.capacity import free_hosts
from placement.fabric.hostset import HostSet
from placement.fabric.reader import preset
from placement.fabric.tree import Fabric
from placement.workload.request import Request
from scheduler.files.inputs import load_fabric
from scheduler.files.job import job_from_mapping

EXAMPLES = Path(__file__).parents[2] / "examples"
LLAMA_405B = {
    "layers": 126, "hidden": 16384, "ffn": 53248, "heads": 128, "kv_heads": 8,
    "vocab": 128256, "sequence": 8192, "dtype": "bf16",
}  # fmt: skip
LLAMA_70B = {**LLAMA_405B, "layers": 80, "hidden": 8192, "ffn": 28672, "heads": 64}
DEEPSEEK_V3 = {
    "layers": 61, "hidden": 7168, "ffn": 18432, "heads": 128, "kv_heads": 128, "head_dim": 128,
    "query_rank": 1536, "kv_rank": 512, "rope_dim": 64, "vocab": 129280, "sequence": 4096,
    "dtype": "bf16", "experts": 256, "experts_per_token": 8, "expert_ffn": 2048,
    "shared_experts": 1, "dense_layers": 3,
}  # fmt: skip
# Mixtral 8x22B (2024): 56 layers, 8 experts of which a token meets 2.
MIXTRAL = {
    "layers": 56, "hidden": 6144, "ffn": 16384, "heads": 48, "kv_heads": 8, "vocab": 32768,
    "sequence": 8192, "dtype": "bf16", "experts": 8, "experts_per_token": 2, "expert_ffn": 16384,
}  # fmt: skip
EXPERTS = {
    "data_parallel": "zero1", "expert_hosts_per_token": 4, "dispatch_dtype": "fp8",
    "recompute": "full",
}  # fmt: skip


def _job(
    axes: Mapping[str, int],
    model: Mapping[str, Any],
    sequences: int,
    training: Mapping[str, Any] | None = None,
    chunks: int = 1,
) -> Request:
    batch: dict[str, Any] = {"global_sequences": sequences, "micro_sequences": 1}
    if chunks > 1:
        batch["virtual_stages"] = chunks
    document: dict[str, Any] = {
        "name": "job", "parallelism": dict(axes), "model": dict(model), "batch": batch, "spares": 0
    }  # fmt: skip
    if training:
        document["training"] = dict(training)
    return job_from_mapping(document).request


def _generated(rng: random.Random) -> Request:
    """A dense model of some shape, over some axes, on 512 to 4,096 GPUs."""
    tp, cp, pp = rng.choice((4, 8)), rng.choice((1, 1, 2, 4)), rng.choice((1, 2, 4, 8))
    dp = max(2, rng.choice((512, 1024, 2048, 4096)) // (tp * cp * pp))
    model = {**LLAMA_70B, "layers": 96, "hidden": rng.choice((6144, 8192, 12288))}
    sequences = dp * rng.choice((4, 8, 16, 32))
    return _job({"tp": tp, "cp": cp, "pp": pp, "dp": dp}, model, sequences)


JOBS: dict[str, Callable[[random.Random], Request]] = {
    "405b-16k": lambda _: _job({"tp": 8, "pp": 16, "dp": 128}, LLAMA_405B, 2048, None, 8),
    "405b-8k": lambda _: _job({"tp": 8, "pp": 16, "dp": 64}, LLAMA_405B, 2048, None, 8),
    "70b-2k": lambda _: _job({"tp": 8, "pp": 4, "dp": 64}, LLAMA_70B, 1024),
    "deepseek-v3": lambda _: _job({"ep": 64, "pp": 16, "dp": 2}, DEEPSEEK_V3, 15360, EXPERTS),
    "mixtral": lambda _: _job({"tp": 2, "ep": 8, "pp": 4, "dp": 16}, MIXTRAL, 2048),
    "405b-128k": lambda _: _job(
        {"tp": 8, "cp": 16, "pp": 16, "dp": 4}, {**LLAMA_405B, "sequence": 131072}, 64, None, 8
    ),
    "generated": _generated,
}


FABRICS = ("roce-24k", "ib-24k", "tapered-24k", "nvl72-24k")


@cache
def time_fabric(name: str) -> Fabric:
    file = EXAMPLES / f"fabric-{name}.yaml"
    return load_fabric(str(file)) if file.exists() else preset(name)


@dataclass(frozen=True, slots=True)
class StepInstance:
    """A job on a fabric that others partly fill. `busy`: share of the fabric that others hold."""

    name: str
    fabric: Fabric
    free: HostSet
    request: Request
    busy: float


def timed(index: int, seed: int) -> StepInstance:
    every = list(product(FABRICS, JOBS))
    random.Random("bench-time").shuffle(every)
    fabric_name, job = every[index % len(every)]
    rng = random.Random(f"time/{seed}/{index}")
    fabric, request = time_fabric(fabric_name), JOBS[job](rng)
    hosts = fabric.host_count
    gang = request.hosts_needed(fabric.gpus_per_host)
    # As busy as 55 to 90 %, or as the gang leaves it.
    wanted = max(gang, round(hosts * (1 - rng.uniform(0.55, 0.9))))
    wanted = min(hosts, round(wanted * rng.uniform(1.0, 1.1)))
    free = free_hosts(fabric, rng.choice(("replay", "replay", "hosts", "racks")), wanted, rng)
    busy = 1 - free.bit_count() / hosts
    return StepInstance(f"{seed}:{index} {fabric_name} {job}", fabric, free, request, busy)
