"""Which parallelism no framework runs, and which some refuse.

Sources: the assertions of Megatron-LM (`megatron/training/arguments.py`, and
`megatron/core/transformer/transformer_config.py`) and of TorchTitan
(`torchtitan/distributed/pipeline_parallel.py`), in their words where they have some.
"""

from __future__ import annotations

from placement.errors import BadInput
from placement.workload.replicas import check_batch
from placement.workload.request import Request
from placement.workload.volumes import check_axes


def check_parallelism(request: Request) -> None:
    """Refuse a parallelism that no rank could compute: stages without a layer, ranks without a
    head. The embedding and the output head may stand for a layer each (Llama 3, section 3.3.2).

    Raises: BadInput with the axis.
    """
    model, p = request.model, request.parallelism
    if model is None:
        return
    virtual = request.batch.virtual_stages if request.batch else 1
    if p.pp * virtual > model.layers + 2:
        chunks = f" x {virtual} virtual stages" if virtual > 1 else ""
        raise BadInput(
            "parallelism.pp",
            f"{p.pp}{chunks} of a model of {model.layers} layers: some would have no layer, which"
            " Megatron-LM and TorchTitan refuse",
        )
    if p.tp > model.heads:
        raise BadInput(
            "parallelism.tp",
            f"{p.tp} of a model of {model.heads} heads: some ranks would have no head (Megatron-LM:"
            " num_attention_heads must be a multiple of tensor_model_parallel_size)",
        )


def is_accepted(request: Request) -> bool:
    """Whether Megatron-LM and TorchTitan run the layout of a model as it is: nothing to note, even
    stages, whole rounds of the micro-batches that interleave, and a context that halves over cp.
    """
    model, batch, p = request.model, request.batch, request.parallelism
    if model is None or batch is None:
        return False
    try:
        check_parallelism(request)
        check_batch(request)
        check_axes(request, model)
    except BadInput:
        return False
    if framework_notes(request) or model.sequence % (2 * p.cp if p.cp > 1 else 1):
        return False
    chunks = p.pp * batch.virtual_stages
    if chunks > 1 and model.layers % chunks and (model.layers + 2) % chunks:
        return False
    micro_batches = batch.global_sequences // (p.dp * p.ep * batch.micro_sequences)
    return batch.virtual_stages == 1 or not micro_batches % p.pp


def framework_notes(request: Request) -> tuple[str, ...]:
    """Return what some frameworks refuse and the formulas take on average, a sentence each."""
    model, p = request.model, request.parallelism
    if model is None:
        return ()
    notes = []
    if model.heads % p.tp:
        notes.append(
            f"tp {p.tp} does not divide the model's {model.heads} heads: frameworks may refuse the"
            " job (Megatron-LM: num_attention_heads must be a multiple of"
            " tensor_model_parallel_size)"
        )
    elif not model.kv_rank and model.kv_heads % p.tp:
        wide = "is more than" if p.tp > model.kv_heads else "does not divide"
        notes.append(
            f"tp {p.tp} {wide} the model's {model.kv_heads} key-value heads: ranks keep copies of"
            " some, or the framework refuses the job (Megatron-LM: num_query_groups must be a"
            " multiple of tensor_model_parallel_size)"
        )
    if p.pp == 1 and request.batch is not None and request.batch.virtual_stages > 1:
        notes.append(
            f"{request.batch.virtual_stages} virtual stages need pp above 1: Megatron-LM refuses"
            " an interleaved schedule without pipeline parallelism"
        )
    return tuple(notes)
