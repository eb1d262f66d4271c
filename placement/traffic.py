"""Bytes per training step on one edge of each axis.

An axis is a set of equal groups of ranks; a *pattern* says which ranks of a group
exchange bytes, and `edge_bytes` how many on one edge (design: placement, 3). An
explicit value always wins; the rest is derived from a dense model's shape by the
ring-equivalent volumes of the literature:

    tp   tensor + sequence parallel, inputs gathered again in backward:
         10 (t-1)/t B per layer and micro-batch        (Korthikanti et al. 2022)
    cp   K, V gathered forward, dK, dV scattered back:
         2 x 2 (c-1)/c b s (kv_heads d_h / t) per layer and micro-batch  (Llama 3, 3.3.2)
         + its share of the FSDP group, which spans dp x cp
    pp   activations forward, gradients back: 2 B/t per micro-batch and chunk
         (Narayanan et al. 2021)
    dp   FSDP without resharding: parameters gathered once in the model's dtype,
         gradients scattered in fp32: (d-1)/d (beta + 4) P / (t p c)    (Llama 3, 3.3.2)

with B = beta b (s/c) h, the activations of one micro-batch on one context shard.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

from placement.errors import BadInput
from placement.parallelism import AXES, Parallelism
from placement.request import Batch, Collective, ModelShape, Request

DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
GRADIENT_BYTES = 4  # reduced in fp32


class Pattern(StrEnum):
    """Who talks to whom in a group of n ranks.

    RING: i -> (i+1) mod n. CHAIN: i -> i+1, and `wrap_bytes` from the last to the first.
    HIERARCHICAL: w (Z-1) n/(n-1) over Z domains. ALL_TO_ALL: every ordered pair.
    """

    RING = "ring"
    CHAIN = "chain"
    HIERARCHICAL = "hierarchical"
    ALL_TO_ALL = "all_to_all"


@dataclass(frozen=True, slots=True)
class AxisTraffic:
    """One axis wider than 1: its groups, its pattern and its bytes."""

    axis: str
    size: int
    stride: int
    pattern: Pattern
    edge_bytes: int
    wrap_bytes: int = 0


@lru_cache(maxsize=4096)
def axis_traffic(request: Request) -> tuple[AxisTraffic, ...]:
    """The axes wider than 1, fastest-varying first.

    Raises: BadInput on negative bytes, unknown axes, a collective that an axis cannot
    use, or a model without a batch.
    """
    explicit = _explicit(request)
    collectives = _collectives(request)
    derived = _derived(request)
    virtual_stages = request.batch.virtual_stages if request.batch else 1
    axes = []
    for axis in request.parallelism.axes:
        size = request.parallelism.size(axis)
        if size == 1:
            continue
        edge_bytes = explicit.get(axis, derived.get(axis, 0))
        wrap = edge_bytes * (virtual_stages - 1) // virtual_stages if axis == "pp" else 0
        stride = request.parallelism.stride(axis)
        pattern = _pattern(axis, collectives)
        axes.append(AxisTraffic(axis, size, stride, pattern, edge_bytes, wrap))
    return tuple(axes)


def _pattern(axis: str, collectives: dict[str, Collective]) -> Pattern:
    if axis == "pp":
        return Pattern.CHAIN
    if axis == "ep":
        return Pattern.ALL_TO_ALL
    return Pattern(collectives.get(axis, Collective.RING).value)


def _explicit(request: Request) -> dict[str, int]:
    for axis, edge_bytes in request.traffic:
        _known(axis, "traffic")
        if edge_bytes < 0:
            raise BadInput(f"traffic.{axis}", f"must not be negative, is {edge_bytes}")
    return dict(request.traffic)


def _collectives(request: Request) -> dict[str, Collective]:
    for axis, collective in request.collectives:
        _known(axis, "collectives")
        if axis in ("pp", "ep") and collective is not Collective.RING:
            fixed = "a chain" if axis == "pp" else "all-to-all"
            raise BadInput(f"collectives.{axis}", f"{axis} is {fixed} and takes no collective")
    return dict(request.collectives)


def _known(axis: str, field: str) -> None:
    if axis not in AXES:
        raise BadInput(f"{field}.{axis}", f"unknown axis; axes are {', '.join(AXES)}")


def parameter_count(model: ModelShape) -> int:
    """Parameters of a dense transformer with gated FFN and untied embeddings."""
    kv = model.kv_heads * (model.hidden // model.heads)
    attention = 2 * model.hidden * (model.hidden + kv)
    layer = attention + 3 * model.hidden * model.ffn + 2 * model.hidden
    return model.layers * layer + 2 * model.vocab * model.hidden + model.hidden


def _derived(request: Request) -> dict[str, int]:
    if request.model is None:
        return {}
    if request.batch is None:
        raise BadInput("batch", "is required with a model: bytes per step depend on it")
    given = {axis for axis, _ in request.traffic}
    if request.parallelism.ep > 1 and not {"ep", "dp"} <= given:
        raise BadInput(
            "model", "is dense and has no experts: give the bytes of ep and dp in traffic"
        )
    volumes = _dense(request.model, request.batch, request.parallelism)
    return {axis: int(volume) for axis, volume in volumes.items()}


def _dense(model: ModelShape, batch: Batch, p: Parallelism) -> dict[str, Fraction]:
    beta = DTYPE_BYTES[model.dtype]
    replicas = p.dp * p.ep
    micro_batches = Fraction(batch.global_sequences, replicas * batch.micro_sequences)
    if micro_batches.denominator != 1:
        raise BadInput(
            "batch.global_sequences",
            f"{batch.global_sequences} sequences do not divide over {replicas} replicas"
            f" in micro-batches of {batch.micro_sequences}",
        )
    tokens = batch.micro_sequences * Fraction(model.sequence, p.cp)
    activations = beta * tokens * model.hidden
    layers = Fraction(model.layers, p.pp)
    kv_width = Fraction(model.kv_heads * model.hidden, model.heads * p.tp)
    kv = 2 * beta * batch.micro_sequences * model.sequence * kv_width
    shard = Fraction((beta + GRADIENT_BYTES) * parameter_count(model), p.tp * p.pp)
    per_step = micro_batches * layers
    return {
        "tp": 10 * _others(p.tp) * activations * per_step,
        "cp": 2 * _others(p.cp) * kv * per_step + _others(p.cp) * shard,
        "pp": 2 * micro_batches * batch.virtual_stages * activations / p.tp,
        "dp": _others(p.dp) * shard / p.cp,
    }


def _others(n: int) -> Fraction:
    """(n-1)/n, the share of a payload that is not one's own."""
    return Fraction(n - 1, n)
