"""Walks, and where they are cut, against every way to part them."""

import random
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.fabric.tree import Ints
from placement.graph.hypergraph import Hypergraph, grid_graph
from placement.grid.block_grid import block_grid
from placement.search.graph_slicing import block_orders
from placement.search.segmentation import LineSearch, Segmenter, box_walks
from placement.workload.request import Request
from tests.build import request
from tests.property import grids
from tests.property.test_ragged import larger, ragged

TRAFFIC = {"pp": 3, "dp": 10, "ep": 2, "cp": 5}


def graph_of(job: Request) -> Hypergraph:
    grid = block_grid(job, 1)
    assert grid is not None
    return grid_graph(grid, np.ones((grid.rows, grid.width), dtype=np.bool_))


@pytest.mark.parametrize("shape", [(6,), (4, 3), (2, 3, 4), (1, 5, 1)])
def test_walks_visit_every_cell_once(shape: tuple[int, ...]) -> None:
    coordinates = [axis.ravel() for axis in np.indices(shape)]
    found = [walk.tolist() for walk in box_walks(coordinates, 4)]
    assert all(sorted(walk) == list(range(len(coordinates[0]))) for walk in found)
    assert len({tuple(walk) for walk in found}) == len(found)


def test_walks_step_to_a_neighbour_along_lines_that_go_abreast() -> None:
    # One line at a time, back and forth, it never jumps on a plane.
    rows, slots = (axis.ravel() for axis in np.indices((4, 5)))
    first = next(box_walks([slots, rows], 1))
    steps = np.abs(np.diff(slots[first])) + np.abs(np.diff(rows[first]))
    assert steps.tolist() == [1] * 19
    # The first walk goes along the first axis.
    rows, slots = (axis.ravel() for axis in np.indices((3, 4)))
    assert slots[next(box_walks([slots, rows], 1))][:4].tolist() == [0, 1, 2, 3]
    assert rows[next(box_walks([rows, slots], 1))][:3].tolist() == [0, 1, 2]
    # Two rows side by side make squares of the first four cells.
    rows, slots = (axis.ravel() for axis in np.indices((4, 4)))
    squares = [
        walk
        for walk in box_walks([slots, rows], 2)
        if {(int(rows[c]), int(slots[c])) for c in walk[:4]} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    ]
    assert squares


def test_walks_are_judged_one_by_one() -> None:
    graph = graph_of(request(pp=4, dp=3, traffic=TRAFFIC))
    segmenter = Segmenter(graph, [4, 4, 4])
    orders = [np.arange(12), np.arange(12)[::-1], np.array(random.Random(1).sample(range(12), 12))]
    numbers = segmenter.add(orders)
    together = segmenter.costs(numbers, [0, 1, 2]).tolist()
    assert together == [int(segmenter.costs([k], [0, 1, 2])[0]) for k in numbers]


def test_other_orders_of_domains_are_found() -> None:
    """Two rings of six on domains of 4, 4, 2 and 2: each ring needs a 4 and a 2, which the
    roomiest first does not bring together."""
    graph = graph_of(request(cp=6, dp=2, traffic={"cp": 1}))
    search = LineSearch(graph, [np.arange(12)], [4, 4, 2, 2], 0)
    first = search.cost
    search.climb(40)
    at = search.layout()
    assert graph.cost(at) == search.cost < first
    assert not set(at[:6].tolist()) & set(at[6:].tolist())


def test_a_cut_that_cannot_be_beaten_ends_the_search() -> None:
    graph = graph_of(request(dp=8, traffic=TRAFFIC))
    walks = iter([np.arange(8)] * 3)
    search = LineSearch(graph, walks, [4, 4], graph.cost(np.repeat([0, 1], 4)))
    search.walk((2,))
    assert search.is_done
    assert len(list(walks)) == 2


def test_without_tables_every_domain_is_filled_to_its_last_host() -> None:
    graph = graph_of(request(dp=7, traffic=TRAFFIC))
    segmenter = Segmenter(graph, [2, 4, 3], is_filled=True)
    (number,) = segmenter.add([np.arange(7)])
    at = segmenter.layout(number, [1, 2, 0])
    assert at.tolist() == [1, 1, 1, 1, 2, 2, 2]
    assert segmenter.costs([number], [1, 2, 0]).tolist() == [graph.cost(at)]


def parted(order: Ints, lengths: tuple[int, ...]) -> Ints:
    layout = np.empty(len(order), dtype=np.int64)
    layout[order] = np.repeat(np.arange(len(lengths)), lengths)
    return layout


def least_parted(graph: Hypergraph, order: Ints, capacities: list[int]) -> int:
    """By trying every length of every run, zones in the order of their names."""
    return min(
        graph.cost(parted(order, lengths))
        for lengths in product(*(range(c + 1) for c in capacities))
        if sum(lengths) == graph.blocks
    )


@settings(max_examples=60)
@given(job=ragged(), capacities=st.lists(st.integers(1, 6), min_size=2, max_size=3))
def test_no_other_places_cut_less(job: tuple[Request, int], capacities: list[int]) -> None:
    asked, gpus = job
    graph = grids.graph_of(asked, gpus)
    capacities = grids.enough(capacities, graph.blocks)
    zones = range(len(capacities))
    for order in block_orders(asked, gpus):
        segmenter = Segmenter(graph, capacities)
        layout = segmenter.layout(segmenter.add([order])[0], zones)
        assert np.all(np.bincount(layout, minlength=len(capacities)) <= capacities)
        assert graph.cost(layout) == least_parted(graph, order, capacities)


@settings(max_examples=50)
@given(job=larger(), capacities=st.lists(st.integers(1, 40), min_size=2, max_size=5))
def test_more_sequences_of_zones_cut_no_more(
    job: tuple[Request, int], capacities: list[int]
) -> None:
    asked, gpus = job
    graph = grids.graph_of(asked, gpus)
    capacities = grids.enough(capacities, graph.blocks)
    along = block_orders(asked, gpus)
    search = LineSearch(graph, along, capacities, 0)
    costs = [search.cost]
    search.walk((len(along),))
    costs.append(search.cost)
    search.climb(20)
    costs.append(search.cost)
    layout = search.layout()
    assert np.all(np.bincount(layout, minlength=len(capacities)) <= capacities)
    assert costs == sorted(costs, reverse=True)
    assert graph.cost(layout) == search.cost
