"""Bytes per step on one edge of each axis, from the model's shape and its training.

The formulas in B = beta b (s/c) h, the activations of one micro-batch on one context shard,
with their sources and worked values are in docs/traffic.md, "Bytes on one edge".

Data-parallel state is exchanged over cp x ep x dp, experts over cp x dp alone. Such a
group is run through axis by axis, the innermost first: cp moves (c-1)/c of it, ep (e-1)/e
of what is left to a rank, a c-th, and so on; the shares add up to (n-1)/n for n = c e d.
"""

from __future__ import annotations

from fractions import Fraction

from muster.structs import struct
from placement.errors import BadInput
from placement.workload.flops import dense_parameters, expert_parameters
from placement.workload.parallelism import Parallelism
from placement.workload.replicas import check_batch
from placement.workload.request import Request
from placement.workload.training import (
    DISPATCH_BYTES,
    MODEL_BYTES,
    Batch,
    ContextParallel,
    DataParallel,
    ModelShape,
    Recompute,
    Sync,
    Trained,
    Training,
)

REPLICATE = "dp_replicate"  # the outer part of dp when a shard group is smaller than dp

# Parts in which a chunk's layers are gathered and reduced where no model says how many there are.
LAYERS_OF_CHUNK = 8


@struct(frozen=True, slots=True)
class Work:
    """A job in the units of the formulas of traffic.

    `micro_batches`: per replica and step. `tokens`: of one micro-batch on one context shard.
    `beta`: bytes of one activation or parameter. `passes`: times that a forward exchange happens, 1
    or 2 with full recomputation.
    """

    model: ModelShape
    batch: Batch
    p: Parallelism
    training: Training
    micro_batches: int
    tokens: Fraction

    @property
    def beta(self) -> int:
        return MODEL_BYTES[self.model.dtype]

    @property
    def passes(self) -> int:
        return 2 if self.training.recompute is Recompute.FULL else 1

    @property
    def has_adapters(self) -> bool:
        """Whether the matrices are frozen, so that they are neither reduced nor gathered after a
        step."""
        return self.training.trained is Trained.LORA

    @property
    def activations(self) -> Fraction:
        """Bytes between two layers, of one micro-batch (B in the formulas)."""
        return self.beta * self.tokens * self.model.hidden

    @property
    def is_expert_cut(self) -> bool:
        """Whether each expert is split over the ranks of tp; else whole experts are spread over
        them."""
        return self.training.expert_tp in (0, self.p.tp)

    def over_stages(self, layers: int) -> Fraction:
        """Return the average number of layers of a stage, times micro-batches."""
        return Fraction(layers * self.micro_batches, self.p.pp)


def work_of(request: Request) -> Work | None:
    """Return the work of a request; None without a model. Raises: BadInput when the model has no
    batch, the batch does not divide over the replicas, or the training does not suit the axes."""
    if request.model is None:
        return None
    if request.batch is None:
        raise BadInput("batch", "is required with a model: bytes per step depend on it")
    check_axes(request, request.model)
    model, batch, p = request.model, request.batch, request.parallelism
    check_batch(request)
    micro_batches = batch.global_sequences // (p.dp * p.ep * batch.micro_sequences)
    tokens = batch.micro_sequences * Fraction(model.sequence, p.cp)
    return Work(model, batch, p, request.training, micro_batches, tokens)


def check_axes(request: Request, model: ModelShape) -> None:
    """Refuse experts, heads or shard groups that do not divide over the axes. Raises: BadInput."""
    p, training = request.parallelism, request.training
    given = {axis for axis, _ in request.traffic}
    if p.ep > 1 and not model.experts and not {"ep", "dp"} <= given:
        raise BadInput(
            "model", "is dense and has no experts: give the bytes of ep and dp in traffic"
        )
    if training.expert_tp not in (0, 1, p.tp):
        raise BadInput("training.expert_tp", f"must be 1 or tp {p.tp}, is {training.expert_tp}")
    ranks = p.ep * (p.tp if training.expert_tp == 1 else 1)
    if model.experts % ranks and "ep" not in given:
        raise BadInput("model.experts", f"{model.experts} do not divide over {ranks} ranks")
    if p.dp % training.shards(p.dp):
        raise BadInput("training.shard_group", f"{training.shard_group} does not divide dp {p.dp}")
    if training.context_parallel is ContextParallel.ULYSSES and model.heads % (p.tp * p.cp):
        raise BadInput(
            "training.context_parallel",
            f"ulysses spreads heads: {model.heads} do not divide over tp {p.tp} x cp {p.cp}",
        )


def edge_volumes(request: Request) -> dict[str, int]:
    """Return the bytes per step by axis: on a ring or chain edge, or on one ordered pair.

    `dp_replicate` is there when dp is more than one shard group. Empty without a model.

    Raises: BadInput as `work_of`.
    """
    work = work_of(request)
    if work is None:
        return {}
    weights = _weights(work)
    volumes = {
        "tp": _tensor(work),
        "cp": _context(work) + weights["cp"],
        "ep": _expert(work) + weights["ep"],
        "pp": _pipeline(work),
        "dp": weights["dp"],
        REPLICATE: weights[REPLICATE],
    }
    for axis in ("cp", "ep"):
        size = work.p.size(axis)
        if size > 1 and is_all_to_all(axis, work.training):
            volumes[axis] /= size - 1
    return {axis: int(volume) for axis, volume in volumes.items()}


def axis_of(name: str) -> str:
    """Return the axis of which this is one round: `dp` of `dp/4`."""
    return name.partition("/")[0]


def state_share(request: Request, axis: str) -> Fraction:
    """Return the share of an axis' bytes that is parameters and gradients, exchanged once a step.

    The rest is activations, exchanged for each micro-batch. Bytes given by hand count as
    state on dp and as activations elsewhere.
    """
    work, axis = work_of(request), axis_of(axis)
    if axis in ("dp", REPLICATE):
        return Fraction(1)
    if work is None or axis not in ("cp", "ep") or axis in dict(request.traffic):
        return Fraction(0)
    state = _weights(work)[axis]
    activations = _context(work) if axis == "cp" else _expert(work)
    return state / (state + activations) if state else Fraction(0)


def micro_batches(request: Request) -> int:
    """Return the micro-batches of a replica in a step; 1 where the request gives no batch."""
    batch, work = request.batch, work_of(request)
    if batch is None or work is not None:
        return work.micro_batches if work else 1
    replicas = request.parallelism.dp * request.parallelism.ep * batch.micro_sequences
    return max(1, batch.global_sequences // replicas)


def passes_per_step(request: Request, axis: str) -> int:
    """Return how often in a step the data of each rank of a group are passed on to the others.

    Of a pipeline: messages over one hop, there and back. State is exchanged layer by layer,
    activations for each layer and micro-batch: by tensor parallelism twice in a layer, each time to
    all and back; by experts and over heads there and back.
    """
    role = next((r for r in request.roles if axis.startswith(f"{r.name}.")), None)
    if request.roles:  # what roles send each other goes at once
        return passes_per_step(role.request, axis.removeprefix(f"{role.name}.")) if role else 1
    work, training, micro = work_of(request), request.training, micro_batches(request)
    axis = axis_of(axis)
    chunks = request.batch.virtual_stages if request.batch else 1
    if axis == "pp":
        return 2 * chunks * micro
    layers = -(-work.model.layers // work.p.pp) if work else chunks * LAYERS_OF_CHUNK
    times = micro if training.sync is Sync.MICRO_BATCH else 1
    if axis == REPLICATE or (axis == "dp" and training.data_parallel is DataParallel.DDP):
        return 2 * layers * times
    if axis == "dp":
        is_zero3 = training.data_parallel is DataParallel.ZERO3
        return layers * ((2 * times if is_zero3 else 1) + times)
    there = 4 if axis == "tp" else 2 if is_all_to_all(axis, training) else 1
    return layers * micro * there * (1 + (work.passes if work else 1))


def is_all_to_all(axis: str, training: Training) -> bool:
    """Return whether every ordered pair of a group exchanges bytes."""
    return axis == "ep" or (axis == "cp" and training.context_parallel is ContextParallel.ULYSSES)


# --- bytes sent by one rank ------------------------------------------------------


def _tensor(work: Work) -> Fraction:
    """Two blocks a layer, attention and feed-forward, with the same exchanges each."""
    model, t = work.model, work.p.tp
    again = 6 if work.training.sequence_parallel else 4
    block = Fraction(4 * work.passes + again, 2) * _foreign_share(t) * work.activations
    dense = work.over_stages(model.layers - model.expert_layers)
    expert = work.over_stages(model.expert_layers)
    shared = 1 if model.shared_experts else 0
    if work.is_expert_cut:
        return block * (2 * dense + (1 + shared + model.experts_per_token) * expert)
    inside = _exchanged(work, model.experts_per_token) / work.p.ep
    return block * (2 * dense + (1 + shared) * expert) + _foreign_share(t) * inside


def _context(work: Work) -> Fraction:
    model, cp = work.model, work.p.cp
    per_layer = work.over_stages(model.layers) * _foreign_share(cp)
    if work.training.context_parallel is ContextParallel.ULYSSES:
        heads = Fraction(2 * model.attention_width + model.kv_width, work.p.tp)
        return per_layer * (work.passes + 1) * work.beta * work.tokens * heads
    gathered = work.beta * work.tokens * cp * Fraction(model.kv_width, work.p.tp)
    back = 2 if work.training.context_parallel is ContextParallel.RING else 1
    return per_layer * (work.passes + back) * gathered


def _pipeline(work: Work) -> Fraction:
    sharers = work.p.tp if work.training.sequence_parallel else 1
    return 2 * work.micro_batches * work.batch.virtual_stages * work.activations / sharers


def _expert(work: Work) -> Fraction:
    """Copies of a token that leave for a host go there once."""
    copies = work.model.experts_per_token
    if work.training.expert_hosts_per_token:
        copies = min(copies, work.training.expert_hosts_per_token)
    return _foreign_share(work.p.ep) * _exchanged(work, copies)


def _exchanged(work: Work, copies: int) -> Fraction:
    """Dispatch and combine of all tokens of a rank, its own share included."""
    sent = work.training.dispatch_dtype
    dispatch = DISPATCH_BYTES[sent] if sent else work.beta
    elements = copies * work.tokens / work.p.tp * work.model.hidden
    there_and_back = (work.passes + 1) * (dispatch + work.beta) * elements
    return there_and_back * work.over_stages(work.model.expert_layers)


def bytes_per_parameter(work: Work) -> int:
    """Return the bytes sent for one parameter in a group of any size, without the factor
    (n-1)/n."""
    times = work.micro_batches if work.training.sync is Sync.MICRO_BATCH else 1
    reduced = 0 if work.has_adapters else work.training.gradient_bytes * times
    match work.training.data_parallel:
        case DataParallel.DDP:
            return 2 * reduced
        case DataParallel.ZERO3:
            return 2 * work.beta * times + reduced
    return 0 if work.has_adapters else work.beta + reduced


def _weights(work: Work) -> dict[str, Fraction]:
    p, each = work.p, bytes_per_parameter(work)
    dense = Fraction(dense_parameters(work.model), p.tp * p.pp)
    expert = Fraction(expert_parameters(work.model), p.tp * p.pp * p.ep)
    shards = work.training.shards(p.dp)
    left = (dense / p.ep + expert) / p.cp  # to a rank, once cp and ep are through
    summed = 0 if work.has_adapters else 2 * work.training.gradient_bytes
    if work.training.sync is Sync.MICRO_BATCH:
        summed *= work.micro_batches
    return {
        "cp": _foreign_share(p.cp) * each * (dense + expert),
        "ep": _foreign_share(p.ep) * each * dense / p.cp,
        "dp": _foreign_share(shards) * each * left,
        REPLICATE: _foreign_share(p.dp // shards) * summed * left / shards,
    }


def _foreign_share(n: int) -> Fraction:
    """(n-1)/n, the share of a payload that is not one's own."""
    return Fraction(n - 1, n)
