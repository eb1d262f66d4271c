"""Orders of blocks cut into segments, against every way to part those orders."""

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.fabric.tree import Ints
from placement.graph.hypergraph import Hypergraph, block_graph
from placement.search.graph_slicing import block_orders
from placement.search.segmentation import LineSearch, Segmenter
from placement.workload.request import Request
from tests.property.test_ragged import enough, larger, ragged


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


@settings(max_examples=150)
@given(job=ragged(), capacities=st.lists(st.integers(1, 6), min_size=2, max_size=3))
def test_no_other_places_cut_less(job: tuple[Request, int], capacities: list[int]) -> None:
    asked, gpus = job
    graph = block_graph(asked, gpus)
    assert graph is not None
    capacities = enough(capacities, graph.blocks)
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
    graph = block_graph(asked, gpus)
    assert graph is not None
    capacities = enough(capacities, graph.blocks)
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
