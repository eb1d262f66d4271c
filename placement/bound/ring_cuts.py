"""Sets on a circle: what n cells cut at least where all edges are short.

Blocks in rank order, the last one next to the first, often lie so that no edge reaches over
more than a few of them: the rings of a stage, or a whole job whose replicas are a few hosts
each. What is held of a set up to some block then matters to the rest by its last few blocks
alone, and the cheapest set of every size is found block by block.
See docs/engine.md, "Gangs that are no grid".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from placement.fabric.tree import Ints
from placement.grid.isoperimetry import MUCH
from placement.kernels import Kernel

MOST_REACH = 8  # blocks that an edge reaches over
MOST_STEPS = 300_000_000  # entries of the table, times blocks: a second or two
Edges = Mapping[tuple[int, int], int]


def least_cuts(edges: Edges, cells: Sequence[int], most: int) -> Ints | None:
    """The least weight of edges that a set of n cells in whole blocks cuts.

    `edges`: (block, later block) -> weight. `cells`: of each block. Shape: (most + 1,), MUCH
    where no blocks hold just n; None when edges reach too far or the table is too large.
    Cost: O(4^reach x blocks x most).
    """
    blocks = len(cells)
    reach = max((min(b - a, blocks - b + a) for a, b in edges), default=1)
    if reach > MOST_REACH or blocks <= 2 * reach or 4**reach * blocks * most > MOST_STEPS:
        return None
    cost = _started(edges, cells[:reach], most)
    other, paid = np.empty_like(cost), np.empty(1 << reach, dtype=np.int64)
    back = [edges.get((b - d, b), 0) for b in range(reach, blocks) for d in range(reach, 0, -1)]
    more, links = np.array(cells[reach:]), np.array(back)
    extended.run(blocks * cost.size, cost.ravel(), other.ravel(), links, more, paid)
    cost = other if (blocks - reach) % 2 else cost
    ends = _closed(edges, blocks, reach)
    least = (cost + ends[:, :, None]).min(axis=(0, 1))
    return np.where(least < MUCH // 2, least, MUCH)


def _bits(reach: int) -> Ints:
    """Of each mask, whether each of `reach` blocks is in. Shape: (masks, reach)."""
    return np.asarray(np.arange(1 << reach)[:, None] >> np.arange(reach) & 1)


def _started(edges: Edges, cells: Sequence[int], most: int) -> Ints:
    """Sets among the first blocks. Shape: (masks of the first blocks, of the last ones, cells)."""
    reach = len(cells)
    masks = 1 << reach
    cost = np.full((masks, masks, most + 1), MUCH)
    for mask, chosen in enumerate(_bits(reach)):
        held = int(chosen @ cells)
        if held <= most:
            cost[mask, mask, held] = sum(
                weight for (a, b), weight in edges.items() if b < reach and chosen[a] != chosen[b]
            )
    return cost


def _extended(cost: Ints, other: Ints, back: Ints, cells: Ints, paid: Ints) -> None:
    """With more blocks, by turns in either array. `back`: weights to the last blocks before each,
    the furthest first. `paid`: room, for each mask."""
    reach = len(back) // len(cells)
    for block in range(len(cells)):
        near = back[block * reach : (block + 1) * reach]
        for is_in in range(2):
            for mask in range(len(paid)):
                paid[mask] = 0
                for k in range(reach):
                    paid[mask] += near[k] * ((mask >> k & 1) != is_in)
            if block % 2:
                _with(other, cost, paid, is_in, cells[block])
            else:
                _with(cost, other, paid, is_in, cells[block])


def _with(cost: Ints, fresh: Ints, paid: Ints, is_in: int, cells: int) -> None:
    """With one more block, in or out. The furthest one leaves the mask: two old masks lead to each
    new one."""
    masks, held = len(paid), cells * is_in
    length = len(cost) // (masks * masks)
    for first in range(masks):
        for mask in range(masks // 2):
            out = (first * masks + 2 * mask) * length
            to = (first * masks + mask + is_in * masks // 2) * length
            for n in range(min(held, length)):
                fresh[to + n] = MUCH
            for n in range(length - held):
                without, within = cost[out + n] + paid[2 * mask], cost[out + length + n]
                fresh[to + held + n] = min(without, within + paid[2 * mask + 1])


extended = Kernel(_extended, _with)


def _closed(edges: Edges, blocks: int, reach: int) -> Ints:
    """Edges between the last blocks and the first. Shape: (first masks, last masks)."""
    bits = _bits(reach)
    total = np.zeros((len(bits), len(bits)), dtype=np.int64)
    for (a, b), weight in edges.items():
        if b - a > reach:
            first, last = bits[:, a], bits[:, b - blocks + reach]
            total += weight * (first[:, None] != last[None, :])
    return total
