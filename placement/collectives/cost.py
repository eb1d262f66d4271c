"""Collectives as message schedules: who sends how much to whom, round by round.

A schedule is counted, never looked up: the bytes over a boundary are the bytes of the
messages whose ends lie on two sides of it, and the time is that of its rounds. The
closed forms of the literature are tests of it (tests/unit/placement/test_collectives.py).

    rank      0 .. n-1, the position in the group
    zone      of each rank; shape (n,), or (groups, n) to count many groups at once
    payload   S, bytes: the whole vector, so that a rank's own block is S/n; for
              all-to-all what each rank sends, its own block included
    unit      S / parts, the grain in which a schedule counts

A reduce-scatter is the all-gather played backwards, an all-reduce the one after the other
(Thakur, Rabenseifner and Gropp 2005). Which neighbour comes first decides what crosses:
with *near first* a reduce-scatter meets distance 1 first, while its messages are large, and
the all-gather that mirrors it ends there: over Z zones only 2(Z-1)S crosses. *Far first*
sends the large messages over the boundary: ranks-per-zone times more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

import numpy as np

from placement.collectives import schedules
from placement.collectives.schedules import Schedule
from placement.fabric.tree import Ints


class Operation(StrEnum):
    """What a group computes together."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    BROADCAST = "broadcast"
    ALL_TO_ALL = "all-to-all"


class Algorithm(StrEnum):
    """How. Near and far name the distance at which the large messages go."""

    RING = "ring"
    NEAR = "halving-doubling, near first"
    FAR = "halving-doubling, far first"
    RECURSIVE_DOUBLING = "recursive doubling"
    BRUCK = "bruck"
    TREE = "double binary tree"
    HIERARCHICAL = "hierarchical"
    BINOMIAL = "binomial tree"
    PAIRWISE = "pairwise"


_GATHERS: dict[Algorithm, Callable[[int], Schedule]] = {
    Algorithm.RING: schedules.ring,
    Algorithm.NEAR: schedules.near,
    Algorithm.FAR: schedules.far,
    Algorithm.BRUCK: schedules.bruck,
}
_WHOLE: dict[tuple[Operation, Algorithm], Callable[[int], Schedule]] = {
    (Operation.ALL_REDUCE, Algorithm.RECURSIVE_DOUBLING): schedules.recursive_doubling,
    (Operation.ALL_REDUCE, Algorithm.TREE): schedules.tree,
    (Operation.BROADCAST, Algorithm.BINOMIAL): schedules.binomial,
    (Operation.BROADCAST, Algorithm.RING): schedules.chain,
    (Operation.ALL_TO_ALL, Algorithm.PAIRWISE): schedules.pairwise,
}


# --- counting ----------------------------------------------------------------


def crossing(schedule: Schedule, zones: Ints) -> Ints:
    """Units over zone boundaries, both directions. Shape: (groups,), or () for one group."""
    total = np.zeros(zones.shape[:-1], dtype=np.int64)
    for messages in schedule.rounds:
        crosses = zones[..., messages.src] != zones[..., messages.dst]
        total = total + crosses @ messages.units
    return total


def leaving(schedule: Schedule, zones: Ints, zone_count: int) -> Ints:
    """Units that leave each zone, of one group. Shape: (zone_count,)."""
    total = np.zeros(zone_count, dtype=np.int64)
    for messages in schedule.rounds:
        tail, head = zones[messages.src], zones[messages.dst]
        np.add.at(total, tail[tail != head], messages.units[tail != head])
    return total


def kappa(schedule: Schedule, zones: Ints) -> Fraction:
    """Payloads that cross zone boundaries, of one group (papers: bytes / S)."""
    return Fraction(int(crossing(schedule, zones)), schedule.parts)


def busiest_share(schedule: Schedule) -> Fraction:
    """What the busiest rank sends, as a share of the payload."""
    sent = np.zeros(schedule.size, dtype=np.int64)
    for messages in schedule.rounds:
        np.add.at(sent, messages.src, messages.units)
    return Fraction(int(sent.max()), schedule.parts)


@dataclass(frozen=True, slots=True)
class Link:
    """One hop: seconds per message and bytes per second of each rank."""

    alpha_s: float
    bytes_per_s: float


def seconds(
    schedule: Schedule,
    payload_bytes: float,
    link: Link,
    outside: Link | None = None,
    hosts: Ints | None = None,
) -> float:
    """Alpha-beta time: rounds in turn, each as long as its busiest rank.

    With `outside` and `hosts`, messages between hosts take that link instead; the ranks
    of a host share theirs, as the channels of a collective do.
    Source: Thakur, Rabenseifner and Gropp 2005, without the cost of the reduction.
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


def bus_factor(operation: Operation, n: int) -> Fraction:
    """Bus bandwidth / algorithm bandwidth. Source: nccl-tests, doc/PERFORMANCE.md."""
    match operation:
        case Operation.ALL_REDUCE:
            return Fraction(2 * (n - 1), n)
        case Operation.BROADCAST:
            return Fraction(1)
        case _:
            return Fraction(n - 1, n)


# --- schedules ---------------------------------------------------------------


def schedule(operation: Operation, algorithm: Algorithm, zones: Ints) -> Schedule:
    """The messages of one group whose ranks lie in `zones`, shape (n,).

    Only the hierarchical algorithm looks at the zones; the others know n alone.
    Raises: KeyError on a pair that `algorithms` does not list.
    """
    if algorithm is Algorithm.HIERARCHICAL:
        gather = schedules.hierarchical(zones)
    elif algorithm in _GATHERS:
        gather = _gathered(algorithm, len(zones))
    else:
        return _whole(operation, algorithm, len(zones))
    match operation:
        case Operation.ALL_GATHER:
            return gather
        case Operation.REDUCE_SCATTER:
            return gather.backwards()
        case Operation.ALL_REDUCE:
            return gather.backwards().then(gather)
        case _:
            return _whole(operation, algorithm, len(zones))


def algorithms(operation: Operation) -> tuple[Algorithm, ...]:
    """The algorithms known for an operation."""
    gathers: tuple[Algorithm, ...] = ()
    if operation in (Operation.ALL_REDUCE, Operation.ALL_GATHER, Operation.REDUCE_SCATTER):
        gathers = (*_GATHERS, Algorithm.HIERARCHICAL)
    return (*gathers, *(algorithm for op, algorithm in _WHOLE if op is operation))


@lru_cache(maxsize=256)
def _gathered(algorithm: Algorithm, n: int) -> Schedule:
    return _GATHERS[algorithm](n)


@lru_cache(maxsize=256)
def _whole(operation: Operation, algorithm: Algorithm, n: int) -> Schedule:
    return _WHOLE[operation, algorithm](n)
