"""Bytes per step, against the published volumes of Llama 3 405B."""

from dataclasses import replace

import pytest

from placement.errors import BadInput
from placement.workload.flops import parameter_count
from placement.workload.request import Collective, Request
from placement.workload.traffic import AxisTraffic, Pattern, axis_traffic
from placement.workload.training import Batch, ModelShape
from tests.build import LLAMA3, LLAMA3_ROWS, llama3, request

MB, GB = 1e6, 1e9


def traffic(req: Request, axis: str) -> AxisTraffic:
    return next(t for t in axis_traffic(req) if t.axis == axis)


def edge_bytes(req: Request, axis: str) -> int:
    return traffic(req, axis).edge_bytes


def test_llama3_has_405_85_billion_parameters() -> None:
    assert parameter_count(LLAMA3) == pytest.approx(405.85e9, rel=1e-5)


@pytest.mark.parametrize(
    ("row", "world", "sequences"), [(1, 8_192, 2_048), (2, 16_384, 2_048), (3, 16_384, 128)]
)
def test_llama3_table_4_sizes(row: int, world: int, sequences: int) -> None:
    """16,777,216 tokens a step in every row (row 3 with DP = 8)."""
    parallelism, model, batch = LLAMA3_ROWS[row]
    assert parallelism.world_size == world
    assert batch.global_sequences == sequences
    assert batch.global_sequences * model.sequence == 16_777_216


def test_pipeline_edge_of_row_2() -> None:
    """33.55 MB a micro-batch and direction; 16 micro-batches, forwards and back."""
    assert edge_bytes(llama3(2), "pp") / 16 / 2 == pytest.approx(33.55 * MB, rel=2e-4)
    assert edge_bytes(llama3(2), "pp") == 2 * 16 * 2 * 8_192 * 16_384 // 8


def test_interleaving_multiplies_the_pipeline_and_wraps() -> None:
    plain, interleaved = traffic(llama3(2), "pp"), traffic(llama3(2, virtual_stages=8), "pp")
    assert plain.wrap_bytes == 0
    assert interleaved.edge_bytes == 8 * plain.edge_bytes
    assert interleaved.wrap_bytes == 7 * plain.edge_bytes


def test_data_edge_of_row_2() -> None:
    """Parameters gathered once in bf16, gradients scattered in fp32: 18.88 GB a GPU."""
    assert edge_bytes(llama3(2), "dp") == pytest.approx(18.88 * GB, rel=5e-4)
    shard = 405.85e9 / 128
    assert edge_bytes(llama3(2), "dp") == pytest.approx(127 / 128 * 6 * shard, rel=1e-4)


def test_context_edge_of_row_3() -> None:
    """62.9 MB a layer and micro-batch to gather K and V; dK and dV go back the same way."""
    layers, micro_batches = 126 / 16, 16
    shard = 15 / 16 * 6 * parameter_count(LLAMA3) / 128  # its part of the FSDP group
    gathered = (edge_bytes(llama3(3), "cp") - shard) / 2 / layers / micro_batches
    assert gathered == pytest.approx(62.9 * MB, rel=1e-3)


def test_grouped_queries_save_context_traffic_sixteenfold() -> None:
    """Llama 3 (2024), 3.3.2: why CP may gather K and V: 62.9 MB against 1,007 MB."""
    parallelism, model, batch = LLAMA3_ROWS[3]
    no_weights = replace(model, ffn=1, vocab=1)
    many = replace(no_weights, kv_heads=model.heads)

    def kv_bytes(shape: ModelShape) -> float:
        weights = 15 / 16 * 6 * parameter_count(shape) / 128
        return edge_bytes(Request(parallelism, model=shape, batch=batch), "cp") - weights

    assert kv_bytes(many) / kv_bytes(no_weights) == pytest.approx(16, rel=1e-4)


def test_fsdp_spans_context_and_data() -> None:
    """Row 3: the two axes together carry what one group of dp x cp ranks would."""
    shard = 6 * parameter_count(LLAMA3) / 128
    dp = edge_bytes(llama3(3), "dp")
    cp_weights = 15 / 16 * shard
    assert dp + cp_weights == pytest.approx(127 / 128 * shard, rel=1e-9)


def test_tensor_edge_of_row_2() -> None:
    """Sequence parallel with gathering again: 2.35 GB a layer and micro-batch."""
    per_layer = edge_bytes(llama3(2), "tp") / (126 / 16) / 16
    assert per_layer == pytest.approx(2.35 * GB, rel=1e-3)
    assert edge_bytes(llama3(2), "tp") == pytest.approx(296 * GB, rel=1e-3)


def test_fp32_parameters_double_activations() -> None:
    wide = llama3(2, model=replace(LLAMA3, dtype="fp32"))
    assert edge_bytes(wide, "pp") == 2 * edge_bytes(llama3(2), "pp")
    assert edge_bytes(wide, "dp") == pytest.approx(8 / 6 * edge_bytes(llama3(2), "dp"))


def test_explicit_bytes_win_over_the_model() -> None:
    req = llama3(2, traffic=(("dp", 5), ("pp", 0)))
    assert edge_bytes(req, "dp") == 5
    assert edge_bytes(req, "pp") == 0
    assert edge_bytes(req, "tp") == edge_bytes(llama3(2), "tp")


def test_explicit_pipeline_bytes_wrap_by_their_share() -> None:
    req = request(pp=4, traffic={"pp": 80}, batch=Batch(8, virtual_stages=4))
    assert (traffic(req, "pp").edge_bytes, traffic(req, "pp").wrap_bytes) == (80, 60)


def test_axes_of_size_one_send_nothing() -> None:
    assert axis_traffic(request(dp=1, pp=1, traffic={"dp": 9})) == ()


def test_axes_come_fastest_first_with_their_strides() -> None:
    req = request(tp=2, pp=3, dp=5, order="dp-tp-pp")
    assert [(t.axis, t.size, t.stride) for t in axis_traffic(req)] == [
        ("dp", 5, 1),
        ("tp", 2, 5),
        ("pp", 3, 10),
    ]


def test_patterns() -> None:
    req = request(tp=2, cp=2, ep=2, pp=2, dp=2, collectives={"dp": Collective.HIERARCHICAL})
    assert {t.axis: t.pattern for t in axis_traffic(req)} == {
        "tp": Pattern.RING,
        "cp": Pattern.RING,
        "ep": Pattern.ALL_TO_ALL,
        "pp": Pattern.CHAIN,
        "dp": Pattern.HIERARCHICAL,
    }


@pytest.mark.parametrize(
    ("req", "field", "says"),
    [
        (request(dp=2, traffic={"dp": -1}), "traffic.dp", "must not be negative, is -1"),
        (request(traffic={"pp": -1}), "traffic.pp", "negative"),
        (request(traffic={"xp": 1}), "traffic.xp", "unknown axis"),
        (request(collectives={"xp": Collective.RING}), "collectives.xp", "unknown axis"),
        (
            request(pp=2, collectives={"pp": Collective.HIERARCHICAL}),
            "collectives.pp",
            "pp is a chain",
        ),
        (
            request(ep=2, collectives={"ep": Collective.HIERARCHICAL}),
            "collectives.ep",
            "ep is all-to-all",
        ),
        (request(dp=2, model=LLAMA3), "batch", "required with a model"),
        (
            request(dp=3, model=LLAMA3, batch=Batch(2_048)),
            "batch.global_sequences",
            "2048 sequences do not divide over dp 3 in micro-batches of 1",
        ),
        (
            request(dp=4, model=LLAMA3, batch=Batch(8, micro_sequences=4)),
            "batch.global_sequences",
            "do not divide",
        ),
    ],
)
def test_bad_input_names_its_field(req: Request, field: str, says: str) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        axis_traffic(req)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"layers": 0}, "model.layers"),
        ({"sequence": -1}, "model.sequence"),
        ({"heads": 100}, "model.heads"),
        ({"dtype": "int4"}, "model.dtype"),
    ],
)
def test_bad_models_name_their_field(changes: dict[str, object], field: str) -> None:
    with pytest.raises(BadInput) as caught:
        replace(LLAMA3, **changes)
    assert caught.value.field == field


@pytest.mark.parametrize("name", ["global_sequences", "micro_sequences", "virtual_stages"])
def test_bad_batches_name_their_field(name: str) -> None:
    with pytest.raises(BadInput) as caught:
        Batch(**{"global_sequences": 1, name: 0})
    assert caught.value.field == f"batch.{name}"
