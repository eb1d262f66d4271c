"""The certificate of an inner tier, where one domain of the tier outside holds the gang.

Nothing is cut on the tiers outside then, and the question is the outermost one again:
blocks of a grid on domains of given capacities. The bound holds for every domain that
could take the whole gang, not only for the one that does.
See docs/engine.md, "The tiers".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil

import numpy as np

from placement.bound.size_relaxation import is_priceable, size_bound
from placement.fabric.tree import Fabric, Ints, above
from placement.grid.block_grid import BlockGrid
from placement.proof.branch_and_price import Prover
from placement.workload.request import TierBound, TierCut

ONE_NODE = 1  # of the prover's tree: more nodes hardly prove more on many small domains
MOST_MAKES = 4  # sets of capacities that are bounded one by one


def inner_bound(
    fabric: Fabric, free: Ints, grid: BlockGrid, cuts: Sequence[TierCut]
) -> TierBound | None:
    """Bytes that the outermost tier with a cut cannot go below while tiers outside have
    none. None where that is the outermost tier of all, or nothing is cut, or blocks that
    send each other nothing could be in different domains outside, or domains are too large.
    """
    depth = next((k for k, cut in enumerate(cuts) if cut.bytes_per_step), 0)
    if not depth or not _is_connected(grid):
        return None
    makes = _makes(fabric, free, depth, grid.size)
    cost = int(cuts[depth].bytes_per_step * 2 / grid.unit)
    least = _bound(grid, _together(makes), cost)
    if least < cost and 1 < len(makes) <= MOST_MAKES:
        least = _least_bound(grid, makes, cost, least)
    if least <= 0:
        return None
    bound = min(cuts[depth].bytes_per_step, ceil(grid.to_bytes(least)))
    return TierBound(cuts[depth].tier, bound)


def common_room(fabric: Fabric, free: Ints, depth: int, gang: int) -> tuple[int, ...]:
    """Free hosts by domain of tier `depth`, largest first, at least as many as in any domain
    outside it that could take the gang."""
    return _together(_makes(fabric, free, depth, gang))


def _together(makes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(map(max, zip(*makes, strict=True)))


def _is_connected(grid: BlockGrid) -> bool:
    return (grid.rows == 1 or grid.row_weight > 0) and all(a.weight for a in grid.slice_axes)


def _makes(fabric: Fabric, free: Ints, depth: int, gang: int) -> list[tuple[int, ...]]:
    """Free hosts by child, largest first and of equal length, of every domain outside
    `depth` that could take the gang; each set of capacities once."""
    tier, outer = fabric.tiers[depth], above(fabric, depth)[depth - 1]
    count = tier.count(free)
    used = np.flatnonzero(count)
    count, outer = count[used], outer[used]
    fitting = np.flatnonzero(np.bincount(outer, weights=count) >= gang)
    rooms = [np.sort(count[outer == d])[::-1].tolist() for d in fitting]
    longest = max(map(len, rooms))
    return list(dict.fromkeys((*room, *[0] * (longest - len(room))) for room in rooms))


def _bound(grid: BlockGrid, room: tuple[int, ...], cost: int) -> int:
    least = size_bound(grid).least_cut(grid.everywhere, room)
    return least if least >= cost else max(least, proved(grid, room, cost))


def _least_bound(grid: BlockGrid, makes: Sequence[tuple[int, ...]], cost: int, known: int) -> int:
    """What holds for each of `makes`. `known`: what does already."""
    sizes = size_bound(grid)
    by_sizes = [sizes.least_cut(grid.everywhere, make) for make in makes]
    least = cost
    for by_size, make in sorted(zip(by_sizes, makes, strict=True)):
        least = min(least, by_size if by_size >= cost else max(by_size, proved(grid, make, cost)))
        if least <= known:  # no more of the others matters
            return known
    return least


def proved(grid: BlockGrid, room: Sequence[int], cost: int) -> int:
    """A doubled cut that no layout of the grid on these domains beats, as far as `cost`, that of
    a good layout."""
    if not is_priceable(grid, max(room)):
        return 0
    known = _proofs(grid, tuple(sorted((n for n in room if n), reverse=True)))
    dearer = [bound for most, bound in known.items() if most >= cost]
    if not dearer:
        prover = Prover(grid, room, [])
        known[cost] = prover.prove(cost + 1, ONE_NODE, is_last=True)
    return min(cost, max(dearer or [known[cost]]))


@lru_cache(maxsize=32)
def _proofs(grid: BlockGrid, room: tuple[int, ...]) -> dict[int, int]:
    """Bounds by the cut that was to be reached, remembered: the search asks first, the certificate
    again, for a cut that is no larger."""
    return {}
