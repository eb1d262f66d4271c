"""What a job of a trace trains, where the trace says no more than its size.

No public trace holds parallelism, so this is a rule, stated with every run and seeded:

    ring         pure data parallel, 1 byte per ring edge: enough to keep a gang together
    llm          a model by size, from the table below, with the traffic that follows
    llm-elastic  the same, and data-parallel gangs of two hosts and more may shrink to half

The table goes by the GPUs of the gang. A row with more than one model is drawn from, by
seed and line, with these weights:

    GPUs      model          weight  tp    ep  stages
    1         llama-1b       1       1     1   1
    16        llama-8b       1       1     1   1
    64        llama-8b       1       1     1   1
              llama-70b      2       host  1   4
              mixtral-8x7b   1       1     8   2
    512       llama-70b      3       host  1   8
              mixtral-8x7b   1       1     8   4
    2048      llama-405b     3       host  1   16
              deepseek-v3    1       1     64  16

tp is the GPUs of a host, 8 at most. Stages are those of the table, or the most that divide
the gang; a gang that takes neither the experts nor half of the stages trains the largest
data-parallel model, llama-8b. Each replica works through 2 micro-batches a stage, 8 at
least, of one sequence. Llama 3.1 and 3.2, Mixtral and DeepSeek-V3 as published; sizes after
Llama 3 (table 4: 405B on 8,192 and 16,384 GPUs) and DeepSeek-V3 (2,048), the rest is choice. On
hosts of 8 GPUs of 80 GiB every one of these gangs fits in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from math import gcd
from random import Random

from muster.structs import replace, struct
from placement.workload.parallelism import Parallelism
from placement.workload.request import NO_SPARES, Request, SpareRule
from placement.workload.training import (
    AS_LLAMA3,
    Batch,
    DataParallel,
    ModelShape,
    Recompute,
    Training,
)
from scheduler.files.job import usual_objective


class ShapeRule(StrEnum):
    """How jobs of which only the size is known get a shape."""

    RING = "ring"
    LLM = "llm"
    ELASTIC = "llm-elastic"


RULES = {
    ShapeRule.RING: "pure data parallel, 1 byte per ring edge and step",
    ShapeRule.LLM: (
        "with a model, parallelism and traffic by size (docs/traces.md), drawn by the seed"
    ),
    ShapeRule.ELASTIC: "with a model by size as under llm; data-parallel gangs may shrink to half",
}


@struct(frozen=True, slots=True)
class ShapeAssignment:
    """A rule with the seed of its draws."""

    rule: ShapeRule = ShapeRule.RING
    seed: int = 0


LLAMA_1B = ModelShape(16, 2048, 8192, 32, 8, 128_256, 8192, tied_embeddings=True)
LLAMA_8B = ModelShape(32, 4096, 14_336, 32, 8, 128_256, 8192)
LLAMA_70B = ModelShape(80, 8192, 28_672, 64, 8, 128_256, 8192)
LLAMA_405B = ModelShape(126, 16_384, 53_248, 128, 8, 128_256, 8192)
MIXTRAL = ModelShape(32, 4096, 14_336, 32, 8, 32_000, 8192, experts=8, experts_per_token=2)
DEEPSEEK_V3 = ModelShape(
    61,
    7168,
    18_432,
    128,
    128,
    129_280,
    4096,
    head_dim=128,
    query_rank=1536,
    kv_rank=512,
    rope_dim=64,
    experts=256,
    experts_per_token=8,
    expert_ffn=2048,
    shared_experts=1,
    dense_layers=3,
)


@struct(frozen=True, slots=True)
class ModelLayout:
    """A model, and how it is split over GPUs. `is_wide`: tp over a whole host."""

    model: ModelShape
    weight: int = 1
    is_wide: bool = False
    ep: int = 1
    stages: int = 1
    training: Training = AS_LLAMA3


FULL = Training(recompute=Recompute.FULL)
DATA_PARALLEL = ModelLayout(LLAMA_8B, training=Training(data_parallel=DataParallel.ZERO3))
TABLE: tuple[tuple[int, tuple[ModelLayout, ...]], ...] = (
    (1, (ModelLayout(LLAMA_1B),)),
    (16, (DATA_PARALLEL,)),
    (
        64,
        (
            DATA_PARALLEL,
            ModelLayout(LLAMA_70B, 2, is_wide=True, stages=4),
            ModelLayout(MIXTRAL, ep=8, stages=2, training=FULL),
        ),
    ),
    (
        512,
        (
            ModelLayout(LLAMA_70B, 3, is_wide=True, stages=8),
            ModelLayout(MIXTRAL, ep=8, stages=4, training=FULL),
        ),
    ),
    (
        2048,
        (
            ModelLayout(LLAMA_405B, 3, is_wide=True, stages=16, training=FULL),
            ModelLayout(DEEPSEEK_V3, ep=64, stages=16, training=FULL),
        ),
    ),
)


def shaped(
    gpus: int, gpus_per_host: int, spares: SpareRule, attach: ShapeAssignment, line: int
) -> tuple[Request, int]:
    """Return a gang of `gpus`, which fill whole hosts, and with how many replicas it can run at
    least (0 = all of them)."""
    if attach.rule is ShapeRule.RING:
        return _ring(gpus, spares), 0
    shape = _drawn(_row(gpus), attach.seed, line)
    return _request(shape, gpus, gpus_per_host, spares, attach.rule is ShapeRule.ELASTIC)


def part_of_host(gpus: int) -> Request:
    """Return a job on so many GPUs of one host; it has no spares."""
    return _ring(gpus, NO_SPARES)


@lru_cache(maxsize=4096)
def _ring(gpus: int, spares: SpareRule) -> Request:
    return Request(Parallelism(dp=gpus), traffic=(("dp", 1),), spares=spares)


def _row(gpus: int) -> Sequence[ModelLayout]:
    return next(shapes for least, shapes in reversed(TABLE) if least <= gpus)


def _drawn(shapes: Sequence[ModelLayout], seed: int, line: int) -> ModelLayout:
    if len(shapes) == 1:
        return shapes[0]
    weights = [shape.weight for shape in shapes]
    return Random(f"{seed}/attach/{line}").choices(shapes, weights)[0]


@lru_cache(maxsize=4096)
def _request(
    shape: ModelLayout, gpus: int, gpus_per_host: int, spares: SpareRule, elastic: bool
) -> tuple[Request, int]:
    p = _cut(shape, gpus, gpus_per_host)
    if p is None:
        shape, p = DATA_PARALLEL, Parallelism(dp=gpus)
    micro_batches = max(8, 2 * p.pp)
    batch = Batch(micro_batches * p.dp * p.ep)
    request = Request(p, model=shape.model, batch=batch, spares=spares, training=shape.training)
    request = replace(request, objective=usual_objective(request))
    is_elastic = elastic and p.dp == gpus and not gpus % (2 * gpus_per_host)
    return request, p.dp // 2 if is_elastic else 0


def _cut(shape: ModelLayout, gpus: int, gpus_per_host: int) -> Parallelism | None:
    """The axes of a gang, None when too few stages divide it."""
    tp = gcd(gpus_per_host, 8) if shape.is_wide else 1
    rest, odd = divmod(gpus, tp * shape.ep)
    if odd:
        return None
    stages = max(n for n in range(1, shape.stages + 1) if not rest % n)
    if 2 * stages < shape.stages:
        return None
    return Parallelism(tp=tp, ep=shape.ep, pp=stages, dp=rest // stages)
