"""Bytes per step by axis: the published volumes of Llama 3 405B, and each way of splitting against
the formula of its paper."""

from dataclasses import replace
from typing import Any

import pytest

from placement.workload.flops import dense_parameters, expert_parameters, parameter_count
from placement.workload.request import Collective, Request
from placement.workload.traffic import AxisTraffic, Pattern, axis_traffic
from placement.workload.training import Batch
from tests.build import DEEPSEEK_V3, LLAMA3, LLAMA3_LONG, MIXTRAL, llama3, request, training


def traffic(req: Request) -> dict[str, AxisTraffic]:
    return {t.axis: t for t in axis_traffic(req)}


def sent(req: Request, axis: str) -> int:
    """Bytes on one edge of an axis."""
    return traffic(req)[axis].edge_bytes


def data(strategy: str, *, dp: int = 4, micro_batches: int = 1, **changes: Any) -> int:
    """Bytes on an edge of dp, gradients in bf16 so that both halves weigh the same."""
    how = training(data_parallel=strategy, gradient_dtype="bf16", **changes)
    return sent(request(dp=dp, model=LLAMA3, batch=Batch(dp * micro_batches), training=how), "dp")


def experts(**changes: Any) -> Request:
    """DeepSeek-V3 on 64 x 16 x 2 ranks, 15,360 sequences a step."""
    axes = {"ep": 64, "pp": 16, "dp": 2, **changes.pop("axes", {})}
    shape = changes.pop("model", DEEPSEEK_V3)
    return request(model=shape, batch=Batch(15_360), training=training(**changes), **axes)


def test_stages_send_activations_there_and_back_and_wrap_with_chunks() -> None:
    # 33.55 MB a micro-batch and direction; 16 micro-batches, forwards and back.
    assert sent(llama3(2), "pp") / 16 / 2 == pytest.approx(33.55e6, rel=2e-4)
    assert sent(llama3(2), "pp") == 2 * 16 * 2 * 8_192 * 16_384 // 8
    # Interleaving multiplies the pipeline and wraps.
    plain, interleaved = traffic(llama3(2))["pp"], traffic(llama3(2, virtual_stages=8))["pp"]
    assert plain.wrap_bytes == 0
    assert interleaved.edge_bytes == 8 * plain.edge_bytes
    assert interleaved.wrap_bytes == 7 * plain.edge_bytes
    # Explicit pipeline bytes wrap by their share.
    req = request(pp=4, traffic={"pp": 80}, batch=Batch(8, virtual_stages=4))
    assert (traffic(req)["pp"].edge_bytes, traffic(req)["pp"].wrap_bytes) == (80, 60)


def test_fp32_parameters_double_activations() -> None:
    wide = llama3(2, model=replace(LLAMA3, dtype="fp32"))
    assert sent(wide, "pp") == 2 * sent(llama3(2), "pp")
    assert sent(wide, "dp") == pytest.approx(8 / 6 * sent(llama3(2), "dp"))


def test_axes_have_their_strides_and_patterns() -> None:
    req = request(tp=2, pp=3, dp=5, order="dp-tp-pp")
    assert [(t.axis, t.size, t.stride) for t in axis_traffic(req)] == [
        ("dp", 5, 1),
        ("tp", 2, 5),
        ("pp", 3, 10),
    ]
    req = request(tp=2, cp=2, ep=2, pp=2, dp=2, collectives={"dp": Collective.HIERARCHICAL})
    assert {t.axis: t.pattern for t in axis_traffic(req)} == {
        "tp": Pattern.RING,
        "cp": Pattern.RING,
        "ep": Pattern.ALL_TO_ALL,
        "pp": Pattern.CHAIN,
        "dp": Pattern.HIERARCHICAL,
    }


# --- data parallel -----------------------------------------------------------------


def test_each_way_to_share_state_moves_what_its_paper_says() -> None:
    # 2 (D-1)/D g P (Rajbhandari et al. 2020, 7.1).
    assert data("ddp") == 2 * 2 * parameter_count(LLAMA3) * 3 // 4
    # Zero 1 and 2 move what DDP does.
    assert data("zero1") == data("zero2") == data("ddp")
    # Zero 3 moves half as much again.
    assert data("zero3") == pytest.approx(1.5 * data("zero1"), rel=1e-12)


def test_llama_3_gathers_once_and_reduces_in_fp32() -> None:
    req = request(dp=4, model=LLAMA3, batch=Batch(4))
    assert sent(req, "dp") == 6 * parameter_count(LLAMA3) * 3 // 4


def test_state_exchanged_for_each_micro_batch_costs_as_often() -> None:
    often = {"sync": "micro_batch", "micro_batches": 8}
    assert data("zero3", **often) == 8 * data("zero3", micro_batches=8)
    assert data("ddp", **often) == 8 * data("ddp", micro_batches=8)
    # parameters are gathered once all the same
    assert data("zero2", **often) == pytest.approx(4.5 * data("zero2", micro_batches=8))


def test_a_shard_group_makes_two_axes_of_dp() -> None:
    # HSDP: FSDP inside, an all-reduce of one's shard across.
    req = request(tp=2, dp=8, model=LLAMA3, batch=Batch(8), training=training(shard_group=4))
    shard, across = traffic(req)["dp"], traffic(req)["dp_replicate"]
    state = parameter_count(LLAMA3) // 2
    assert (shard.size, shard.stride, across.size, across.stride) == (4, 2, 2, 8)
    assert shard.edge_bytes == 6 * state * 3 // 4
    assert across.edge_bytes == 2 * 4 * (state // 4) // 2
    assert shard.pattern is across.pattern is Pattern.RING
    # A collective of dp holds for both of its parts.
    req = request(
        dp=8,
        model=LLAMA3,
        batch=Batch(8),
        training=training(shard_group=4),
        collectives={"dp": Collective.HIERARCHICAL},
    )
    assert {t.pattern for t in axis_traffic(req)} == {Pattern.HIERARCHICAL}
    # Bytes given for dp are one ring.
    req = llama3(2, traffic=(("dp", 7),), training=training(shard_group=8))
    assert "dp_replicate" not in traffic(req)
    assert (traffic(req)["dp"].size, sent(req, "dp")) == (128, 7)


# --- tensor, context, pipeline -----------------------------------------------------


def tensor(**changes: Any) -> float:
    """Bytes on an edge of tp, for one layer and micro-batch of row 2 of Llama 3."""
    return sent(llama3(2, training=training(**changes)), "tp") / (126 / 16) / 16


def test_tensor_groups_exchange_what_sequence_parallel_and_recomputation_leave() -> None:
    # 8 b s h (t-1)/t elements (Narayanan et al. 2021, 3.2): 1.88 GB.
    assert tensor(sequence_parallel=False) == 8 * 8_192 * 16_384 * 2 * 7 / 8
    assert tensor() == 10 * 8_192 * 16_384 * 2 * 7 / 8
    # Recomputing a layer repeats its forward exchanges.
    assert tensor(recompute="full") == pytest.approx(tensor() * 14 / 10)
    assert tensor(recompute="none") == tensor(recompute="selective")
    # Without sequence parallel a stage hands on whole activations.
    whole = llama3(2, training=training(sequence_parallel=False))
    assert sent(whole, "pp") == 8 * sent(llama3(2), "pp")


def context(**changes: Any) -> float:
    """Bytes that a rank of cp sends for attention, for one layer and micro-batch."""
    shape = replace(LLAMA3_LONG, ffn=1, vocab=1)
    how = training(**changes)
    req = request(cp=16, model=shape, batch=Batch(1), training=how)
    state = 15 / 16 * 6 * parameter_count(shape)
    edges = 15 if how.context_parallel == "ulysses" else 1
    return (sent(req, "cp") * edges - state) / 126


def test_keys_and_values_round_a_ring() -> None:
    """Forward as much as gathering, backward twice that: with their gradients."""
    once = 15 / 16 * 2 * 2 * 131_072 * 1_024
    assert context() == pytest.approx(2 * once, rel=1e-6)
    assert context(context_parallel="ring") == pytest.approx(3 * once, rel=1e-6)
    assert context(context_parallel="ring", recompute="full") == pytest.approx(4 * once, rel=1e-6)


def test_ulysses_exchanges_heads_between_all() -> None:
    # q, k, v and o, there and back: (c-1)/c 2 b s/c (2 h + 2 kv) each (Jacobs et al. 2023).
    each = 15 / 16 * 2 * 131_072 / 16 * (2 * 16_384 + 2 * 1_024)
    assert context(context_parallel="ulysses") == pytest.approx(2 * each, rel=1e-5)
    # Ulysses is all to all.
    req = llama3(3, training=training(context_parallel="ulysses"))
    assert traffic(req)["cp"].pattern is Pattern.ALL_TO_ALL
    given = request(cp=4, training=training(context_parallel="ulysses"), traffic={"cp": 5})
    assert (traffic(given)["cp"].pattern, sent(given, "cp")) == (Pattern.ALL_TO_ALL, 5)


# --- experts -----------------------------------------------------------------------


def dispatched(copies: int, dispatch: int = 2, passes: int = 2) -> int:
    """Bytes on an ordered pair of 64 ranks: 120 micro-batches through 58/16 expert layers."""
    per_token = copies * 7_168 * (dispatch + 2) * passes
    return per_token * 4_096 * 58 * 120 // (16 * 64)


def shared_state(bytes_per_parameter: int = 6) -> float:
    """What a pair exchanges of what is no expert: a 64th of a stage's."""
    return bytes_per_parameter * dense_parameters(DEEPSEEK_V3) / 16 / 64


def test_tokens_go_to_experts_and_back() -> None:
    # 4 (e-1)/e k beta T h a layer and micro-batch, an e-th to each rank.
    req = experts()
    assert traffic(req)["ep"].pattern is Pattern.ALL_TO_ALL
    assert sent(req, "ep") == pytest.approx(dispatched(8) + shared_state(), rel=1e-9)
    # DeepSeek-V3: at most 4 hosts a token, dispatched in 8 bits.
    limited = experts(expert_hosts_per_token=4)
    assert sent(limited, "ep") == pytest.approx(dispatched(4) + shared_state(), rel=1e-9)
    narrow = experts(expert_hosts_per_token=4, dispatch_dtype="fp8")
    assert sent(narrow, "ep") == pytest.approx(dispatched(4, 1) + shared_state(), rel=1e-9)
    assert sent(experts(expert_hosts_per_token=9), "ep") == sent(experts(), "ep")
    # Recomputation sends tokens once more.
    full = experts(recompute="full")
    assert sent(full, "ep") == pytest.approx(dispatched(8, passes=3) + shared_state(), rel=1e-9)


def test_experts_are_reduced_over_dp_and_the_rest_over_ep_too() -> None:
    rank = expert_parameters(DEEPSEEK_V3) / (16 * 64) + dense_parameters(DEEPSEEK_V3) / (16 * 64)
    assert sent(experts(), "dp") == pytest.approx(6 * rank / 2, rel=1e-9)


@pytest.mark.parametrize(("cp", "ep", "dp"), [(1, 1, 8), (2, 1, 4), (1, 4, 2), (2, 2, 2)])
def test_however_it_is_cut_up_a_group_moves_the_same(cp: int, ep: int, dp: int) -> None:
    """What is no expert is exchanged in one group of 8, whatever the axes."""
    thin = replace(MIXTRAL, expert_ffn=1, sequence=2, kv_heads=1)
    req = request(cp=cp, ep=ep, dp=dp, model=thin, batch=Batch(8))
    pairs = {"ep": ep - 1}
    total = sum(t.edge_bytes * pairs.get(t.axis, 1) for t in axis_traffic(req))
    assert total == pytest.approx(6 * dense_parameters(thin) * 7 / 8, rel=0.005)


def test_cut_experts_gather_their_tokens_over_tp_and_whole_ones_do_not() -> None:
    # Attention once, each of the k copies once, the shared experts once.
    axes = {"tp": 8, "ep": 8}
    dense = replace(DEEPSEEK_V3, dense_layers=60)
    inner = sent(experts(axes=axes), "tp"), sent(experts(axes=axes, model=dense), "tp")
    block = 5 * 7 / 8 * 2 * 4_096 * 7_168 * 960 / 16
    assert inner[0] - inner[1] == pytest.approx(57 * (1 + 1 + 8 - 2) * block, rel=1e-9)
    # Whole experts on tp ranks exchange tokens instead.
    axes = {"tp": 8, "ep": 8}
    spread, cut_up = experts(axes=axes, expert_tp=1), experts(axes=axes)
    assert sent(spread, "tp") < sent(cut_up, "tp")
    assert sent(spread, "ep") == sent(cut_up, "ep")
