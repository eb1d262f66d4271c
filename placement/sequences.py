"""Layouts as sequences of runs, annealed: who comes where along one order of the blocks, and with
how many.

Where groups end at every fifth place and zones are nearly full, what a sequence of zones cuts
depends on which of them stand side by side: those that add up to whole groups. Moves of single
blocks never get there, for each border on the way costs more. So what moves is runs: two of them
trade places or zones, one goes elsewhere, blocks go from one to another, part of one begins a
new one, a stretch is turned round. All that lies between moves along, and ends of whole
groups stay ends of whole groups. A zone may have several runs: side by side in two stages it keeps
pipeline edges inside.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from placement.annealing import DRAWS, WORD, _next
from placement.blockgraph import BlockGraph
from placement.compiled import Kernel, refill
from placement.fabric import Ints

MOST_MOVED = 12  # blocks at once from one run to another, unless all go
SPLIT = 3  # runs for each zone at most
HOT, COLD = 1.0, 0.2  # temperature at first and at last: times an edge's median weight
STEPS = 64  # from one to the other
A_LOOK = 8  # part of all changes that is tried along each order
FAR = 1.1  # times the cost of a known layout


class Edges(NamedTuple):
    """Of a graph whose blocks are numbered along the order: two ends, weight. Members of group g
    stand at begin[g] to begin[g + 1]."""

    tail: Ints
    head: Ints
    weight: Ints
    begin: Ints
    member: Ints
    group_weight: Ints


class Row(NamedTuple):
    """Runs one after the other, by `zone` and `length`: `many[0]` of them. `used`: by zone."""

    zone: Ints
    length: Ints
    used: Ints
    many: Ints


class Room(NamedTuple):
    """`layout`: the zone of each block along the order, the `best` one so far; `seen`: by zone."""

    layout: Ints
    best: Ints
    seen: Ints


def _below(word: int, many: int) -> int:
    """A random number below `many`."""
    return (word >> 8) * many >> 24


def _cost(row: Row, edges: Edges, room: Room) -> int:
    """What the runs cut; their layout."""
    layout, place, total = room.layout, 0, 0
    for k in range(row.many[0]):
        for _ in range(row.length[k]):
            layout[place] = row.zone[k]
            place += 1
    for e in range(len(edges.tail)):
        if layout[edges.tail[e]] != layout[edges.head[e]]:
            total += edges.weight[e]
    for zone in range(len(room.seen)):
        room.seen[zone] = -1
    for group in range(len(edges.group_weight)):
        touched = -1
        for k in range(edges.begin[group], edges.begin[group + 1]):
            zone = layout[edges.member[k]]
            if room.seen[zone] != group:
                room.seen[zone] = group
                touched += 1
        total += touched * edges.group_weight[group]
    return total


def _copied(to: Row, row: Row) -> None:
    for k in range(row.many[0]):
        to.zone[k], to.length[k] = row.zone[k], row.length[k]
    for zone in range(len(row.used)):
        to.used[zone] = row.used[zone]
    to.many[0] = row.many[0]


def _tidy(row: Row) -> None:
    """Without empty runs, and neighbours of one zone as one."""
    many = 0
    for k in range(row.many[0]):
        if not row.length[k]:
            continue
        if many and row.zone[many - 1] == row.zone[k]:
            row.length[many - 1] += row.length[k]
        else:
            row.zone[many], row.length[many] = row.zone[k], row.length[k]
            many += 1
    row.many[0] = many


def _swapped(row: Row, a: int, b: int) -> None:
    zone, length = row.zone[a], row.length[a]
    row.zone[a], row.length[a] = row.zone[b], row.length[b]
    row.zone[b], row.length[b] = zone, length


def _gone(row: Row, a: int, b: int) -> None:
    """The run at `a` goes to `b`."""
    step = 1 if a < b else -1
    for k in range(a, b, step):
        _swapped(row, k, k + step)


def _has_room(row: Row, room: Ints, one: int, other: int, blocks: int) -> bool:
    """Whether so many blocks could go from a zone to another one; then they do."""
    if one != other:
        if row.used[other] + blocks > room[other]:
            return False
        row.used[one] -= blocks
        row.used[other] += blocks
    return True


def _part(row: Row, room: Ints, a: int, b: int, blocks: int, zone: int) -> bool:
    """So many blocks of run `a` become a run of a zone at place `b`."""
    last = row.many[0]
    if last == len(row.zone) or not _has_room(row, room, row.zone[a], zone, blocks):
        return False
    row.length[a] -= blocks
    row.zone[last], row.length[last] = zone, blocks
    row.many[0] = last + 1
    _gone(row, last, b)
    return True


def _traded(row: Row, room: Ints, a: int, b: int) -> bool:
    """Two runs trade zones."""
    one, other, more = row.zone[a], row.zone[b], row.length[a] - row.length[b]
    if one == other or row.used[other] + more > room[other] or row.used[one] - more > room[one]:
        return False
    row.used[one] -= more
    row.used[other] += more
    row.zone[a], row.zone[b] = other, one
    return True


def _moved(row: Row, room: Ints, word: int) -> int:
    """Some change, unless it is impossible; the next random word, negative if nothing changed."""
    count = row.many[0]
    kind = _below(word, 20)
    word = _next(word)
    a = _below(word, count)
    word = _next(word)
    b = _below(word, count)
    word = _next(word)
    is_done = a != b
    if kind < 4:
        _swapped(row, a, b)
    elif kind < 8:
        _gone(row, a, b)
    elif kind < 15:
        blocks = 1 + _below(word, min(row.length[a], MOST_MOVED))
        word = _next(word)
        way = _below(word, 8)
        if way < 4:
            b = a + (1 if way < 2 else -1)
        if way == 7:
            blocks = row.length[a]
        is_done = a != b and 0 <= b < count
        is_done = is_done and _has_room(row, room, row.zone[a], row.zone[b], blocks)
        if is_done:
            row.length[a] -= blocks
            row.length[b] += blocks
    elif kind < 17:
        blocks = 1 + _below(word, row.length[a])
        word = _next(word)
        zone = row.zone[a] if kind == 15 else _below(word, len(room))
        is_done = _part(row, room, a, b, blocks, zone)
    elif kind < 19:
        is_done = is_done and _traded(row, room, a, b)
    else:
        first, last = min(a, b), max(a, b)
        while first < last:
            _swapped(row, first, last)
            first, last = first + 1, last - 1
    word = _next(word)
    return word if is_done else -word


def _anneal_runs(
    row: Row,
    other: Row,
    capacities: Ints,
    edges: Edges,
    room: Room,
    tries: int,
    heats: Ints,
    draws: Ints,
    target: int,
    word: int,
) -> int:
    """So many changes from a row on, `other` like it, until one costs `target`; the least met."""
    cost = _cost(row, edges, room)
    refill(room.best, room.layout)
    least = cost
    for step in range(tries):
        if least <= target:
            break
        word = _moved(other, capacities, word)
        if word < 0:
            word = -word
            _copied(other, row)
            continue
        _tidy(other)
        found = _cost(other, edges, room)
        if found < least:
            least = found
            refill(room.best, room.layout)
        if found - cost <= heats[step * len(heats) // tries] * draws[word & 1023]:
            cost = found
            _copied(row, other)
        else:
            _copied(other, row)
    return least


PARTS = (_next, _below, _cost, _copied, _tidy, _swapped, _gone, _has_room, _part, _traded, _moved)
anneal_runs = Kernel(_anneal_runs, *PARTS)


def best_sequence(
    graph: BlockGraph,
    orders: Sequence[Ints],
    capacities: Sequence[int],
    tries: int,
    known: int,
    target: int,
) -> Ints | None:
    """The best layout that so many changes come by along the order which looks best after a part
    of them; None where that is far from the `known` cost. The zones must hold the graph."""
    tried = [annealed_runs(graph, order, capacities, tries // A_LOOK, target) for order in orders]
    costs = [graph.cost(layout) for layout in tried]
    first = costs.index(min(costs))
    if costs[first] > FAR * known:
        return None
    if costs[first] <= target:
        return tried[first]
    return annealed_runs(graph, orders[first], capacities, tries, target)


def annealed_runs(
    graph: BlockGraph, order: Ints, capacities: Sequence[int], tries: int, target: int
) -> Ints:
    """The best layout of runs along the order that so many changes come by, from the roomiest
    zones one after the other. The zones must hold the graph."""
    room, blocks = np.array(capacities, dtype=np.int64), graph.blocks
    edges = _along(graph, order)
    row = _first(room, blocks)
    other = Row(*(part.copy() for part in row))
    layout, best = np.zeros((2, blocks), dtype=np.int64)
    weight = float(np.median(graph.weight)) if len(graph.weight) else 1.0
    heats = weight * HOT * (COLD / HOT) ** (np.arange(STEPS) / STEPS)
    seed = random.Random(f"sequences {blocks} {sorted(capacities)}").randrange(1, WORD)
    anneal_runs.run(
        tries * (len(graph.tail) + len(graph.members) + blocks),
        row,
        other,
        room,
        edges,
        Room(layout, best, np.zeros(len(room), dtype=np.int64)),
        tries,
        np.rint(heats).astype(np.int64),
        DRAWS,
        target,
        seed,
    )
    found = np.empty(blocks, dtype=np.int64)
    found[order] = best
    return found


def _first(room: Ints, blocks: int) -> Row:
    zones = np.argsort(-room, kind="stable")
    lengths = np.minimum(room[zones], np.maximum(0, blocks - np.cumsum(room[zones]) + room[zones]))
    zones, lengths = zones[lengths > 0], lengths[lengths > 0]
    zone, length = np.zeros((2, SPLIT * np.count_nonzero(room)), dtype=np.int64)
    zone[: len(zones)], length[: len(zones)] = zones, lengths
    used = np.zeros(len(room), dtype=np.int64)
    used[zones] = lengths
    return Row(zone, length, used, np.array([len(zones)]))


def _along(graph: BlockGraph, order: Ints) -> Edges:
    place = np.empty(graph.blocks, dtype=np.int64)
    place[order] = np.arange(graph.blocks)
    begin = np.searchsorted(graph.group, np.arange(len(graph.group_weight) + 1))
    return Edges(
        place[graph.tail],
        place[graph.head],
        graph.weight,
        begin,
        place[graph.members],
        graph.group_weight,
    )
