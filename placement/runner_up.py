"""What other layouts of the same gang would have cut, so that a choice explains itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.fabric.tree import Fabric, Ints
from placement.grid.block_grid import BlockGrid, block_grid
from placement.objective.cut import cut
from placement.search.graph_slicing import Sweeper, combs, grid_sweeper
from placement.search.slicing_trees import plan_of
from placement.workload.request import Placement, Request, TierCut


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """A layout not taken, and its cut over the outermost tier."""

    name: str
    cut: TierCut


def runners_up(
    fabric: Fabric, free: Ints, request: Request, placement: Placement
) -> tuple[RunnerUp, ...]:
    """Whole replicas, whole stages, and the gang's own hosts in the order of their names.

    The first two go to the zones with most room on the `free` hosts. Empty when nothing
    crosses the outermost tier, for then there is nothing to explain.
    """
    if not placement.cut:
        return ()
    zone_of = fabric.tiers[0].domain_by_host
    found = []
    grid = block_grid(request, fabric.gpus_per_host)
    if grid is not None:
        room = np.bincount(zone_of[free], minlength=len(fabric.tiers[0].domains)).tolist()
        row, slot = np.divmod(np.arange(grid.size), grid.width)
        orders = ("whole replicas", np.lexsort((row, slot))), ("whole stages", np.arange(grid.size))
        for name, order in orders:
            hosts = _hosts(grid, room, order, free, zone_of[free])
            found.append(RunnerUp(name, cut(fabric, request, hosts)[0]))
    by_name = sorted(placement.hosts)
    found.append(RunnerUp("hosts by name", cut(fabric, request, by_name)[0]))
    return tuple(found)


def _hosts(grid: BlockGrid, room: list[int], order: Ints, free: Ints, zones: Ints) -> list[int]:
    """Some free host of the right zone for every block, in an `order` that zones cut into segments:
    enough to count the outer cut."""
    _, tree = combs(room, 1)
    layout = Sweeper(grid_sweeper(grid).graph, [order]).layout(plan_of(tree, room))
    by_block = np.empty(grid.size, dtype=np.int64)
    by_block[grid.block.ravel()] = layout
    hosts = np.empty(grid.size, dtype=np.int64)
    for zone in np.unique(by_block):
        here = by_block == zone
        hosts[here] = free[zones == zone][: int(here.sum())]
    return [int(host) for host in hosts]
