"""Parameters of a transformer and the FLOPs of a training step.

Parameters: attention (with grouped queries, or latent: DeepSeek-V2, 2024, 2.1), two or
three feed-forward matrices, router, experts, two norms a layer, embeddings. No biases.

FLOPs: every parameter that a token is multiplied by costs 2 forward and 4 backward
(Kaplan et al. 2020); scores and the sum over values cost as much as two more matrices of
`sequence` columns a head. That is the 6 P + 12 L h s of the literature (Narayanan et
al. 2021, eq. 3 without recomputation), in which a causal mask leaves half of the second
term. *Here the mask counts: half*. The input embedding is looked up, not multiplied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement.workload.training import ModelShape

if TYPE_CHECKING:
    from placement.workload.request import Request


def attention_parameters(model: ModelShape) -> int:
    """Count the parameters of the projections of one layer's attention."""
    h, heads, width = model.hidden, model.heads, model.head_width
    if not model.kv_rank:
        return h * (2 * heads * width + 2 * model.kv_heads * width)
    queries = heads * (width + model.rope_dim)
    query = model.query_rank * (h + queries) if model.query_rank else h * queries
    latent = h * (model.kv_rank + model.rope_dim) + model.kv_rank * 2 * heads * width
    return query + latent + heads * width * h


def ffn_parameters(model: ModelShape, width: int) -> int:
    """Count the parameters of one feed-forward layer, or of one expert."""
    return (3 if model.gated else 2) * model.hidden * width


def layer_parameters(model: ModelShape, *, has_experts: bool) -> int:
    """Count the parameters of one layer without its routed experts."""
    attention = attention_parameters(model)
    if not has_experts:
        return attention + ffn_parameters(model, model.ffn)
    shared = model.shared_experts * ffn_parameters(model, model.expert_width)
    return attention + model.hidden * model.experts + shared


def expert_parameters(model: ModelShape) -> int:
    """Count the parameters of all routed experts of all layers, which expert parallelism spreads
    over ranks."""
    return model.expert_layers * model.experts * ffn_parameters(model, model.expert_width)


def dense_parameters(model: ModelShape) -> int:
    """Count the parameters that are not of routed experts, all of which every rank of ep holds."""
    return multiplied_parameters(model, 0) + _norms(model) + _looked_up(model)


def parameter_count(model: ModelShape) -> int:
    """Return the number of parameters."""
    return dense_parameters(model) + expert_parameters(model)


def active_parameter_count(model: ModelShape) -> int:
    """Count the parameters that one token is multiplied with: of the routed experts, only those it
    is sent to."""
    return multiplied_parameters(model, model.experts_per_token) + _norms(model) + _looked_up(model)


def training_flops(request: Request, *, causal: bool = True) -> int:
    """Return the model FLOPs of one step of the whole job: forward and backward.

    Recomputation is not counted. `causal`: attend to half of the sequence on average; False counts
    all of it, as Narayanan et al. and PaLM do. 0 without a model and batch.
    """
    model, batch = request.model, request.batch
    if model is None or batch is None:
        return 0
    tokens = batch.global_sequences * model.sequence
    seen = model.sequence // 2 if causal else model.sequence
    # Scores are as wide as a head with its position columns, the sum as wide as a value.
    attended = model.layers * model.heads * (2 * model.head_width + model.rope_dim) * seen
    return 6 * tokens * (multiplied_parameters(model, model.experts_per_token) + attended)


def multiplied_parameters(model: ModelShape, routed: int) -> int:
    """Count the parameters of all matrices, with `routed` of the experts of each layer."""
    experts = routed * ffn_parameters(model, model.expert_width)
    dense_layers = model.layers - model.expert_layers
    return (
        dense_layers * layer_parameters(model, has_experts=False)
        + model.expert_layers * (layer_parameters(model, has_experts=True) + experts)
        + model.vocab * model.hidden
    )


def _norms(model: ModelShape) -> int:
    return (2 * model.layers + 1) * model.hidden


def _looked_up(model: ModelShape) -> int:
    """The input embedding, unless the output layer's matrix serves for both."""
    return 0 if model.tied_embeddings else model.vocab * model.hidden
