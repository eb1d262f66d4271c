"""Steps: no layout is faster than what is proved, and hops cost no less than the busiest link."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.fabric import hostset
from placement.grid.block_grid import block_grid
from placement.objective.step_time import Pipeline, step_time
from placement.tiers.stage_bands import banded_layouts
from placement.tiers.step_clock import step_clock
from placement.workload.request import Request
from placement.workload.traffic import axis_traffic
from placement.workload.training import Batch
from tests.property.grids import requests
from tests.property.test_certificates import fabric, timed


@st.composite
def steps(draw: st.DrawFn) -> Request:
    return draw(timed(draw(requests(most=36))))


@settings(deadline=None, max_examples=40)
@given(request=steps(), seed=st.integers(0, 99), has_racks=st.booleans())
def test_no_layout_is_faster_than_its_bound(request: Request, seed: int, has_racks: bool) -> None:
    random, blocks = np.random.default_rng(seed), request.hosts_needed(2)
    sizes = [max(2, blocks // 2), max(3, blocks // 3), blocks, 4]
    built, free = fabric(sizes, sizes, has_racks)
    hosts = hostset.indices(free)
    least = step_clock(built, request).bound(hosts)
    for _ in range(4):
        layout = random.permutation(hosts)[:blocks].tolist()
        assert step_time(built, request, layout).seconds >= least * (1 - 1e-9)
    grid, layout = block_grid(request, 2), hosts[:blocks].tolist()
    assert step_time(built, request, layout).seconds >= least * (1 - 1e-9)
    for banded in banded_layouts(built, grid, hosts, layout) if grid else ():
        assert len(set(banded) & set(hosts.tolist())) == blocks
        assert step_time(built, request, banded).seconds >= least * (1 - 1e-9)


@settings(deadline=None, max_examples=100)
@given(request=steps(), seed=st.integers(0, 99), chunks=st.integers(1, 3))
def test_hops_are_no_less_than_the_busiest_link(request: Request, seed: int, chunks: int) -> None:
    request = replace(request, batch=Batch(48, 1, chunks))
    axis_traffic(request)
    blocks = request.hosts_needed(2)
    built, free = fabric([blocks, 4, 3], [blocks, 4, 3])
    layout = np.random.default_rng(seed).permutation(hostset.indices(free))[:blocks].tolist()
    for axis in step_time(built, request, layout).axes:
        if axis.load.traffic.axis == "pp" and axis.load.hops:
            assert sum(axis.load.hops) >= axis.load.seconds * (1 - 1e-9)


@pytest.mark.parametrize(
    ("stages", "chunks", "hops", "expected"),
    [
        # 8 micro-batches, 1 s of compute: 2 m (p-1)/p messages and those of the first trip.
        (4, 1, [1.6, 1.6, 1.6], 8 * 0.6 / 4 + 3 * 0.6 / 4),
        # A slow hop behind all others is met by every second micro-batch.
        (4, 1, [0.0, 0.0, 1.6], 0.2 + 7 * 0.2 / 2),
        # With chunks only the first micro-batch waits for short messages, in each chunk.
        (4, 2, [0.16, 0.16, 0.16, 0.08], 2 * 0.03 + 0.01),
    ],
)
def test_waits_for_hops_follow_from_what_is_under_way(
    stages: int, chunks: int, hops: list[float], expected: float
) -> None:
    assert Pipeline(stages, chunks, 8).wait_for_hops(hops, 1.0) == pytest.approx(expected)
