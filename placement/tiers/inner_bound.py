"""The certificate of an inner tier, where one domain of the tier outside holds the gang.

Nothing is cut on the tiers outside then, and the question is the outermost one again:
blocks of a grid on domains of given capacities. The bound holds for every domain that
could take the whole gang, not only for the one that does.
See docs/engine.md, "The tiers".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import zip_longest
from math import ceil

import numpy as np

from placement.bound.size_relaxation import is_priceable, size_bound
from placement.fabric.tree import Fabric, Ints, above
from placement.grid.block_grid import BlockGrid
from placement.proof.branch_and_price import Prover
from placement.workload.request import TierBound, TierCut

ONE_NODE = 1  # of the prover's tree: more nodes hardly prove more on many small domains


def inner_bound(
    fabric: Fabric, free: Ints, grid: BlockGrid, cuts: Sequence[TierCut]
) -> TierBound | None:
    """Bound the bytes that the outermost tier with a cut cannot go below while tiers outside have
    none. None where that is the outermost tier of all, or nothing is cut, or blocks that send each
    other nothing could be in different domains outside, or domains are too large."""
    depth = next((k for k, cut in enumerate(cuts) if cut.bytes_per_step), 0)
    if not depth or not _is_connected(grid):
        return None
    cost = int(cuts[depth].bytes_per_step * 2 / grid.unit)
    room = common_room(fabric, free, depth, grid.size)
    least = size_bound(grid).least_cut(grid.everywhere, room)
    if least < cost:
        least = max(least, proved(grid, room, cost))
    if least <= 0:
        return None
    bound = min(cuts[depth].bytes_per_step, ceil(grid.to_bytes(least)))
    return TierBound(cuts[depth].tier, bound)


def common_room(fabric: Fabric, free: Ints, depth: int, gang: int) -> tuple[int, ...]:
    """Return free hosts by domain of tier `depth`, largest first, at least as many as in any domain
    outside it that could take the gang."""
    tier, outer = fabric.tiers[depth], above(fabric, depth)[depth - 1]
    count = tier.count(free)
    fitting = np.flatnonzero(np.bincount(outer, weights=count) >= gang)
    rooms = [sorted(count[(outer == d) & (count > 0)].tolist(), reverse=True) for d in fitting]
    return tuple(map(max, zip_longest(*rooms, fillvalue=0)))


def _is_connected(grid: BlockGrid) -> bool:
    return (grid.rows == 1 or grid.row_weight > 0) and all(a.weight for a in grid.slice_axes)


def proved(grid: BlockGrid, room: Sequence[int], cost: int) -> int:
    """Prove a doubled cut that no layout of the grid on these domains beats, at most `cost`, that
    of a good layout."""
    if not is_priceable(grid, max(room)):
        return 0
    known = _bound_cell(grid, tuple(sorted((n for n in room if n), reverse=True)))
    if not known:
        known.append(Prover(grid, room, []).prove(cost + 1, ONE_NODE, is_last=True))
    return min(cost, known[0])


@lru_cache(maxsize=32)
def _bound_cell(grid: BlockGrid, room: tuple[int, ...]) -> list[int]:
    """Mutable cell per grid and room: the bound proved earlier in the search, reused by the
    certificate."""
    return []
