"""Seconds that the GPUs compute in a step, by its parts.

    compute = GEMMs + attention + elementwise + optimizer

GEMMs        6 FLOPs a parameter and token (4 with adapters alone, 2 more with full
             recomputation) at a share of the peak of GPU and precision; slower where micro-batches
             are short, matrices narrow, or shapes no multiple of what kernels take.
experts      the same, with the tokens and the width of one expert, at a share of that rate.
attention    causal scores and values at a share of the 16-bit peak, a third more if recomputed.
elementwise  norms, activations, residuals: bytes a layer and token over memory bandwidth.
optimizer    bytes of the state of a GPU over memory bandwidth.

The constants are in fitted_constants.toml, with what they were fitted on. The arithmetic of
`compute_seconds` takes numbers and arrays alike: scripts/fit_steps.py fits with it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from muster.structs import struct
from placement.fabric.gpus import Gpu
from placement.objective.fitted_constants import FittedConstants, Rates
from placement.workload.flops import (
    dense_parameters,
    expert_parameters,
    ffn_parameters,
    multiplied_parameters,
)
from placement.workload.request import Request
from placement.workload.training import DataParallel, Recompute, Trained
from placement.workload.volumes import work_of

ATTENTION_PASSES = 3  # forward once, backward twice
OPTIMIZER_BYTES = 30  # read and written of one parameter: Adam in fp32 with 16-bit copies
KERNEL_HEAD = 8  # widths of heads that kernels take are multiples of this
KERNEL_TILE = 64  # and of matrices of this


@struct(frozen=True, slots=True)
class ComputeParts:
    """Work of one GPU in a step, part by part, as seconds at the peaks that its maker states.

    `gemm_s`, `expert_s`: at the peak of the job's precision; `attention_s`: at the 16-bit peak.
    `byte_s`: of one byte for each layer, column and token; `optimizer_s`: of the optimizer.
    `tokens`: of a micro-batch on a GPU; `width`: columns of a matrix on one. `expert_tokens`,
    `expert_width`: of one expert. `is_misaligned`: 1 where shapes are no multiple of tiles.
    """

    gemm_s: float
    expert_s: float
    attention_s: float
    byte_s: float
    optimizer_s: float
    tokens: float
    width: float
    expert_tokens: float
    expert_width: float
    is_misaligned: float


def compute_seconds(parts: ComputeParts | Any, rates: Rates | Any, c: FittedConstants | Any) -> Any:
    """Return the seconds of compute in a step, without the bubble of a pipeline."""
    return sum(seconds_by_part(parts, rates, c).values())


def seconds_by_part(
    parts: ComputeParts | Any, rates: Rates | Any, c: FittedConstants | Any
) -> dict[str, Any]:
    """Return the seconds of each part of compute."""
    narrow = c.narrow_columns / parts.width
    misaligned = 1 + (c.misaligned - 1) * parts.is_misaligned
    gemm = parts.gemm_s * (1 + c.short_tokens / parts.tokens + narrow) * misaligned
    expert_shape = 1 + c.expert_tokens / parts.expert_tokens + c.narrow_columns / parts.expert_width
    expert = parts.expert_s * expert_shape / c.expert_share
    attention = parts.attention_s * misaligned / rates.attention
    return {
        "GEMMs": gemm / rates.gemm,
        "experts": expert / rates.gemm,
        "attention": attention,
        "elementwise": c.layer_bytes * parts.byte_s,
        "optimizer": parts.optimizer_s,
    }


@lru_cache(maxsize=4096)
def compute_parts(request: Request, gpu: Gpu) -> ComputeParts | None:
    """Return the parts of compute; None without a model and a batch. Raises: BadInput where the GPU
    lacks the precision."""
    work = work_of(request)
    if work is None:
        return None
    model, p, training = work.model, work.p, work.training
    tokens = work.batch.global_sequences * model.sequence / p.world_size  # of a GPU, in a step
    again = 1 if training.recompute is Recompute.FULL else 0
    passes = 2 if training.trained is Trained.LORA else 3
    head = model.vocab * model.hidden
    matrices = multiplied_parameters(model, 0) - head
    routed = (
        model.expert_layers * model.experts_per_token * ffn_parameters(model, model.expert_width)
    )
    spread = model.heads * (2 * model.head_width + model.rope_dim)
    attended = model.layers * spread * (model.sequence // 2)
    attention = 2 * tokens * attended * (ATTENTION_PASSES + again)
    rate, memory = gpu.rate(model.dtype), gpu.memory_gb_per_s * 1e9
    peak, peak_16, memory = gpu.peak(model.dtype) * rate, gpu.peak("bf16") * rate, memory * rate
    met = work.tokens * p.ep * model.experts_per_token / max(1, model.experts)
    cut = p.tp if work.is_expert_cut else 1
    return ComputeParts(
        gemm_s=2 * tokens * (matrices * (passes + again) + head * passes) / peak,
        expert_s=2 * tokens * routed * (passes + again) / peak,
        attention_s=attention / peak_16,
        byte_s=model.layers * model.hidden * tokens / memory,
        optimizer_s=_optimizer_bytes(request) / memory,
        tokens=float(work.tokens),
        width=model.hidden / p.tp,
        expert_tokens=float(met) or 1.0,
        expert_width=model.expert_width / cut,
        is_misaligned=float(_is_misaligned(request)),
    )


def _is_misaligned(request: Request) -> bool:
    model = request.model
    assert model is not None
    is_odd = bool(model.head_width % KERNEL_HEAD)
    return is_odd or bool(model.hidden % (request.parallelism.tp * KERNEL_TILE))


def _optimizer_bytes(request: Request) -> float:
    """Return the bytes that the optimizer moves on one GPU, of all that is not shared out."""
    model, p, training = request.model, request.parallelism, request.training
    assert model is not None
    if training.trained is Trained.LORA:
        return 0.0
    sharers = 1 if training.data_parallel is DataParallel.DDP else p.cp * training.shards(p.dp)
    dense = dense_parameters(model) / (1 if sharers == 1 else p.ep)
    stage = (dense + expert_parameters(model) / p.ep) / (p.tp * p.pp)
    return OPTIMIZER_BYTES * stage / sharers
