"""Bytes per step, against the published volumes of Llama 3 405B."""

from dataclasses import replace

import pytest

from placement.errors import BadInput
from placement.workload.request import Collective, Request
from placement.workload.traffic import AxisTraffic, Pattern, axis_traffic
from placement.workload.training import Batch
from tests.build import LLAMA3, llama3, request

MB, GB = 1e6, 1e9


def traffic(req: Request, axis: str) -> AxisTraffic:
    return next(t for t in axis_traffic(req) if t.axis == axis)


def edge_bytes(req: Request, axis: str) -> int:
    return traffic(req, axis).edge_bytes


def test_pipeline_edge_of_row_2() -> None:
    """33.55 MB a micro-batch and direction; 16 micro-batches, forwards and back."""
    assert edge_bytes(llama3(2), "pp") / 16 / 2 == pytest.approx(33.55 * MB, rel=2e-4)
    assert edge_bytes(llama3(2), "pp") == 2 * 16 * 2 * 8_192 * 16_384 // 8


def test_interleaving_multiplies_the_pipeline_and_wraps() -> None:
    plain, interleaved = traffic(llama3(2), "pp"), traffic(llama3(2, virtual_stages=8), "pp")
    assert plain.wrap_bytes == 0
    assert interleaved.edge_bytes == 8 * plain.edge_bytes
    assert interleaved.wrap_bytes == 7 * plain.edge_bytes


def test_fp32_parameters_double_activations() -> None:
    wide = llama3(2, model=replace(LLAMA3, dtype="fp32"))
    assert edge_bytes(wide, "pp") == 2 * edge_bytes(llama3(2), "pp")
    assert edge_bytes(wide, "dp") == pytest.approx(8 / 6 * edge_bytes(llama3(2), "dp"))


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
