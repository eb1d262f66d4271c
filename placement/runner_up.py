"""What other layouts of the same gang would have cut, so that a choice explains itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.fabric.constraints import seen_by_gang
from placement.fabric.tree import Fabric, Ints
from placement.grid.block_grid import block_grid
from placement.objective.cut import cut
from placement.workload.request import Placement, Request, TierCut


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """A layout not taken, and its cut over the outermost tier."""

    name: str
    cut: TierCut


@seen_by_gang
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
    layouts = []
    grid = block_grid(request, fabric.gpus_per_host)
    if grid is not None:
        room = np.bincount(zone_of[free], minlength=len(fabric.tiers[0].domains)).tolist()
        rows, width = grid.rows, grid.width
        by_slot = np.arange(grid.size).reshape(rows, width).T.ravel()
        ways = ("whole replicas", by_slot, rows), ("whole stages", np.arange(grid.size), width)
        for name, order, line in ways:
            by_block = np.empty(grid.size, dtype=np.int64)
            by_block[grid.block.ravel()[order]] = _filled(room, line, grid.size)
            hosts = _hosts(by_block, free, zone_of[free])
            layouts.append(RunnerUp(name, cut(fabric, request, hosts)[0]))
    by_name = sorted(placement.hosts)
    layouts.append(RunnerUp("hosts by name", cut(fabric, request, by_name)[0]))
    return tuple(layouts)


def _filled(room: list[int], line: int, size: int) -> Ints:
    """The zones of so many blocks: the largest first, each with as many whole lines as it holds,
    and what is left of them where these do not do."""
    zones, most = np.argsort(-np.array(room), kind="stable"), np.sort(room)[::-1]
    lines = np.repeat(zones, most // line * line)
    return np.concatenate([lines, np.repeat(zones, most % line)])[:size]


def _hosts(by_block: Ints, free: Ints, zones: Ints) -> list[int]:
    """Some free host of the right zone for every block: enough to count the outer cut."""
    hosts = np.empty(len(by_block), dtype=np.int64)
    for zone in np.unique(by_block):
        here = by_block == zone
        hosts[here] = free[zones == zone][: int(here.sum())]
    return [int(host) for host in hosts]
