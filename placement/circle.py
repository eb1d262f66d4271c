"""Sets on a circle: what n cells cut at least where all edges are short.

Blocks in rank order, the last one next to the first, often lie so that no edge reaches over
more than a few of them: the rings of a stage, or a whole job whose replicas are a few hosts
each. What is held of a set up to some block then matters to the rest by its last few blocks
alone, and the cheapest set of every size is found block by block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from placement.fabric import Ints
from placement.steps import MUCH

MOST_REACH = 8  # blocks that an edge reaches over
MOST_STEPS = 300_000_000  # entries of the table, times blocks: a second or two
Edges = Mapping[tuple[int, int], int]


def least_cuts(
    edges: Edges, cells: Sequence[int], most: int, begun: Sequence[int] = ()
) -> Ints | None:
    """The least weight of edges that a set of n cells in whole blocks cuts.

    `edges`: (block, later block) -> weight. `cells`: of each block. `begun`: what a set pays on
    top for each of its blocks behind one that is not its own, and gets for each block behind
    its own; nothing for the first. Shape: (most + 1,), MUCH
    where no blocks hold just n; None when edges reach too far or the table is too large.
    Cost: O(4^reach x blocks x most).
    """
    blocks = len(cells)
    reach = max((min(b - a, blocks - b + a) for a, b in edges), default=1)
    if reach > MOST_REACH or blocks <= 2 * reach or 4**reach * blocks * most > MOST_STEPS:
        return None
    begun = begun or [0] * blocks
    cost = _started(edges, cells[:reach], most, begun)
    for block in range(reach, blocks):
        back = [edges.get((block - d, block), 0) for d in range(reach, 0, -1)]
        cost = _extended(cost, np.array(back), cells[block], begun[block])
    ends = _closed(edges, blocks, reach)
    least = (cost + ends[:, :, None]).min(axis=(0, 1))
    return np.where(least < MUCH // 2, least, MUCH)


def _bits(reach: int) -> Ints:
    """Of each mask, whether each of `reach` blocks is in. Shape: (masks, reach)."""
    return np.asarray(np.arange(1 << reach)[:, None] >> np.arange(reach) & 1)


def _started(edges: Edges, cells: Sequence[int], most: int, begun: Sequence[int]) -> Ints:
    """Sets among the first blocks. Shape: (masks of the first blocks, of the last ones, cells)."""
    reach = len(cells)
    masks = 1 << reach
    cost = np.full((masks, masks, most + 1), MUCH)
    for mask, chosen in enumerate(_bits(reach)):
        held = int(chosen @ cells)
        if held <= most:
            cost[mask, mask, held] = sum(
                weight for (a, b), weight in edges.items() if b < reach and chosen[a] != chosen[b]
            ) + int(np.diff(chosen) @ begun[1:reach])
    return cost


def _extended(cost: Ints, back: Ints, cells: int, begun: int) -> Ints:
    """With one more block. `back`: weights to the last blocks, the furthest first; `begun`:
    where the block before is out and this one is in."""
    bits = _bits(len(back))
    half = len(bits) // 2
    fresh = np.full_like(cost, MUCH)
    for is_in, into in ((0, fresh[:, :half]), (1, fresh[:, half:, cells:])):
        paid = (back * (bits != is_in)).sum(axis=1) + begun * (is_in - bits[:, -1])
        length = into.shape[2]
        # The furthest block leaves the mask: two old masks lead to each new one.
        out = cost[:, 0::2, :length] + paid[0::2, None]
        within = cost[:, 1::2, :length] + paid[1::2, None]
        np.minimum(out, within, out=into)
    return fresh


def _closed(edges: Edges, blocks: int, reach: int) -> Ints:
    """Edges between the last blocks and the first. Shape: (first masks, last masks)."""
    bits = _bits(reach)
    total = np.zeros((len(bits), len(bits)), dtype=np.int64)
    for (a, b), weight in edges.items():
        if b - a > reach:
            first, last = bits[:, a], bits[:, b - blocks + reach]
            total += weight * (first[:, None] != last[None, :])
    return total
