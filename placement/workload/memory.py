"""Bytes on a GPU: what a rank of the fullest pipeline stage holds at its peak.

State: parameters in the model's format, gradients in theirs, and an optimizer of 12 B a
parameter (fp32 copy and two moments; 8 B when parameters are fp32 themselves): 16 B in
all with bf16 gradients. What the training shares out is divided by its ranks.

Activations (Korthikanti et al. 2022, sections 4.1-4.2) are taken apart, so that grouped
queries, gated layers, other widths, experts and no dropout have their own; without sequence
parallelism the 10 of norms, inputs and dropout masks stay undivided. Scores are never kept:
attention is fused. On top come what one layer or the loss needs while it is at work, what the
allocator cannot use, and what the driver holds. docs/memory.md has the sums, the published
figures that the constants below were fitted to, and what is left out.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import ceil

from muster.structs import struct
from placement.errors import BadInput
from placement.workload.flops import ffn_parameters, layer_parameters
from placement.workload.request import Request
from placement.workload.training import (
    DTYPE_BYTES,
    DataParallel,
    PipelineSchedule,
    Recompute,
    Sync,
)
from placement.workload.volumes import Work, work_of

GIB = 2**30  # the GB that GPUs are sold by
USUAL_GPU_GB = 80
USABLE_SHARE = 0.96  # of a GPU: the rest is what this model can be wrong by on the same run

# Bytes that a loss holds of each logit at its peak (docs/memory.md, "Logits"):
MEGATRON_LOGIT_BYTES = 6  # bf16 and, in place, fp32 (vocab-parallel cross entropy)
EAGER_LOGIT_BYTES = 13  # PyTorch's own: log-probabilities and two gradients in fp32, fitted
SPLIT_LOGIT_BYTES = 20  # the same over the ranks of tp, whose exponentials are kept apart

# What the allocator holds beyond what is allocated, as a share; a pipeline mixes the lifetimes
# of its micro-batches.
FRAGMENTATION = 0.03
PIPELINE_FRAGMENTATION = 0.2
CONTEXT_BYTES = 3 * GIB  # driver, kernels, cuBLAS workspaces and NCCL's buffers

PYTORCH_FSDP = (DataParallel.FSDP, DataParallel.ZERO3)  # layer by layer; others as Megatron-Core


@struct(frozen=True, slots=True)
class MemoryUse:
    """Bytes on one GPU of the pipeline stage `stage`, which needs the most.

    `working`: the loss, or the layer that is computed again, and gathered layers.
    """

    stage: int
    parameters: int
    gradients: int
    optimizer: int
    activations: int
    working: int
    fragmentation: int
    context: int

    @property
    def allocated(self) -> int:
        """Return what PyTorch reports as its peak of allocated memory."""
        state = self.parameters + self.gradients + self.optimizer
        return state + self.activations + self.working

    @property
    def reserved(self) -> int:
        """Return what PyTorch reports as its peak of reserved memory."""
        return self.allocated + self.fragmentation

    @property
    def total(self) -> int:
        """Return what the driver's tools report."""
        return self.reserved + self.context

    def __str__(self) -> str:
        kinds = ("parameters", "gradients", "optimizer", "activations", "working")
        parts = ", ".join(f"{kind} {getattr(self, kind) / GIB:.1f}" for kind in kinds)
        beside = (self.fragmentation + self.context) / GIB
        return (
            f"{self.total / GIB:.1f} GiB on a GPU of pipeline stage {self.stage}"
            f" ({parts}, allocator and driver {beside:.1f})"
        )


@lru_cache(maxsize=4096)
def memory(request: Request) -> MemoryUse | None:
    """Return the use of the fullest stage, the first of equals; None without a model.

    Raises: BadInput as `volumes.work_of`. Cost: O(stages x virtual stages).
    """
    work = work_of(request)
    if work is None:
        return None
    stages = _stages(work)
    uses = (_use(work, stage, stages) for stage in range(work.p.pp))
    return max(uses, key=lambda use: (use.total, -use.stage))


def fits(use: MemoryUse, gpu_gb: float) -> bool:
    """Return whether a GPU of that size, in GiB as they are sold, holds this with a margin."""
    return use.total <= USABLE_SHARE * gpu_gb * GIB


def refuse_too_large(request: Request) -> None:
    """Refuse a job that needs more memory than it says a GPU has. Raises: BadInput."""
    stated = request.training.gpu_memory_gb
    use = memory(request) if stated else None
    if use is not None and not fits(use, stated):
        raise BadInput("training.gpu_memory_gb", f"the job needs {use}, {_too_much(stated)}")


def memory_note(request: Request, gpu_gb: float = USUAL_GPU_GB, gpu: str = "") -> str | None:
    """Return a sentence when a GPU of that size would not do and the job states none."""
    use = None if request.training.gpu_memory_gb else memory(request)
    if use is None or fits(use, gpu_gb):
        return None
    kind = f"the fabric's {gpu}" if gpu else "a common GPU"
    return f"needs {use}, {_too_much(gpu_gb)} of {kind}; training.gpu_memory_gb states another size"


def _too_much(gpu_gb: float) -> str:
    return f"more than {USABLE_SHARE * 100:g} % of the {gpu_gb:g} GiB"


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
    kept = _activations(work, stage, stages[stage])
    reduced, kept = _at_peak(work, state.gradients(), kept)
    at_work = max(_layer_at_work(work), _loss(work) if stage == work.p.pp - 1 else 0)
    parts = (state.parameters(), reduced, state.optimizer(), kept, at_work + state.gathered())
    spread = PIPELINE_FRAGMENTATION if work.p.pp > 1 else FRAGMENTATION
    parameters, gradients, optimizer, activations, working = map(ceil, parts)
    spread_bytes = ceil(spread * (parameters + gradients + optimizer + activations + working))
    return MemoryUse(
        stage, parameters, gradients, optimizer, activations, working, spread_bytes, CONTEXT_BYTES
    )


def _at_peak(work: Work, gradients: Fraction, kept: Fraction) -> tuple[Fraction, Fraction]:
    """Gradients and activations when both together are largest.

    PyTorch makes the gradients of a chunk in its first backward. With no more micro-batches than
    stages, all of them go back through one chunk before the next, so that the first gradients of
    chunk k from the end meet the activations of the chunks that are left. Megatron-Core has room
    for all gradients from the start, and with more micro-batches all chunks have theirs soon.
    """
    chunks = work.batch.virtual_stages
    is_lazy = work.training.data_parallel in PYTORCH_FSDP and work.micro_batches <= work.p.pp
    if not is_lazy or chunks == 1:
        return gradients, kept
    moments = (
        (gradients * k / chunks, kept * (chunks - k + 1) / chunks) for k in range(1, chunks + 1)
    )
    return max(moments, key=sum)


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

    @property
    def _is_kept(self) -> bool:
        """Whether PyTorch's FSDP keeps what it gathers from a step's first micro-batch to its last:
        as fsdp says, and in a pipeline by default (TorchTitan), whose gradients wait likewise."""
        training = self.work.training
        is_pipelined = training.data_parallel is DataParallel.ZERO3 and self.work.p.pp > 1
        return training.data_parallel is DataParallel.FSDP or is_pipelined

    def parameters(self) -> Fraction:
        if self.work.training.data_parallel is DataParallel.ZERO3 and not self._is_kept:
            return self.work.beta * self._shared()
        return _stored(self.work) * (self.dense + self.expert)

    def gathered(self) -> Fraction:
        """Layers at work of PyTorch's FSDP: this one and the next, a gradient before it is
        scattered, and with zero3 the embeddings, which stay from forward to backward."""
        if self.work.training.data_parallel not in PYTORCH_FSDP:
            return Fraction(0)
        model, p = self.work.model, self.work.p
        layer = Fraction(layer_parameters(model, has_experts=bool(model.experts)), p.tp)
        routed = model.experts * ffn_parameters(model, model.expert_width)
        layer += Fraction(routed, p.tp * p.ep)
        reduced = 0 if self.work.has_adapters else self.work.training.gradient_bytes
        if self._is_kept:
            return reduced * layer
        ends = Fraction((1 if model.tied_embeddings else 2) * model.vocab * model.hidden, p.tp)
        return self.work.beta * (2 * layer + ends) + reduced * layer

    def gradients(self) -> Fraction:
        """Gradients: whole until they are reduced, if that waits for the last micro-batch."""
        training = self.work.training
        is_pipelined = self._is_kept and self.work.p.pp > 1
        waits = (training.sync is Sync.STEP or is_pipelined) and self.work.micro_batches > 1
        is_whole = waits or training.data_parallel in (DataParallel.DDP, DataParallel.ZERO1)
        if self.work.has_adapters:
            return Fraction(0)
        return training.gradient_bytes * (self.dense + self.expert if is_whole else self._shared())

    def optimizer(self) -> Fraction:
        each = 12 if self.work.beta < 4 else 8
        if (self.work.model.dtype, self.work.training.gradient_dtype) == ("fp16", "fp16"):
            each += 4  # the gradients in fp32, unscaled, for the update
        is_whole = self.work.training.data_parallel is DataParallel.DDP
        if self.work.has_adapters:
            return Fraction(0)
        return each * (self.dense + self.expert if is_whole else self._shared())


# --- activations -------------------------------------------------------------------


def _activations(work: Work, stage: int, layers: _Layers) -> Fraction:
    """Kept by micro-batches between their forward and their backward."""
    dense, expert = _saved_bytes(work, has_experts=False), _saved_bytes(work, has_experts=True)
    kept = layers.dense * dense + layers.expert * expert
    if work.p.pp > 1:  # what each chunk sends on
        kept += work.batch.virtual_stages * work.activations / _sharers(work)
    return _in_flight(work, stage) * kept


def _in_flight(work: Work, stage: int) -> Fraction:
    """Micro-batches that a stage holds at once, in units of all its chunks.

    1F1B and zero bubble p - i (Narayanan et al. 2021, 2.2; Qi et al. 2024, ZB-H1, table 1);
    interleaved, warm-up and one more; DualPipe p + 1 (DeepSeek-V3, 2024, table 2).
    """
    p, v = work.p.pp, work.batch.virtual_stages
    if work.batch.schedule is PipelineSchedule.DUALPIPE:
        held = (p + 1) * v
    else:
        held = p - stage if v == 1 else 2 * (p - stage - 1) + (v - 1) * p + 1
    return Fraction(min(held, work.micro_batches * v), v)


def _saved_bytes(work: Work, *, has_experts: bool) -> Fraction:
    """Bytes that one layer keeps of a micro-batch, from forward to backward."""
    if work.training.recompute is Recompute.FULL:
        return work.activations / _sharers(work)
    training = work.training
    if training.recompute is Recompute.SELECTIVE and training.data_parallel in PYTORCH_FSDP:
        return _matrix_outputs(work, has_experts)
    return _layer(work, has_experts=has_experts)


def _matrix_outputs(work: Work, has_experts: bool) -> Fraction:
    """TorchTitan's selective checkpointing: the input, attention, and every second matrix:
    queries, values, one of the gated pair, and the last."""
    model, beta = work.model, work.beta
    spread = 2 * model.attention_width + Fraction(model.kv_width, 2)
    if has_experts:
        spread += model.experts_per_token * (2 * model.hidden + model.expert_width)
        spread += model.shared_experts * model.expert_width
    else:
        spread += model.ffn
    along = Fraction(2 * model.hidden, _sharers(work))
    return beta * work.tokens * (along + Fraction(spread, work.p.tp))


def _layer_at_work(work: Work) -> Fraction:
    """Return the bytes of one layer that backward computes again before it can begin, and half
    as much for their gradients."""
    if work.training.recompute is Recompute.FULL:
        return Fraction(3, 2) * _layer(work, has_experts=bool(work.model.experts))
    return Fraction(0)


def _layer(work: Work, *, has_experts: bool) -> Fraction:
    """Everything but scores: inputs of norms, blocks and matrices, and dropout masks.

    A mask is a byte an element. Of frozen matrices the inputs have no use in backward, but for
    those of adapters.
    """
    model, beta = work.model, work.beta
    spread = beta * (model.heads * model.rope_dim + 2 * model.attention_width + model.kv_width)
    if _into_matrices(work) < beta:  # beside what attention keeps of its own output
        spread += _into_matrices(work) * model.attention_width
    spread += _ffn_bytes(work, has_experts)
    blocks = 1 if work.has_adapters else 2
    along = 2 * beta + blocks * _into_matrices(work) + (2 if work.training.dropout else 0)
    return work.tokens * (
        Fraction(along * model.hidden, _sharers(work)) + Fraction(spread, work.p.tp)
    )


def _ffn_bytes(work: Work, has_experts: bool) -> int:
    """Kept for a token between the feed-forward matrices, and on its way to experts.

    Before and after the activation; of a gated layer the gate, what it gates and their product.
    """
    model, entering = work.model, 0 if work.has_adapters else _into_matrices(work)
    between = (2 if model.gated else 1) * _stored(work) + entering
    if not has_experts:
        return between * model.ffn
    moved = (work.beta + entering) * model.hidden
    routed = model.experts_per_token * (moved + between * model.expert_width)
    return routed + model.shared_experts * between * model.expert_width


def _into_matrices(work: Work) -> int:
    """Bytes of an element that a matrix is multiplied with: Transformer Engine keeps what it has
    cast to 8 bits, PyTorch what it casts again."""
    is_cast = work.model.dtype not in DTYPE_BYTES
    return 1 if is_cast and work.training.data_parallel not in PYTORCH_FSDP else work.beta


def _stored(work: Work) -> int:
    """Bytes of an element of frozen matrices, and of what goes into the activations between them:
    a byte where they are multiplied in 8 bits or less, as MLPerf's submissions of LoRA keep them;
    without adapters those of any parameter."""
    is_small = work.model.dtype not in DTYPE_BYTES
    return 1 if work.has_adapters and is_small else work.beta


def _sharers(work: Work) -> int:
    """Ranks that what is not split by heads or columns is divided over."""
    return work.p.tp if work.training.sequence_parallel else 1


def _loss(work: Work) -> Fraction:
    """Input of the last norm and of the output layer, and the loss, of one micro-batch."""
    logits = _logit_bytes(work) * work.tokens * work.model.vocab / work.p.tp
    return 2 * work.activations / _sharers(work) + logits


def _logit_bytes(work: Work) -> int:
    if work.training.logit_bytes:
        return work.training.logit_bytes
    if work.training.data_parallel not in PYTORCH_FSDP:
        return MEGATRON_LOGIT_BYTES
    return EAGER_LOGIT_BYTES if work.p.tp == 1 else SPLIT_LOGIT_BYTES
