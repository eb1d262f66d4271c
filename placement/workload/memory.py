"""Bytes on a GPU: what a rank of the fullest pipeline stage holds at its peak.

State: parameters in the model's format, gradients in theirs, and an optimizer of 12 B a
parameter (fp32 copy and two moments; 8 B when parameters are fp32 themselves): 16 B in
all with bf16 gradients. What the training shares out is divided by its ranks.

Activations (Korthikanti et al. 2022, sections 4.1-4.2) are taken apart, so that grouped
queries, gated layers, other widths, experts and no dropout have their own; without sequence
parallelism the 10 of norms, inputs and dropout masks stay undivided. docs/traffic.md, "Memory",
has the sums, and what is left out.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import ceil

from muster.structs import struct
from placement.errors import BadInput
from placement.workload.flops import ffn_parameters, layer_parameters
from placement.workload.request import Request
from placement.workload.training import DataParallel, Recompute, Sync
from placement.workload.volumes import Work, work_of

GIB = 2**30  # the GB that GPUs are sold by
USUAL_GPU_GB = 80
LOGIT_BYTES = 4  # fp32, for the loss


@struct(frozen=True, slots=True)
class MemoryUse:
    """Bytes on one GPU of pipeline stage `stage`, which needs the most."""

    stage: int
    parameters: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimizer + self.activations

    def __str__(self) -> str:
        kinds = ("parameters", "gradients", "optimizer", "activations")
        parts = ", ".join(f"{kind} {getattr(self, kind) / GIB:.1f}" for kind in kinds)
        return f"{self.total / GIB:.1f} GiB on a GPU of pipeline stage {self.stage} ({parts})"


@lru_cache(maxsize=4096)
def memory(request: Request) -> MemoryUse | None:
    """The fullest stage, the first of equals; None without a model.

    Raises: BadInput as `volumes.work_of`. Cost: O(stages x virtual stages).
    """
    work = work_of(request)
    if work is None:
        return None
    stages = _stages(work)
    uses = (_use(work, stage, stages) for stage in range(work.p.pp))
    return max(uses, key=lambda use: (use.total, -use.stage))


def refuse_too_large(request: Request) -> None:
    """Raises: BadInput when a GPU has not the memory that the job says it has."""
    stated = request.training.gpu_memory_gb
    use = memory(request) if stated else None
    if use is not None and use.total > stated * GIB:
        raise BadInput("training.gpu_memory_gb", f"the job needs {use}, more than {stated} GiB")


def memory_note(request: Request) -> str | None:
    """A sentence when a GPU of the usual size would not do and none is stated."""
    use = None if request.training.gpu_memory_gb else memory(request)
    if use is None or use.total <= USUAL_GPU_GB * GIB:
        return None
    return (
        f"needs {use}, more than the {USUAL_GPU_GB} GiB of a common GPU;"
        " training.gpu_memory_gb states another size"
    )


@struct(frozen=True, slots=True)
class _Layers:
    """Layers of one stage."""

    dense: int
    expert: int


def _stages(work: Work) -> list[_Layers]:
    """Chunk j is on stage j mod p; those that chunks do not share evenly miss the ends.

    As in Llama 3 (126 layers: 7 on the first and last of 16 stages, 8 between), for the
    ends hold the embeddings.
    """
    model, p = work.model, work.p.pp
    chunks = p * work.batch.virtual_stages
    each, more = divmod(model.layers, chunks)
    without = model.layers - model.expert_layers
    dense, total = [0] * p, [0] * p
    first = 0
    for chunk in range(chunks):
        layers = each + (1 <= chunk <= more)
        dense[chunk % p] += max(0, min(first + layers, without) - first)
        total[chunk % p] += layers
        first += layers
    return [_Layers(d, n - d) for d, n in zip(dense, total, strict=True)]


def _use(work: Work, stage: int, stages: list[_Layers]) -> MemoryUse:
    state = _State(work, *_parameters(work, stage, stages[stage]))
    return MemoryUse(
        stage,
        ceil(state.parameters()),
        ceil(state.gradients()),
        ceil(state.optimizer()),
        ceil(_activations(work, stage, stages[stage])),
    )


def _parameters(work: Work, stage: int, layers: _Layers) -> tuple[Fraction, Fraction]:
    """Parameters of one GPU before data-parallel sharding: (not experts, experts)."""
    model, p = work.model, work.p
    embedding = model.vocab * model.hidden
    ends = (stage == 0) + (stage == p.pp - 1)
    if model.tied_embeddings and p.pp == 1:
        ends = 1
    dense = (
        layers.dense * layer_parameters(model, has_experts=False)
        + layers.expert * layer_parameters(model, has_experts=True)
        + ends * embedding
    )
    routed = layers.expert * model.experts * ffn_parameters(model, model.expert_width)
    return Fraction(dense, p.tp), Fraction(routed, p.tp * p.ep)


@struct(frozen=True, slots=True)
class _State:
    """Bytes of a stage's parameters and of what belongs to each."""

    work: Work
    dense: Fraction
    expert: Fraction

    def _shared(self) -> Fraction:
        """Parameters of one GPU when all ranks with the same ones share them out."""
        p = self.work.p
        ranks = p.cp * self.work.training.shards(p.dp)
        return self.dense / (ranks * p.ep) + self.expert / ranks

    def parameters(self) -> Fraction:
        if self.work.training.data_parallel is DataParallel.ZERO3:
            return self.work.beta * (self._shared() + self._gathered())
        return self.work.beta * (self.dense + self.expert)

    def _gathered(self) -> Fraction:
        """The layer at work and the next one."""
        model, p = self.work.model, self.work.p
        layer = Fraction(layer_parameters(model, has_experts=bool(model.experts)), p.tp)
        routed = model.experts * ffn_parameters(model, model.expert_width)
        return min(2 * (layer + Fraction(routed, p.tp * p.ep)), self.dense + self.expert)

    def gradients(self) -> Fraction:
        """Whole until they are reduced, if that waits for the last micro-batch."""
        training = self.work.training
        waits = training.sync is Sync.STEP and self.work.micro_batches > 1
        is_whole = waits or training.data_parallel in (DataParallel.DDP, DataParallel.ZERO1)
        if self.work.has_adapters:
            return Fraction(0)
        return training.gradient_bytes * (self.dense + self.expert if is_whole else self._shared())

    def optimizer(self) -> Fraction:
        each = 12 if self.work.beta < 4 else 8
        is_whole = self.work.training.data_parallel is DataParallel.DDP
        if self.work.has_adapters:
            return Fraction(0)
        return each * (self.dense + self.expert if is_whole else self._shared())


# --- activations -------------------------------------------------------------------


def _activations(work: Work, stage: int, layers: _Layers) -> Fraction:
    model, p, v = work.model, work.p.pp, work.batch.virtual_stages
    held = p - stage if v == 1 else 2 * (p - stage - 1) + (v - 1) * p + 1
    in_flight = Fraction(min(held, work.micro_batches * v), v)
    dense, expert = _kept(work, has_experts=False), _kept(work, has_experts=True)
    kept = in_flight * (layers.dense * dense + layers.expert * expert)
    if work.training.recompute is Recompute.FULL:
        kept += _layer(work, has_experts=bool(model.experts))  # the one computed again
    return kept + (_loss(work) if stage == p - 1 else 0)


def _kept(work: Work, *, has_experts: bool) -> Fraction:
    """Bytes that one layer keeps of a micro-batch, from forward to backward."""
    if work.training.recompute is Recompute.FULL:
        return work.activations / _sharers(work)
    kept = _layer(work, has_experts=has_experts)
    if work.training.recompute is Recompute.NONE:
        scores = work.model.heads * work.tokens * work.model.sequence / work.p.tp
        kept += ((2 * work.beta + 1) if work.training.dropout else work.beta) * scores
    return kept


def _layer(work: Work, *, has_experts: bool) -> Fraction:
    """Everything but scores: inputs of norms, blocks and matrices, and dropout masks.

    A mask is a byte an element.
    """
    model, beta, tokens = work.model, work.beta, work.tokens
    spread = model.heads * model.rope_dim + 2 * model.attention_width + model.kv_width
    spread += _ffn_columns(work, has_experts)
    along = 4 * beta + (2 if work.training.dropout else 0)  # two norms, two blocks, masks
    return tokens * (
        Fraction(along * model.hidden, _sharers(work)) + Fraction(beta * spread, work.p.tp)
    )


def _ffn_columns(work: Work, has_experts: bool) -> int:
    """Kept for a token between the feed-forward matrices, and on its way to experts.

    Two vectors of the layer's width: before and after the activation, or of a gated layer
    the gate and what it gates; their product is kept by Recompute.NONE alone.
    """
    model = work.model
    kept = 3 if model.gated and work.training.recompute is Recompute.NONE else 2
    if not has_experts:
        return kept * model.ffn
    routed = model.experts_per_token * (2 * model.hidden + kept * model.expert_width)
    return routed + model.shared_experts * kept * model.expert_width


def _sharers(work: Work) -> int:
    """Ranks that what is not split by heads or columns is divided over."""
    return work.p.tp if work.training.sequence_parallel else 1


def _loss(work: Work) -> Fraction:
    """Input of the last norm and of the output layer, and logits, of one micro-batch."""
    logits = LOGIT_BYTES * work.tokens * work.model.vocab / work.p.tp
    return 2 * work.activations / _sharers(work) + logits
