"""Parameters, FLOPs and bytes on a GPU: against published counts, Korthikanti et al. 2022 and what
is known of real runs."""

from dataclasses import replace
from typing import Any

import pytest

from placement.errors import BadInput
from placement.placer import impossible
from placement.workload.flops import (
    active_parameter_count,
    dense_parameters,
    expert_parameters,
    parameter_count,
    training_flops,
)
from placement.workload.memory import (
    GIB,
    MemoryUse,
    fits,
    memory,
    memory_note,
    refuse_too_large,
)
from placement.workload.request import Request
from placement.workload.training import Batch, ModelShape
from tests.build import (
    DEEPSEEK_V3,
    GPT3,
    LLAMA3,
    MIXTRAL,
    everything,
    fabric,
    llama3,
    place_checked,
    request,
    training,
)

SBH = 2_048 * 12_288
THIN = replace(GPT3, vocab=1)


def use(**given: Any) -> MemoryUse:
    found = memory(request(**given))
    assert found is not None
    return found


def layer(tp: int = 1, **changes: Any) -> float:
    """Bytes that one layer of GPT-3 keeps of one micro-batch, in units of s b h."""
    how = training(dropout=True, **changes)
    one, two = (
        use(tp=tp, model=replace(THIN, layers=n), batch=Batch(1), training=how).activations
        for n in (1, 2)
    )
    return (two - one) / SBH


def test_activations_of_a_layer() -> None:
    # Equations 1 to 6 but for scores, which fused attention never keeps: 34 s b h.
    assert layer(recompute="none") == 34
    assert layer(tp=8, recompute="none", sequence_parallel=False) == 10 + 24 / 8
    assert layer(tp=8, recompute="none") == 34 / 8
    assert layer(tp=8, data_parallel="zero1") == 34 / 8
    assert layer(tp=8, recompute="full") == 2 / 8
    assert layer(tp=8, recompute="full", sequence_parallel=False) == 2
    # Without dropout there are no masks.
    how = training(recompute="none")
    one, two = (
        use(model=replace(THIN, layers=n), batch=Batch(1), training=how).activations for n in (1, 2)
    )
    assert (two - one) / SBH == 34 - 2


def test_checkpoints_keep_every_second_matrix_and_context_shards_their_part() -> None:
    # Of a token: the input, the last matrix, queries, attention, values and a gate.
    shape = replace(LLAMA3, layers=1, vocab=1, sequence=1)
    kept = use(model=shape, batch=Batch(1), training=training(data_parallel="zero3")).activations
    assert kept == 2 * (4 * 16_384 + 8 * 128 + 53_248)
    # A context shard keeps its part.
    whole, shard = (
        use(cp=cp, model=replace(THIN, layers=2), batch=Batch(1)).activations for cp in (1, 4)
    )
    assert shard == whole / 4


def state(strategy: str, **given: Any) -> MemoryUse:
    how = training(data_parallel=strategy, gradient_dtype="bf16", **given.pop("how", {}))
    sizes = {"dp": 8, "batch": Batch(8), **given}
    return use(model=replace(LLAMA3, layers=2), training=how, **sizes)


def parameters(ranks: int = 1) -> float:
    return state("ddp", dp=1, batch=Batch(1)).parameters / 2 / ranks


def test_each_stage_of_zero_shares_out_more_of_sixteen_bytes_a_parameter() -> None:
    # 2 for it, 2 for its gradient, 12 for Adam (Rajbhandari et al. 2020, 3.1).
    kept = state("ddp")
    total = kept.parameters + kept.gradients + kept.optimizer
    assert total == 16 * parameters()
    # 2 + 2 + 12/n, 2 + (2 + 12)/n, 16/n and the layers at work (figure 1).
    n = parameters()
    one, two, three = (state(f"zero{stage}") for stage in (1, 2, 3))
    assert (one.parameters, one.gradients) == (2 * n, 2 * n)
    assert one.optimizer == pytest.approx(12 * n / 8, abs=1)
    assert (two.parameters, two.gradients) == (2 * n, pytest.approx(2 * n / 8, abs=1))
    assert two.optimizer == three.optimizer == one.optimizer
    assert three.parameters == pytest.approx(2 * n / 8, abs=1)
    assert three.working > two.working
    # Gradients wait whole for the last micro-batch.
    waiting = state("fsdp", batch=Batch(32))
    at_once = state("fsdp", batch=Batch(32), how={"sync": "micro_batch"})
    assert waiting.gradients == 2 * parameters()
    assert at_once.gradients == pytest.approx(2 * parameters(8), abs=1)
    # A shard group keeps more than all of dp.
    halves = state("zero1", how={"shard_group": 4})
    assert halves.optimizer == pytest.approx(2 * state("zero1").optimizer, abs=1)


def test_experts_are_divided_over_ep_and_shared_over_dp() -> None:
    shape = replace(DEEPSEEK_V3, layers=8)
    few, many = (
        use(ep=ep, dp=8 // ep, model=shape, batch=Batch(8), training=training()) for ep in (2, 8)
    )
    spared = expert_parameters(shape) * (1 / 2 - 1 / 8)
    assert few.parameters - many.parameters == 2 * spared
    assert many.optimizer == pytest.approx(few.optimizer, abs=2)


def test_first_stages_hold_the_most_micro_batches_and_more_with_chunks() -> None:
    # Stage 1 of Llama 3: 8 layers and 15 in flight, while stage 0 has 7 and 16.
    found = memory(llama3(2))
    assert found is not None
    assert found.stage == 1
    few = memory(llama3(2, batch=Batch(256)))
    assert few is not None
    assert few.activations < found.activations / 5
    # A factor of 1 + (p-1)/(p v) on the first stage (Korthikanti et al. 2022, 4.2.3).
    shape = replace(LLAMA3, layers=128, vocab=1, ffn=10**7)  # what chunks send on hardly counts
    sizes = {"pp": 16, "model": shape}
    plain = use(batch=Batch(64), **sizes).activations
    interleaved = use(batch=Batch(64, virtual_stages=8), **sizes).activations
    assert interleaved / plain == pytest.approx(1 + 15 / (16 * 8), rel=2e-3)


def test_llama_3_fits_the_gpus_it_ran_on_and_what_hardly_fits_does_not() -> None:
    # "We could pre-train on sequences of 8K tokens without activation checkpointing".
    for row in (1, 2, 3):
        assert memory_note(llama3(row)) is None
        found = memory(llama3(row))
        assert found is not None
        assert found.total < 80 * GIB
    # What hardly fits does not fit.
    found = memory(llama3(2))
    assert found is not None
    tight = replace(found, context=int(79.7 * GIB) - found.reserved)
    assert not fits(tight, 80)
    assert fits(replace(tight, context=tight.context - 4 * GIB), 80)


def test_without_a_model_nothing_is_known() -> None:
    assert memory(request(dp=4)) is None
    assert memory_note(request(dp=4, training=training(gpu_memory_gb=1))) is None
    refuse_too_large(request(dp=4, training=training(gpu_memory_gb=1)))


LARGE: dict[str, Any] = {"tp": 8, "dp": 4, "model": LLAMA3, "batch": Batch(4)}


def test_a_usual_gpu_that_is_too_small_is_worth_a_note() -> None:
    req = request(**LARGE)
    f = fabric()
    answer = place_checked(f, everything(f), req)
    [note] = [note for note in answer.notes if "GiB" in note]
    assert note == memory_note(req)
    assert str(memory(req)) in note
    assert "more than 96 % of the 80 GiB of a common GPU" in note


def test_a_stated_gpu_that_is_too_small_refuses_the_job() -> None:
    req = request(**LARGE, training=training(gpu_memory_gb=141))
    with pytest.raises(
        BadInput, match=r"needs .* GiB .*parameters 9.*, more than 96 % of the 141 GiB"
    ) as bad:
        impossible(fabric(), req)
    assert bad.value.field == "training.gpu_memory_gb"


def test_training_without_a_model_is_said_to_be_idle() -> None:
    f = fabric()
    notes = {}
    for how in (training(), training(recompute="full"), training(context_parallel="ulysses")):
        answer = place_checked(
            f, everything(f), request(cp=8, dp=4, traffic={"dp": 1}, training=how)
        )
        notes[how] = [note for note in answer.notes if "training is not used" in note]
    assert [len(found) for found in notes.values()] == [0, 1, 0]


def test_fsdp_in_a_pipeline_keeps_what_it_gathers_and_its_gradients() -> None:
    sizes = {"tp": 8, "pp": 8, "dp": 8, "model": LLAMA3, "batch": Batch(256, 4)}
    sharded = use(**sizes, training=training(data_parallel="zero3", sync="micro_batch"))
    kept = use(**sizes, training=training(data_parallel="fsdp"))
    assert sharded == kept


def test_chunks_of_fsdp_need_less_where_all_micro_batches_leave_one_before_the_next() -> None:
    """TorchTitan's 405B: 72.7 GiB interleaved, 82.5 without, with 8 micro-batches of 4."""
    sizes = {"tp": 8, "pp": 8, "dp": 8, "model": LLAMA3}
    how = training(data_parallel="fsdp", recompute="full")
    plain = use(**sizes, batch=Batch(256, 4), training=how)
    chunks = use(**sizes, batch=Batch(256, 4, 2), training=how)
    assert chunks.total < plain.total
    more = use(**sizes, batch=Batch(512, 4, 2), training=how)
    assert more.total > plain.total
    assert chunks.activations < plain.activations < more.activations
    megatron = training(data_parallel="zero1", recompute="full")
    kept = [use(**sizes, batch=Batch(256, 4, v), training=megatron).activations for v in (1, 2)]
    assert kept[0] < kept[1]


# --- parameters and FLOPs --------------------------------------------------------------


def test_a_dense_model_is_active_as_a_whole() -> None:
    assert expert_parameters(LLAMA3) == 0
    assert active_parameter_count(LLAMA3) == dense_parameters(LLAMA3) == parameter_count(LLAMA3)
    # One expert for everyone is a dense model with a router.
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
    # 6 P + 12 L h s a token with all of the sequence; a causal mask halves the last.
    req = llama3(2)
    tokens = 2_048 * 8_192
    looked_up, norms = 128_256 * 16_384, 253 * 16_384
    multiplied = 6 * (parameter_count(LLAMA3) - looked_up - norms)
    scores = 12 * 126 * 16_384 * 8_192
    assert training_flops(req, causal=False) == tokens * (multiplied + scores)
    assert training_flops(req) == tokens * (multiplied + scores // 2)
    # Recomputation is no work of the model.
    full = llama3(2, training=training(recompute="full"))
    assert training_flops(full) == training_flops(llama3(2))
    # Without a model there is no work to count.
    assert training_flops(request(dp=4)) == 0


def test_experts_cost_what_a_token_passes() -> None:
    few, many = (
        Request(request().parallelism, model=replace(MIXTRAL, experts=n), batch=Batch(8))
        for n in (8, 64)
    )
    router = 6 * 8 * 4_096 * 32 * 4_096 * (64 - 8)
    assert training_flops(many) - training_flops(few) == router


def test_heads_of_their_own_width_need_not_divide_the_hidden_size() -> None:
    shape = ModelShape(2, 100, 400, 3, 1, 1_000, 128, head_dim=64)
    assert (shape.attention_width, shape.kv_width) == (192, 128)
