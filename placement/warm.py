"""Machine code for every inner loop, before anyone waits for a placement: `warm_up`.

`python -m placement.warm` does the same for the processes to come.
"""

from __future__ import annotations

import numpy as np

from placement.abreast import Abreast
from placement.along import least_parts
from placement.blockgraph import block_graph
from placement.circle import least_cuts
from placement.compiled import compile_from_now_on
from placement.flat import flat_graph
from placement.grid import block_grids
from placement.held import least_by_held
from placement.layout import layout_cost
from placement.parallelism import Parallelism
from placement.parts import PartBound
from placement.pieces import pieces_of_grid
from placement.polish import polished
from placement.pricing import Pricer, Prices
from placement.request import Request
from placement.rounds import Steps, least_round
from placement.runs import Runs
from placement.segments import Segmenter
from placement.sequences import annealed_runs
from placement.sizes import least_sizes, least_sum
from placement.slicing import Slicer, best_of_trees
from placement.solver import IntegerProgram
from placement.steps import BlockAxis, min_plus, parted_plane
from placement.sweep import Sweeper
from placement.traffic import Pattern
from placement.transfers import transferred
from placement.trees import Tree, plan_of
from placement.turns import least_around

GPUS = 2  # of the hosts of a small gang


def warm_up() -> None:
    """Load or make the machine code, and run each loop once, and an integer program. Cost: half a
    second where the code is kept from before, else half a minute or more."""
    compile_from_now_on()
    gang = Request(Parallelism(tp=GPUS, pp=2, dp=3), traffic=(("dp", 3), ("pp", 1)))
    room, tree = [4, 2], Tree(first=Tree(zone=0), second=Tree(zone=1))
    (grid, *_) = block_grids(gang, GPUS)
    everything = np.ones((grid.rows, grid.width), dtype=np.bool_)
    layout = Slicer(grid, room, everything).searched(plan_of(tree, room), 1, 0, 0.0)
    layout_cost(grid, layout)
    pieces = pieces_of_grid(grid, everything)
    segmenter = Segmenter(pieces, room)
    segmenter.add([np.arange(pieces.order)])
    segmenter.cut(0, [0, 1])
    flat = flat_graph(pieces)
    polished(flat, room, layout.ravel(), 1, "warm", 0)
    transferred(grid, room, layout, 1, 0, 0)
    pricer = Pricer(grid.rows, grid.width, 2, grid.slopes)
    pricer.price(np.zeros((grid.rows, grid.width + 1), dtype=np.int64), np.zeros(3, dtype=np.int64))
    pricer.patterns([2])
    pricer.within(np.zeros(3, dtype=np.int64), 1)
    nothing = np.zeros((grid.rows, grid.width + 1), dtype=np.int64)
    prices = Prices(nothing, nothing[0, :3], nothing[:, 0], (0,) * (grid.rows + 1), 1)
    Abreast(grid, 1, [2, 2, 2], prices).least(1)
    line = np.ones(4, dtype=np.int64)
    least_sum(2, [2], line)
    least_sizes(2, [2], line)
    min_plus(line, line)
    least_round(Steps(line[:2], line, line[:2], line[:2], line[:2], line[:2]), 1, 1)
    graph = block_graph(gang, GPUS)
    assert graph is not None  # it has a dozen edges
    order = np.arange(graph.blocks)
    least_parts(graph, [order], 1, 1_000)
    least_around(graph, [order], 1, 1, -1, 10_000)
    parts = PartBound(graph, [order.reshape(2, 3).T.ravel()])
    parts.least_by_levels(room)
    parts.least_shared(room, 0, 1_000)
    least_by_held(graph, [order], room, np.repeat([0, 1], 3)[: graph.blocks], 0, 1_000_000)
    sweeper = Sweeper(graph, [order])
    sweeper.searched([tree], room, 1, 0, "warm")
    best_of_trees(sweeper.layout, graph.cost, [tree], room, 1, 0, "warm")
    Runs(graph, order, max(room)).layout([0, 1], room)
    annealed_runs(graph, order, room, 1, 0)
    axis = BlockAxis("dp", 2, 1, Pattern.RING, 1)
    parted_plane(axis, axis)
    least_cuts({(0, 1): 1}, [1, 1, 1], 2)
    program = IntegerProgram()
    program.row(2, 4, [(program.variable(2, 1), 1), (program.variable(2, 1), 1)])
    program.solve(1)


if __name__ == "__main__":
    warm_up()
