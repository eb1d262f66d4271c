"""What is attached to jobs without a shape: whole gangs that could really run."""

from collections import Counter

import pytest

from placement.workload.memory import GIB, USUAL_GPU_GB, memory
from placement.workload.replicas import batch_sizes
from placement.workload.request import NO_SPARES, Objective, Request
from placement.workload.traffic import axis_traffic
from simulator.traces.mapping import job_spec
from simulator.traces.shapes import (
    LLAMA_8B,
    LLAMA_405B,
    TABLE,
    ShapeAssignment,
    ShapeRule,
    shaped,
)
from tests.replays import trace_job

LLM = ShapeAssignment(ShapeRule.LLM, seed=1)
HOSTS = (*range(1, 140), 256, 300, 512, 1000, 2048, 3072)


def request(
    gpus: int, gpus_per_host: int = 8, attach: ShapeAssignment = LLM, line: int = 1
) -> Request:
    return shaped(gpus, gpus_per_host, NO_SPARES, attach, line)[0]


@pytest.mark.parametrize("gpus_per_host", [1, 2, 4, 6, 8, 16])
def test_every_gang_has_its_size_and_traffic_on_every_axis(gpus_per_host: int) -> None:
    for hosts in HOSTS:
        found = request(hosts * gpus_per_host, gpus_per_host, line=hosts)

        assert found.parallelism.world_size == hosts * gpus_per_host
        assert all(axis.edge_bytes > 0 for axis in axis_traffic(found))


def test_every_gang_fits_in_memory() -> None:
    for hosts in HOSTS:
        for line in range(8):
            use = memory(request(hosts * 8, line=line))
            assert use.total <= USUAL_GPU_GB * GIB, (hosts, use)


@pytest.mark.parametrize("rule", ShapeRule)
def test_the_same_seed_and_line_give_the_same_gang(rule: ShapeRule) -> None:
    def drawn(seed: int) -> list[object]:
        return [shaped(1024, 8, NO_SPARES, ShapeAssignment(rule, seed), line) for line in range(40)]

    assert drawn(1) == drawn(1)
    assert (drawn(1) == drawn(2)) is (rule is ShapeRule.RING)


def test_draws_follow_the_weights() -> None:
    (_, shapes) = next(row for row in TABLE if row[0] == 64)
    models = Counter(request(64, line=line).model for line in range(4000))

    total = sum(shape.weight for shape in shapes)
    for shape in shapes:
        assert models[shape.model] / 4000 == pytest.approx(shape.weight / total, abs=0.03)


def test_llama_405b_is_cut_as_published() -> None:
    p = next(
        found.parallelism
        for line in range(50)
        if (found := request(16_384, line=line)).model == LLAMA_405B
    )

    assert (p.tp, p.pp, p.dp) == (8, 16, 128)


def test_a_gang_that_stages_do_not_divide_is_data_parallel() -> None:
    found = request(8 * 521)

    assert (found.model, found.parallelism.dp) == (LLAMA_8B, 8 * 521)


def test_data_parallel_gangs_may_shrink_to_half() -> None:
    elastic = ShapeAssignment(ShapeRule.ELASTIC)
    spec = job_spec(trace_job("a", 0, 5, 30), 8, NO_SPARES, attach=elastic)

    assert (spec.min_dp, spec.request.parallelism.dp) == (16, 32)
    assert 16 in batch_sizes(spec.request, spec.min_dp)
    # A host cannot be halved, and pipelines keep their replicas.
    assert job_spec(trace_job("a", 0, 5, 8), 8, NO_SPARES, attach=elastic).min_dp == 0
    assert shaped(16_384, 8, NO_SPARES, elastic, 1)[1] == 0


def test_ring_is_one_byte_on_one_ring() -> None:
    found = request(24, attach=ShapeAssignment())

    (axis,) = axis_traffic(found)
    assert (axis.axis, axis.size, axis.edge_bytes) == ("dp", 24, 1)


def test_shapes_with_a_model_are_placed_by_their_step_as_on_a_server() -> None:
    assert request(64).objective is Objective.TIME
    assert request(64, attach=ShapeAssignment()).objective is Objective.CUT
