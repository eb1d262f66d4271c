"""Collectives as message schedules: who sends how much to whom, round by round, and what that
costs.

A builder takes the size of a group (the hierarchical one its zones) and lists every message.
A reduce-scatter is the all-gather played backwards, an all-reduce the one after the other.
Which neighbour comes first decides what crosses: with *near first* a reduce-scatter meets
distance 1 first, while its messages are large, and the all-gather that mirrors it ends there:
over Z zones only 2(Z-1)S crosses, S being the payload. *Far first* sends the large messages
over the boundary: ranks-per-zone times more.

A schedule is counted, never looked up: the bytes over a boundary are the bytes of the
messages whose ends lie on two sides of it, and the time is that of its rounds. The
closed forms of the literature are tests of it.

    rank      0 .. n-1, the position in the group
    zone      of each rank; shape (n,)
    payload   S, bytes: the whole vector, so that a rank's own block is S/n
    unit      S / parts, the grain in which a schedule counts

Source: Thakur, Rabenseifner and Gropp 2005; trees: placement/workload/trees.py.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache

import numpy as np

from muster.structs import struct
from placement.fabric.tree import Ints
from placement.workload.trees import depth_of_trees, tree_edges


class Operation(StrEnum):
    """A collective that a group computes."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"


class Algorithm(StrEnum):
    """An algorithm of a collective. Near and far in its name say over which distance the large
    messages go."""

    RING = "ring"
    NEAR = "halving-doubling, near first"
    FAR = "halving-doubling, far first"
    RECURSIVE_DOUBLING = "recursive doubling"
    BRUCK = "bruck"
    TREE = "double binary tree"
    HIERARCHICAL = "hierarchical"


@struct(frozen=True, slots=True, eq=False)
class Round:
    """Messages that are sent side by side; `steps`: latencies, for sends of one rank one after the
    other.

    `src`, `dst`, `units`: shape (messages,). Many equal steps are one round: a ring's n-1 steps of
    one unit are n messages of n-1 units.
    """

    src: Ints
    dst: Ints
    units: Ints
    steps: int = 1

    def backwards(self) -> Round:
        return Round(self.dst, self.src, self.units, self.steps)


@struct(frozen=True, slots=True, eq=False)
class Schedule:
    """All messages of one collective over `size` ranks, round by round."""

    size: int
    parts: int
    rounds: tuple[Round, ...]

    def backwards(self) -> Schedule:
        return Schedule(self.size, self.parts, tuple(r.backwards() for r in self.rounds[::-1]))

    def then(self, other: Schedule) -> Schedule:
        return Schedule(self.size, self.parts, (*self.rounds, *other.rounds))


def _messages(src: Ints, dst: Ints, units: Ints | int, steps: int = 1) -> Round:
    each = np.broadcast_to(np.asarray(units, dtype=np.int64), src.shape)
    return Round(src, dst, each, steps)


def ring(n: int) -> Schedule:
    ranks = np.arange(n)
    return Schedule(n, n, (_messages(ranks, (ranks + 1) % n, n - 1, n - 1),))


def bruck(n: int) -> Schedule:
    ranks = np.arange(n)
    hops = [1 << j for j in range((n - 1).bit_length())]
    return Schedule(
        n, n, tuple(_messages(ranks, (ranks - hop) % n, min(hop, n - hop)) for hop in hops)
    )


@struct(frozen=True, slots=True, eq=False)
class _Fold:
    """n ranks as a cube of 2^k: the first ranks in pairs, of which the odd one speaks.

    `rank`: the speaker of each corner; `blocks`: how many ranks it speaks for.
    """

    rank: Ints
    blocks: Ints
    silent: Ints

    @staticmethod
    def of(n: int) -> _Fold:
        corners = 1 << (n.bit_length() - 1)
        extra = n - corners
        corner = np.arange(corners)
        rank = np.where(corner < extra, 2 * corner + 1, corner + extra)
        return _Fold(rank, np.where(corner < extra, 2, 1), 2 * np.arange(extra))

    @property
    def bits(self) -> range:
        return range(len(self.rank).bit_length() - 1)

    def inwards(self, units: int) -> tuple[Round, ...]:
        return (_messages(self.silent, self.silent + 1, units),) if len(self.silent) else ()

    def outwards(self, units: int) -> tuple[Round, ...]:
        return tuple(messages.backwards() for messages in self.inwards(units))


def _doubling(n: int, step: int) -> Schedule:
    """All-gather: in each round every corner sends all it holds along one bit, the lowest
    first or, where `step` is -1, the highest."""
    fold = _Fold.of(n)
    corner = np.arange(len(fold.rank))
    rounds, met = [], 0
    for bit in fold.bits[::step]:
        held = np.bincount(corner & ~met, fold.blocks, len(corner)).astype(np.int64)
        partner = fold.rank[corner ^ (1 << bit)]
        rounds.append(_messages(fold.rank, partner, held[corner & ~met]))
        met |= 1 << bit
    return Schedule(n, n, (*fold.inwards(1), *rounds, *fold.outwards(n - 1)))


def near(n: int) -> Schedule:
    """Return the schedule with large messages near by: the all-gather starts far away, with one
    block."""
    return _doubling(n, -1)


def far(n: int) -> Schedule:
    """Return the schedule with large messages far away: the textbook order of recursive
    doubling."""
    return _doubling(n, 1)


def recursive_doubling(n: int) -> Schedule:
    """Return the schedule of an all-reduce that exchanges the whole vector in every round."""
    fold = _Fold.of(n)
    corner = np.arange(len(fold.rank))
    rounds = [_messages(fold.rank, fold.rank[corner ^ (1 << bit)], n) for bit in fold.bits]
    return Schedule(n, n, (*fold.inwards(n), *rounds, *fold.outwards(n)))


def tree(n: int, node: int = 1) -> Schedule:
    """Return the schedule of NCCL's double tree: half of the vector goes up and down each of two
    trees, pipelined. `node`: ranks on each host, which are a chain."""
    steps = 2 * (depth_of_trees(n // node) + node - 1)
    return Schedule(n, 2 * node, (_messages(*tree_edges(n, node), steps),))


def hierarchical(zones: Ints) -> Schedule:
    """Return the schedule of an all-gather by rings over the zones, then a ring in each. Every
    block enters a zone once.

    Block b is carried in each zone by one rank, in turn; zones form a ring by number.
    """
    n = len(zones)
    members = [np.flatnonzero(zones == zone) for zone in np.unique(zones)]
    turn = np.empty(n, dtype=np.int64)  # of each block: its position in its own zone
    for ranks in members:
        turn[ranks] = np.arange(len(ranks))
    carrier = np.stack([ranks[turn % len(ranks)] for ranks in members])
    rounds = []
    if len(members) > 1:
        src, dst = carrier, np.roll(carrier, -1, axis=0)
        foreign = dst != np.arange(n)  # the ring ends in front of a block's own zone
        rounds.append(_messages(src[foreign], dst[foreign], 1, len(members) - 1))
    most = max(len(ranks) for ranks in members)
    if most > 1:  # one round of rings: a rank is sent all blocks but those that it carries
        heads = np.concatenate([np.roll(ranks, -1) for ranks in members])
        carried = np.bincount(carrier.ravel(), minlength=n)
        tails = np.concatenate(members)
        moves = tails != heads
        units = n - carried[heads]
        rounds.append(_messages(tails[moves], heads[moves], units[moves], most - 1))
    return Schedule(n, n, tuple(rounds))


_ALL_GATHERS: dict[Algorithm, Callable[[int], Schedule]] = {
    Algorithm.RING: ring,
    Algorithm.NEAR: near,
    Algorithm.FAR: far,
    Algorithm.BRUCK: bruck,
}
_ALL_REDUCES: dict[Algorithm, Callable[[int], Schedule]] = {
    Algorithm.RECURSIVE_DOUBLING: recursive_doubling,
    Algorithm.TREE: tree,
}


def algorithms(operation: Operation) -> tuple[Algorithm, ...]:
    """Return the algorithms known for an operation."""
    whole = _ALL_REDUCES if operation is Operation.ALL_REDUCE else ()
    return (*_ALL_GATHERS, Algorithm.HIERARCHICAL, *whole)


def schedule_of(operation: Operation, algorithm: Algorithm, zones: Ints, node: int = 1) -> Schedule:
    """Return the messages of one group whose ranks lie in `zones`, shape (n,). `node`: of trees.

    Only the hierarchical algorithm looks at the zones; the others know n alone. Raises: KeyError on
    a pair that `algorithms` does not list.
    """
    if algorithm is Algorithm.HIERARCHICAL:
        return _from_all_gather(operation, hierarchical(zones))
    if algorithm is Algorithm.TREE and node > 1:
        return tree(len(zones), node)
    return _of_size(operation, algorithm, len(zones))


@lru_cache(maxsize=256)
def _of_size(operation: Operation, algorithm: Algorithm, n: int) -> Schedule:
    if operation is Operation.ALL_REDUCE and algorithm in _ALL_REDUCES:
        return _ALL_REDUCES[algorithm](n)
    return _from_all_gather(operation, _ALL_GATHERS[algorithm](n))


def _from_all_gather(operation: Operation, gather: Schedule) -> Schedule:
    if operation is Operation.ALL_GATHER:
        return gather
    scatter = gather.backwards()
    return scatter if operation is Operation.REDUCE_SCATTER else scatter.then(gather)


# --- bytes and seconds ------------------------------------------------------------


def leaving(schedule: Schedule, zones: Ints, zone_count: int) -> Ints:
    """Count the units that leave each zone. Shape: (zone_count,)."""
    total = np.zeros(zone_count, dtype=np.int64)
    for messages in schedule.rounds:
        tail, head = zones[messages.src], zones[messages.dst]
        np.add.at(total, tail[tail != head], messages.units[tail != head])
    return total


@struct(frozen=True, slots=True)
class Link:
    """A link with its latency: seconds per message, and bytes per second of each rank."""

    alpha_s: float
    bytes_per_s: float


def schedule_seconds(
    schedule: Schedule,
    payload_bytes: float,
    link: Link,
    outside: Link | None = None,
    hosts: Ints | None = None,
) -> float:
    """Return the alpha-beta time of a schedule: rounds one after the other, each as long as its
    busiest rank.

    With `outside` and `hosts`, messages between hosts take that link instead; the ranks of a host
    share theirs, as the channels of a collective do. Source: Thakur, Rabenseifner and Gropp 2005,
    without the cost of the reduction.
    """
    unit_bytes = payload_bytes / schedule.parts
    home = np.zeros(schedule.size, dtype=np.int64) if outside is None or hosts is None else hosts
    ranks = np.bincount(home)
    far = outside or link
    total = 0.0
    for messages in schedule.rounds:
        leaves = home[messages.src] != home[messages.dst]
        inside = np.bincount(messages.src, messages.units * ~leaves, schedule.size)
        left = np.bincount(home[messages.src], messages.units * leaves, len(ranks))
        busy_s = max(
            float(inside.max()) * unit_bytes / link.bytes_per_s,
            float((left / np.maximum(ranks, 1)).max()) * unit_bytes / far.bytes_per_s,
        )
        alpha_s = far.alpha_s if leaves.any() else link.alpha_s
        total += messages.steps * alpha_s * bool(len(messages.src)) + busy_s
    return total
