"""Inner tiers: graphs, walks, bounds and packings against every assignment."""

from collections.abc import Iterator
from itertools import product
from math import ceil, prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.bound.size_relaxation import SizeBound
from placement.fabric import hostset
from placement.fabric.tree import Fabric, Ints
from placement.graph.hypergraph import Hypergraph, block_graph, grid_graph
from placement.grid.block_grid import BlockGrid, block_grid
from placement.grid.layout import Region, layout_cost
from placement.objective.check import violations
from placement.objective.cut import cut_by_axis
from placement.placer import place
from placement.tiers.bound_proofs import proved
from placement.tiers.seating import Gang
from placement.workload.request import Limits, Placement, Request
from tests.build import request, two_tiers
from tests.property.grids import COLLECTIVE

AXES = ("cp", "ep", "pp", "dp")
ROOM = st.lists(st.integers(1, 5), min_size=2, max_size=3)


SHAPES = [shape for shape in product(range(1, 7), repeat=len(AXES)) if 2 <= prod(shape) <= 24]


@st.composite
def jobs(draw: st.DrawFn, most: int = 8) -> Request:
    cp, ep, pp, dp = draw(st.sampled_from([shape for shape in SHAPES if prod(shape) <= most]))
    return request(
        cp=cp,
        ep=ep,
        pp=pp,
        dp=dp,
        traffic={axis: draw(st.integers(1, 12)) for axis in AXES},
        collectives={axis: draw(COLLECTIVE) for axis in ("cp", "dp")},
    )


def enough(room: list[int], blocks: int) -> list[int]:
    """The last domain takes what the others cannot."""
    return [*room[:-1], max(room[-1], blocks - sum(room[:-1]))]


def grid_of(job: Request) -> BlockGrid:
    grid = block_grid(job, 1)
    assert grid is not None
    return grid


@st.composite
def regions(draw: st.DrawFn, grid: BlockGrid) -> Region:
    """Two blocks at least, often all of them."""
    cells = grid.rows * grid.width
    if draw(st.booleans()):
        return np.ones((grid.rows, grid.width), dtype=np.bool_)
    chosen = draw(st.sets(st.integers(0, cells - 1), min_size=2))
    region = np.zeros(cells, dtype=np.bool_)
    region[list(chosen)] = True
    return region.reshape(grid.rows, grid.width)


def assignments(blocks: int, room: list[int]) -> Iterator[tuple[int, ...]]:
    for at in product(range(len(room)), repeat=blocks):
        if all(at.count(z) <= n for z, n in enumerate(room)):
            yield at


def inside(grid: BlockGrid, region: Region, at: tuple[int, ...] | Ints) -> int:
    """Doubled cut inside the region: what parting it costs over keeping it whole."""
    layout = np.full(region.shape, -1, dtype=np.int64)
    layout[region] = at
    return layout_cost(grid, layout) - layout_cost(grid, np.where(region, 0, -1))


@st.composite
def layouts(draw: st.DrawFn, graph: Hypergraph, most: int) -> Ints:
    at = draw(st.lists(st.integers(0, most), min_size=graph.blocks, max_size=graph.blocks))
    return np.array(at, dtype=np.int64)


@given(data=st.data(), job=jobs(most=24))
def test_the_graph_counts_what_the_layout_cuts(data: st.DataObject, job: Request) -> None:
    grid = grid_of(job)
    region = data.draw(regions(grid))
    graph = grid_graph(grid, region)
    at = data.draw(layouts(graph, 3))
    assert 2 * graph.cost(at) == inside(grid, region, at)
    assert graph.pairwise().cost(at) == graph.cost(at)


@given(data=st.data(), job=jobs(most=24))
def test_merged_pieces_cost_what_their_blocks_do(data: st.DataObject, job: Request) -> None:
    grid = grid_of(job)
    graph = grid_graph(grid, np.ones((grid.rows, grid.width), dtype=np.bool_))
    labels = data.draw(st.lists(st.integers(0, 3), min_size=graph.blocks, max_size=graph.blocks))
    names = {label: k for k, label in enumerate(dict.fromkeys(labels))}
    labels = [names[label] for label in labels]
    coarse = graph.merged(np.array(labels))
    at = data.draw(layouts(coarse, 2))
    assert coarse.cost(at) == graph.cost(at[labels])
    assert sum(coarse.sizes) == graph.blocks


@given(data=st.data(), job=jobs(most=24), gpus=st.sampled_from((2, 4)))
def test_a_restriction_costs_what_parting_it_adds(
    data: st.DataObject, job: Request, gpus: int
) -> None:
    if job.parallelism.world_size % gpus:
        return
    graph = block_graph(job, gpus)
    assert graph is not None
    order = np.array(data.draw(st.permutations(range(graph.blocks))), dtype=np.int64)
    kept = order[: data.draw(st.integers(1, graph.blocks))]
    rest = np.full(graph.blocks, 3, dtype=np.int64)
    rest[kept] = 0
    at = rest.copy()
    at[kept] = data.draw(layouts(graph, 2))[kept]
    assert graph.inside(kept).cost(at[kept]) == graph.cost(at) - graph.cost(rest)


@settings(max_examples=30)
@given(data=st.data(), job=jobs(), room=ROOM)
def test_bounds_and_packings_enclose_the_optimum(
    data: st.DataObject, job: Request, room: list[int]
) -> None:
    grid = grid_of(job)
    region = data.draw(regions(grid))
    blocks = int(region.sum())
    room = enough(room, blocks)
    optimum = min(inside(grid, region, at) for at in assignments(blocks, room))
    assert SizeBound(grid).least_cut(region, room) <= optimum
    if region.all():
        assert proved(grid, room, optimum + 2) <= optimum
    gang = Gang(grid, None, 1)
    at, again = (gang.packed(region, each, Limits()) for each in (room, room[::-1]))
    assert np.all(np.bincount(at, minlength=len(room)) <= room)
    assert np.all(np.bincount(again, minlength=len(room)) <= room[::-1])
    assert inside(grid, region, at) == inside(grid, region, again) >= optimum


RACKS = st.lists(st.lists(st.integers(1, 4), min_size=2, max_size=3), min_size=1, max_size=2)


@settings(max_examples=30)
@given(job=jobs(), zones=RACKS, taken=st.sets(st.integers(0, 23), max_size=4))
def test_no_placement_inside_a_zone_beats_the_inner_bound(
    job: Request, zones: list[list[int]], taken: set[int]
) -> None:
    fabric: Fabric = two_tiers(*zones)
    free = hostset.full(fabric.host_count) & ~hostset.of(taken)
    answer = place(fabric, free, job)
    if not isinstance(answer, Placement) or answer.inner is None:
        return
    assert violations(fabric, free, job, answer) == []
    hosts = np.array(hostset.members(free))
    zone, rack = (tier.domain_by_host[hosts] for tier in fabric.tiers)
    blocks = len(answer.hosts)
    least = min(
        sum(b for _, b in cut_by_axis(job, 1, np.array(at)))
        for z in np.flatnonzero(np.bincount(zone) >= blocks)
        for at in assignments(blocks, np.bincount(rack[zone == z]).tolist())
    )
    assert answer.inner.bytes_per_step <= ceil(least)
    assert least <= answer.cuts[1].bytes_per_step
