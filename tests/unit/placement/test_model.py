"""Parameters and FLOPs, against published counts and the formulas they come from."""

from dataclasses import replace

import pytest

from placement.errors import BadInput
from placement.workload.flops import (
    active_parameter_count,
    dense_parameters,
    expert_parameters,
    parameter_count,
    training_flops,
)
from placement.workload.request import Request
from placement.workload.training import Batch, ModelShape
from tests.build import DEEPSEEK_V3, LLAMA3, MIXTRAL, llama3, request, training


def test_a_dense_model_is_active_as_a_whole() -> None:
    assert expert_parameters(LLAMA3) == 0
    assert active_parameter_count(LLAMA3) == dense_parameters(LLAMA3) == parameter_count(LLAMA3)


def test_one_expert_for_everyone_is_a_dense_model_with_a_router() -> None:
    one = replace(LLAMA3, experts=1, experts_per_token=1)
    router = LLAMA3.layers * LLAMA3.hidden
    assert parameter_count(one) == active_parameter_count(one) == parameter_count(LLAMA3) + router


def test_latent_attention_is_as_large_as_its_report_says() -> None:
    """DeepSeek-V3: 187.1M parameters a layer, against 470M for as many full heads."""
    without = replace(DEEPSEEK_V3, layers=DEEPSEEK_V3.layers - 1)
    layer = dense_parameters(DEEPSEEK_V3) - dense_parameters(without)
    shared, router, norms = 3 * 7_168 * 2_048, 7_168 * 256, 2 * 7_168
    assert layer - shared - router - norms == 187_105_280


def test_flops_are_six_a_parameter_and_the_scores() -> None:
    """6 P + 12 L h s a token with all of the sequence; a causal mask halves the last."""
    req = llama3(2)
    tokens = 2_048 * 8_192
    looked_up, norms = 128_256 * 16_384, 253 * 16_384
    multiplied = 6 * (parameter_count(LLAMA3) - looked_up - norms)
    scores = 12 * 126 * 16_384 * 8_192
    assert training_flops(req, causal=False) == tokens * (multiplied + scores)
    assert training_flops(req) == tokens * (multiplied + scores // 2)


def test_recomputation_is_no_work_of_the_model() -> None:
    full = llama3(2, training=training(recompute="full"))
    assert training_flops(full) == training_flops(llama3(2))


def test_experts_cost_what_a_token_passes() -> None:
    few, many = (
        Request(request().parallelism, model=replace(MIXTRAL, experts=n), batch=Batch(8))
        for n in (8, 64)
    )
    router = 6 * 8 * 4_096 * 32 * 4_096 * (64 - 8)
    assert training_flops(many) - training_flops(few) == router


def test_without_a_model_there_is_no_work_to_count() -> None:
    assert training_flops(request(dp=4)) == 0


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"experts_per_token": 2}, "model.experts_per_token", "needs experts"),
        ({"shared_experts": 1}, "model.shared_experts", "needs experts"),
        ({"experts": 8}, "model.experts_per_token", "must be 1 to the 8 experts, is 0"),
        ({"experts": 8, "experts_per_token": 9}, "model.experts_per_token", "is 9"),
        (
            {"experts": 8, "experts_per_token": 1, "dense_layers": 126},
            "model.dense_layers",
            "leaves none of the 126 layers",
        ),
        ({"rope_dim": 64}, "model.rope_dim", "needs kv_rank"),
        ({"head_dim": -1}, "model.head_dim", "must not be negative"),
        ({"hidden": 100}, "model.heads", "128 does not divide hidden 100"),
    ],
)
def test_shapes_that_are_no_model(changes: dict[str, int], field: str, says: str) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        replace(LLAMA3, **changes)
    assert caught.value.field == field


def test_heads_of_their_own_width_need_not_divide_the_hidden_size() -> None:
    shape = ModelShape(2, 100, 400, 3, 1, 1_000, 128, head_dim=64)
    assert (shape.attention_width, shape.kv_width) == (192, 128)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"shard_group": -1}, "training.shard_group"),
        ({"shard_group": 8, "data_parallel": "ddp"}, "training.shard_group"),
        ({"gradient_dtype": "fp8"}, "training.gradient_dtype"),
        ({"dispatch_dtype": "int4"}, "training.dispatch_dtype"),
        ({"gpu_memory_gb": -80}, "training.gpu_memory_gb"),
    ],
)
def test_training_that_cannot_be(changes: dict[str, object], field: str) -> None:
    with pytest.raises(BadInput) as caught:
        training(**changes)
    assert caught.value.field == field
