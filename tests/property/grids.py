"""Requests that form a grid of hosts, and the least that they cut, by trying every assignment."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

import numpy as np
from hypothesis import strategies as st

from placement.graph.hypergraph import Hypergraph, block_graph
from placement.grid.block_grid import BlockGrid, block_grid
from placement.objective.cut import cut_by_axis
from placement.workload.request import Collective, Request
from tests.build import request

WEIGHT = st.integers(0, 12)
# Trees lead to ranks at any distance, so no grid counts them.
ON_GRIDS = [each for each in Collective if each is not Collective.TREE]
COLLECTIVE = st.sampled_from(ON_GRIDS)


@st.composite
def requests(draw: st.DrawFn, most: int = 24) -> Request:
    """Up to four axes wider than a host of two GPUs, any order, any pattern."""
    shapes = [shape for shape in product(range(1, 7), repeat=4) if 2 <= prod(shape) <= most]
    sizes = dict(zip(("cp", "ep", "pp", "dp"), draw(st.sampled_from(shapes)), strict=True))
    order = "tp-" + "-".join(draw(st.permutations(["cp", "ep", "pp", "dp"])))
    return request(
        tp=2,
        **sizes,
        traffic={axis: draw(WEIGHT) for axis in sizes},
        collectives={"dp": draw(COLLECTIVE), "cp": draw(COLLECTIVE)},
        order=order,
    )


def grid_of(req: Request, gpus: int = 2) -> BlockGrid:
    """The grid of the blocks of a gang that forms one, on hosts of so many GPUs."""
    grid = block_grid(req, gpus)
    assert grid is not None
    return grid


def graph_of(req: Request, gpus: int) -> Hypergraph:
    """The graph of the blocks of a gang that talks, on hosts of so many GPUs."""
    graph = block_graph(req, gpus)
    assert graph is not None
    return graph


def assignments(blocks: int, room: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the domain of each block, in every way that the domains have room for."""
    for at in product(range(len(room)), repeat=blocks):
        if all(at.count(domain) <= hosts for domain, hosts in enumerate(room)):
            yield at


def least_cut(req: Request, gpus: int, room: Sequence[int]) -> int:
    """Return the bytes that the best of all assignments cuts, on hosts of so many GPUs."""
    every = assignments(req.hosts_needed(gpus), room)
    return min(sum(b for _, b in cut_by_axis(req, gpus, np.array(at))) for at in every)


def enough(room: list[int], blocks: int) -> list[int]:
    """Return `room`, of which the last domain takes what the others cannot."""
    return [*room[:-1], max(room[-1], blocks - sum(room[:-1]))]
