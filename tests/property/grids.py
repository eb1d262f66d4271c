"""Requests that form a grid of hosts."""

from itertools import product
from math import prod

from hypothesis import strategies as st

from placement.graph.hypergraph import Hypergraph, block_graph
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


def graph_of(req: Request, gpus: int) -> Hypergraph:
    """The graph of the blocks of a gang that talks, on hosts of so many GPUs."""
    graph = block_graph(req, gpus)
    assert graph is not None
    return graph
