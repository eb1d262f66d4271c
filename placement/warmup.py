"""Machine code for every inner loop, before anyone waits for a placement: `warm_up`.

`python -m placement.warmup` does the same for the processes to come.
"""

from __future__ import annotations

import numpy as np

from placement.bound.pathwidth import least_parts
from placement.bound.pricing import Pricer
from placement.bound.ring_width import least_around
from placement.bound.size_relaxation import least_sum
from placement.graph.hypergraph import block_graph
from placement.grid.block_grid import block_grid
from placement.grid.isoperimetry import BlockAxis, _plane, min_plus
from placement.kernels import compiling_ahead
from placement.search.graph_slicing import grid_sweeper
from placement.search.multilevel import Multilevel
from placement.search.segmentation import LineSearch
from placement.solver import IntegerProgram
from placement.workload.parallelism import Parallelism
from placement.workload.request import Request
from placement.workload.traffic import Pattern

GPUS = 2  # of the hosts of a small gang


def warm_up() -> None:
    """Load or compile the machine code of all loops, and run each of them and an integer program
    once, while other threads place without it. Cost: half a second where the code is kept from
    before, else half a minute or more."""
    with compiling_ahead():
        _run_each_loop()


def _run_each_loop() -> None:
    gang = Request(Parallelism(tp=GPUS, pp=2, dp=3), traffic=(("dp", 3), ("pp", 1)))
    room, grid = [4, 2], block_grid(gang, GPUS)
    assert grid is not None
    sweeper = grid_sweeper(grid)
    pieces, layout = sweeper.graph, sweeper.searched(room, 1, 0)
    LineSearch(pieces, [np.arange(pieces.blocks)], room, 0)
    Multilevel(pieces, room, 1, 0).polished(layout, "warm")
    pricer = Pricer(grid.rows, grid.width, 2, grid.slopes)
    pricer.price(np.zeros((grid.rows, grid.width + 1), dtype=np.int64), np.zeros(3, dtype=np.int64))
    pricer.patterns([2])
    line = np.ones(4, dtype=np.int64)
    least_sum(2, [2], line)
    min_plus(line, line)
    graph = block_graph(gang, GPUS)
    assert graph is not None  # it has a dozen edges
    order = np.arange(graph.blocks)
    least_parts(graph, [order], 1, 1_000)
    least_around(graph, [order], 1, 1, -1, 10_000)
    axis = BlockAxis("dp", 2, 1, Pattern.RING, 1)
    _plane(axis, axis)
    program = IntegerProgram()
    program.row(2, 4, [(program.variable(2, 1), 1), (program.variable(2, 1), 1)])
    program.solve(1)


if __name__ == "__main__":
    warm_up()
