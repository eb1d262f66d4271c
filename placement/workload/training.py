"""What is trained and how: the model's shape, the batch, and how state and work are split.

Every value is frozen and hashable; what follows from them is in flops.py (parameters,
FLOPs), volumes.py (bytes on the wire) and memory.py (bytes on a GPU).
"""

from __future__ import annotations

from enum import StrEnum

from muster.structs import struct
from placement.errors import BadInput

DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
DISPATCH_BYTES = {**DTYPE_BYTES, "fp8": 1}
# By precision of the matrices: what is below 16 bits is cast for each product alone, and kept and
# sent in bf16 (NVIDIA Transformer Engine; TorchTitan's float8 and mx converters).
MODEL_BYTES = {**DTYPE_BYTES, "fp8": 2, "mxfp8": 2, "nvfp4": 2, "int8": 2}


class DataParallel(StrEnum):
    """The scheme by which data-parallel ranks share state out, and so what they exchange.

    FSDP is Llama 3's: parameters gathered once a step and kept, gradients scattered.
    ZERO3 gathers once forward and once more backward. DDP sums gradients, shares nothing.
    """

    FSDP = "fsdp"
    DDP = "ddp"
    ZERO1 = "zero1"
    ZERO2 = "zero2"
    ZERO3 = "zero3"


class ContextParallel(StrEnum):
    """How ranks that split a sequence see each other's keys and values."""

    ALLGATHER = "allgather"
    RING = "ring"
    ULYSSES = "ulysses"


class Recompute(StrEnum):
    """The part of the forward pass that backward computes again instead of keeping it."""

    SELECTIVE = "selective"
    NONE = "none"
    FULL = "full"


class Trained(StrEnum):
    """The parameters that have gradients: all, or low-rank adapters beside frozen matrices."""

    FULL = "full"
    LORA = "lora"


class PipelineSchedule(StrEnum):
    """The order in which a pipeline takes its micro-batches; chunks interleave any of them.

    ZERO_BUBBLE fills idle time with gradients of weights (Qi et al. 2024, ZB-H1). DUALPIPE feeds
    the pipeline from both ends (DeepSeek-V3, 2024, 3.2.1).
    """

    ONE_F_ONE_B = "1f1b"
    ZERO_BUBBLE = "zero_bubble"
    DUALPIPE = "dualpipe"


class Sync(StrEnum):
    """How often sharded state is exchanged."""

    STEP = "step"
    MICRO_BATCH = "micro_batch"


@struct(frozen=True, slots=True)
class ModelShape:
    """A transformer, dense or with experts.

    `dtype`: in which its matrices are multiplied.

    `head_dim` 0: hidden / heads. `gated`: three matrices in a feed-forward layer
    (SwiGLU), else two. With `kv_rank` attention is latent (MLA: keys and values from a
    vector of that width, queries from one of `query_rank` unless 0, `rope_dim` more
    columns for the position). `experts` 0: dense; else each token passes
    `experts_per_token` of them, of width `expert_ffn` (0: `ffn`), and all of the
    `shared_experts`, in every layer but the first `dense_layers`.
    """

    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocab: int
    sequence: int
    dtype: str = "bf16"
    head_dim: int = 0
    gated: bool = True
    tied_embeddings: bool = False
    query_rank: int = 0
    kv_rank: int = 0
    rope_dim: int = 0
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    shared_experts: int = 0
    dense_layers: int = 0

    def __post_init__(self) -> None:
        _at_least(1, self, "model", "layers hidden ffn heads kv_heads vocab sequence")
        _at_least(0, self, "model", "head_dim query_rank kv_rank rope_dim experts")
        _at_least(0, self, "model", "experts_per_token expert_ffn shared_experts dense_layers")
        if not self.head_dim and self.hidden % self.heads:
            raise BadInput("model.heads", f"{self.heads} does not divide hidden {self.hidden}")
        _one_of(self.dtype, MODEL_BYTES, "model.dtype")
        if not self.kv_rank:
            for name in ("query_rank", "rope_dim"):
                if getattr(self, name):
                    raise BadInput(f"model.{name}", "needs kv_rank (latent attention)")
        self._check_experts()

    def _check_experts(self) -> None:
        if not self.experts:
            for name in ("experts_per_token", "expert_ffn", "shared_experts", "dense_layers"):
                if getattr(self, name):
                    raise BadInput(f"model.{name}", "needs experts: the model is dense")
            return
        if not 1 <= self.experts_per_token <= self.experts:
            raise BadInput(
                "model.experts_per_token",
                f"must be 1 to the {self.experts} experts, is {self.experts_per_token}",
            )
        if self.dense_layers >= self.layers:
            raise BadInput(
                "model.dense_layers", f"leaves none of the {self.layers} layers to the experts"
            )

    @property
    def head_width(self) -> int:
        return self.head_dim or self.hidden // self.heads

    @property
    def attention_width(self) -> int:
        """Columns of all query heads, which are those of the attention's output."""
        return self.heads * self.head_width

    @property
    def kv_width(self) -> int:
        """Columns of the keys and values of a token together."""
        return self.kv_heads * (2 * self.head_width + self.rope_dim)

    @property
    def expert_width(self) -> int:
        return self.expert_ffn or self.ffn

    @property
    def expert_layers(self) -> int:
        return self.layers - self.dense_layers if self.experts else 0


@struct(frozen=True, slots=True)
class Batch:
    """Sequences per step over the whole job, and per micro-batch on one replica.

    `virtual_stages`: model chunks per pipeline rank (interleaved schedule), 1 = plain 1F1B.
    """

    global_sequences: int
    micro_sequences: int = 1
    virtual_stages: int = 1
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B

    def __post_init__(self) -> None:
        _at_least(1, self, "batch", "global_sequences micro_sequences virtual_stages")


@struct(frozen=True, slots=True)
class Training:
    """How the model's state and work are split over the axes; the defaults are Llama 3's.

    `shard_group`: ranks along dp that share one copy of what is sharded, the copies
    being replicas of each other (HSDP); 0 = all of dp. `sync`: how often gradients are
    reduced, and with ZERO3 parameters gathered. `expert_tp`: ranks that an expert is cut
    over: 0 or tp = all of tp, 1 = whole experts spread over tp as well. A token is sent to
    at most `expert_hosts_per_token` hosts (0: to each of its experts by itself), in
    `dispatch_dtype` ("": the model's). `dropout`: masks are kept for backward.
    `gpu_memory_gb` (2^30 bytes): what a GPU has; 0 = not stated, and nothing is refused.
    `logit_bytes`: held of each logit by the loss; 0 = as the framework's own loss does.
    `trained`: with lora, gradients and optimizer of the adapters are counted as nothing.
    """

    data_parallel: DataParallel = DataParallel.FSDP
    shard_group: int = 0
    sync: Sync = Sync.STEP
    gradient_dtype: str = "fp32"
    sequence_parallel: bool = True
    context_parallel: ContextParallel = ContextParallel.ALLGATHER
    recompute: Recompute = Recompute.SELECTIVE
    dropout: bool = False
    expert_tp: int = 0
    expert_hosts_per_token: int = 0
    dispatch_dtype: str = ""
    gpu_memory_gb: int = 0
    trained: Trained = Trained.FULL
    logit_bytes: int = 0

    def __post_init__(self) -> None:
        _at_least(0, self, "training", "shard_group expert_tp expert_hosts_per_token")
        _at_least(0, self, "training", "gpu_memory_gb logit_bytes")
        _one_of(self.gradient_dtype, DTYPE_BYTES, "training.gradient_dtype")
        if self.dispatch_dtype:
            _one_of(self.dispatch_dtype, DISPATCH_BYTES, "training.dispatch_dtype")
        if self.shard_group and self.data_parallel is DataParallel.DDP:
            raise BadInput("training.shard_group", "ddp shards nothing: leave it out or use fsdp")

    @property
    def gradient_bytes(self) -> int:
        return DTYPE_BYTES[self.gradient_dtype]

    def shards(self, dp: int) -> int:
        """Ranks along dp that share one copy."""
        return self.shard_group or dp


def _at_least(least: int, value: ModelShape | Batch | Training, section: str, names: str) -> None:
    for name in names.split():
        if getattr(value, name) < least:
            bound = "must be at least 1" if least else "must not be negative"
            raise BadInput(f"{section}.{name}", bound)


def _one_of(dtype: str, known: dict[str, int], field: str) -> None:
    if dtype not in known:
        *most, last = known
        raise BadInput(field, f"must be {', '.join(most)} or {last}, not {dtype!r}")


AS_LLAMA3 = Training()
