"""Inner tiers: graphs, walks, bounds and packings against every assignment."""

from math import ceil

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.bound.size_relaxation import SizeBound
from placement.fabric import hostset
from placement.fabric.tree import Fabric, Ints
from placement.graph.hypergraph import Hypergraph, grid_graph
from placement.grid.block_grid import BlockGrid
from placement.grid.layout import Region, layout_cost
from placement.objective.check import violations
from placement.objective.cut import cut_by_axis
from placement.placer import place
from placement.tiers.bound_proofs import proved
from placement.tiers.seating import Gang
from placement.workload.request import Limits, Placement, Request
from tests.build import two_tiers
from tests.property.grids import assignments, enough, graph_of, grid_of, requests

GPUS = 2  # of a host, which the tensor groups of `requests` fill
ROOM = st.lists(st.integers(1, 5), min_size=2, max_size=3)


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


def inside(grid: BlockGrid, region: Region, at: tuple[int, ...] | Ints) -> int:
    """Doubled cut inside the region: what parting it costs over keeping it whole."""
    layout = np.full(region.shape, -1, dtype=np.int64)
    layout[region] = at
    return layout_cost(grid, layout) - layout_cost(grid, np.where(region, 0, -1))


@st.composite
def layouts(draw: st.DrawFn, graph: Hypergraph, most: int) -> Ints:
    at = draw(st.lists(st.integers(0, most), min_size=graph.blocks, max_size=graph.blocks))
    return np.array(at, dtype=np.int64)


@given(data=st.data(), job=requests())
def test_the_graph_counts_what_the_layout_cuts(data: st.DataObject, job: Request) -> None:
    grid = grid_of(job)
    region = data.draw(regions(grid))
    graph = grid_graph(grid, region)
    at = data.draw(layouts(graph, 3))
    assert 2 * graph.cost(at) == inside(grid, region, at)
    assert graph.pairwise().cost(at) == graph.cost(at)


@given(data=st.data(), job=requests())
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


@given(data=st.data(), job=requests(), gpus=st.sampled_from((4, 8)))
def test_a_restriction_costs_what_parting_it_adds(
    data: st.DataObject, job: Request, gpus: int
) -> None:
    if job.parallelism.world_size % gpus:
        return
    graph = graph_of(job, gpus)
    order = np.array(data.draw(st.permutations(range(graph.blocks))), dtype=np.int64)
    kept = order[: data.draw(st.integers(1, graph.blocks))]
    rest = np.full(graph.blocks, 3, dtype=np.int64)
    rest[kept] = 0
    at = rest.copy()
    at[kept] = data.draw(layouts(graph, 2))[kept]
    assert graph.inside(kept).cost(at[kept]) == graph.cost(at) - graph.cost(rest)


@settings(max_examples=30)
@given(data=st.data(), job=requests(most=8), room=ROOM)
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
@given(job=requests(most=8), zones=RACKS, taken=st.sets(st.integers(0, 23), max_size=4))
def test_no_placement_inside_a_zone_beats_the_inner_bound(
    job: Request, zones: list[list[int]], taken: set[int]
) -> None:
    fabric: Fabric = two_tiers(*zones, gpus=GPUS)
    free = hostset.full(fabric.host_count) & ~hostset.of(taken)
    answer = place(fabric, free, job)
    if not isinstance(answer, Placement) or answer.inner is None:
        return
    assert violations(fabric, free, job, answer) == []
    hosts = np.array(hostset.members(free))
    zone, rack = (tier.domain_by_host[hosts] for tier in fabric.tiers)
    blocks = len(answer.hosts)
    least = min(
        sum(b for _, b in cut_by_axis(job, GPUS, np.array(at)))
        for z in np.flatnonzero(np.bincount(zone) >= blocks)
        for at in assignments(blocks, np.bincount(rack[zone == z]).tolist())
    )
    assert answer.inner.bytes_per_step <= ceil(least)
    assert least <= answer.cuts[1].bytes_per_step
