"""Simulated annealing of a layout of a hypergraph, vertex by vertex: `annealed`.

A proposal takes a vertex to the domain of one of its neighbours; where that is full, in
exchange for one that is there. It is accepted by Metropolis' rule (Kirkpatrick et al. 1983):
always when it cuts less, and the more rarely the more it cuts, as the temperature falls.

Work is counted in proposals, random words come from Marsaglia's xorshift with 32 bits, which a
seed starts, and everything that decides is an integer or a rounded constant: the same answer on
every machine.
See docs/engine.md, "The search".
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import log
from typing import NamedTuple

import numpy as np

from placement.fabric.tree import Floats, Ints
from placement.graph.hypergraph import Hypergraph, Incidence
from placement.kernels import Kernel, refill

STRAY = 6_554  # of 65,536 idle proposals that try any domain at all: a tenth
# Draws of Metropolis' rule: -log of evenly spaced numbers, rounded.
DRAWS = np.array([round(-log((i + 0.5) / 1024), 6) for i in range(1024)])
WORD = 0xFFFFFFFF
STAGES = 40  # temperatures, which fall geometrically; the last is 0
HOT, WARM, COLD = 0.5, 0.6, 0.15  # in weights: of the dearest, the median, the least edge


class AnnealingState(NamedTuple):
    """An assignment of vertices to domains in the course of annealing.

    `at`: domain of each vertex, `best` the best one so far. By domain: `slack`, blocks it can still
    take, `held`, vertices in it. `members`: the vertices of each domain, as many places as there
    are vertices for each; `seat`: where each vertex stands there. `counts`: of each group in each
    domain.
    """

    at: Ints
    best: Ints
    slack: Ints
    held: Ints
    members: Ints
    seat: Ints
    counts: Ints


def _next(word: int) -> int:
    word ^= word << 13 & WORD
    word ^= word >> 17
    return word ^ (word << 5 & WORD)


def _dearer(graph: Incidence, now: AnnealingState, vertex: int, here: int, there: int) -> int:
    """Return by how much the cut grows when `vertex` goes from `here` to `there`."""
    at, to, weight = now.at, graph.link_to, graph.link_weight
    more = 0
    for link in range(graph.link_begin[vertex], graph.link_begin[vertex + 1]):
        where = at[to[link]]
        if where == here:
            more += weight[link]
        elif where == there:
            more -= weight[link]
    counts, domains = now.counts, len(now.slack)
    for k in range(graph.in_begin[vertex], graph.in_begin[vertex + 1]):
        first = graph.in_group[k] * domains
        left = counts[first + here] - graph.in_count[k]
        met = counts[first + there]
        if graph.in_clique[k]:
            more += graph.in_price[k] * (left - met)
        else:
            more += graph.in_price[k] * ((left > 0) - (met > 0))
    return more


def _shift(graph: Incidence, now: AnnealingState, vertex: int, here: int, there: int) -> None:
    counts, domains = now.counts, len(now.slack)
    now.at[vertex] = there
    for k in range(graph.in_begin[vertex], graph.in_begin[vertex + 1]):
        first = graph.in_group[k] * domains
        counts[first + here] -= graph.in_count[k]
        counts[first + there] += graph.in_count[k]


def _reseat(now: AnnealingState, vertex: int, here: int, there: int) -> None:
    """From one list of members to the other; the last one takes the empty seat."""
    order = len(now.at)
    members, seat, held = now.members, now.seat, now.held
    held[here] -= 1
    last = members[here * order + held[here]]
    members[here * order + seat[vertex]] = last
    seat[last] = seat[vertex]
    seat[vertex] = held[there]
    members[there * order + held[there]] = vertex
    held[there] += 1


def _move_vertex(
    graph: Incidence, now: AnnealingState, vertex: int, there: int, word: int, most: float
) -> tuple[bool, int]:
    """Take a vertex to the domain `there`, in exchange for a random one where that is full, if
    it costs at most `most`: whether it did, and what it cost."""
    here, sizes, other = now.at[vertex], graph.sizes, -1
    extra = sizes[vertex]
    if now.slack[there] < extra:
        if not now.held[there]:
            return False, 0
        other = now.members[there * len(now.at) + (word * now.held[there] >> 32)]
        extra -= sizes[other]
        if now.slack[there] < extra or now.slack[here] < -extra:
            return False, 0
    more = _dearer(graph, now, vertex, here, there)
    if other < 0 and more > most:
        return False, 0
    _shift(graph, now, vertex, here, there)
    if other >= 0:
        more += _dearer(graph, now, other, there, here)
        if more > most:
            _shift(graph, now, vertex, there, here)
            return False, 0
        _shift(graph, now, other, there, here)
        _reseat(now, other, there, here)
    _reseat(now, vertex, here, there)
    now.slack[here] += extra
    now.slack[there] -= extra
    return True, more


def _wish(
    graph: Incidence, now: AnnealingState, open_: Ints, vertex: int, word: int
) -> tuple[int, int]:
    """The domain to try, the vertex's own for none: that of a neighbour; where they are together,
    now and then any. And the last random word."""
    begin = graph.near_begin[vertex]
    degree = graph.near_begin[vertex + 1] - begin
    word = _next(word)
    there = now.at[graph.near_to[begin + (word * degree >> 32)]]
    if there == now.at[vertex]:
        word = _next(word)
        if (word & 0xFFFF) < STRAY:
            there = open_[(word >> 16) * len(open_) >> 16]
    return there, word


def _anneal(
    graph: Incidence,
    now: AnnealingState,
    movable: Ints,
    open_: Ints,
    temperatures: Floats,
    draws: Floats,
    each: int,
    enough: int,
    word: int,
) -> int:
    """Make so many proposals at each temperature, until `enough` is saved; how much was at most.

    `movable`: vertices with somewhere to go; `open_`: domains with room; `word`: not zero.
    """
    saved = most_saved = 0
    for warmth in temperatures:
        for _ in range(each):
            word = _next(word)
            vertex = movable[word * len(movable) >> 32]
            there, word = _wish(graph, now, open_, vertex, word)
            if there == now.at[vertex]:
                continue
            word = _next(word)
            most = warmth * draws[word >> 22]
            word = _next(word)
            is_done, more = _move_vertex(graph, now, vertex, there, word, most)
            if is_done:
                saved -= more
                if saved > most_saved:
                    most_saved = saved
                    refill(now.best, now.at)
                    if most_saved >= enough:
                        return most_saved
    return most_saved


anneal = Kernel(_anneal, _next, _dearer, _shift, _reseat, _move_vertex, _wish)


def annealed(
    graph: Hypergraph,
    capacities: Sequence[int],
    start: Ints,
    proposals: int,
    rng: random.Random,
    target: int,
    heat: float = 1.0,
    *,
    is_hot: bool = False,
) -> Ints:
    """Return the best layout met from `start`, which respects the capacities; the search ends at
    the cost `target`.

    `is_hot`: begin as hot as for a start that is worth nothing; `heat`: times the usual
    temperatures.
    """
    weights = np.sort(graph.savings[2])
    weights = weights[weights > 0]
    excess = graph.cost(start) - target
    if not len(weights) or excess <= 0:
        return start
    first = HOT * int(weights[-1]) if is_hot else WARM * int(weights[len(weights) // 2])
    first *= heat
    last = min(first, COLD * int(weights[0]))
    ratio = last / first
    steps = [stage / (STAGES - 1) for stage in range(STAGES - 1)]
    temperatures = [*(round(first * ratio**step, 3) for step in steps), 0.0]
    incidence, now = graph.incidence, _standing(graph, capacities, start)
    movable = np.flatnonzero(np.diff(incidence.near_begin))
    open_ = np.flatnonzero(np.array(capacities))
    each, word = proposals // STAGES + 1, rng.randrange(1, 1 << 32)
    falling = np.array(temperatures)
    anneal.run(proposals, incidence, now, movable, open_, falling, DRAWS, each, excess, word)
    return now.best


def _standing(graph: Hypergraph, capacities: Sequence[int], start: Ints) -> AnnealingState:
    domains, order = len(capacities), graph.blocks
    slack = np.array(capacities, dtype=np.int64)
    np.subtract.at(slack, start, graph.sizes)
    held = np.bincount(start, minlength=domains)
    by_domain = np.argsort(start, kind="stable")
    seat = np.empty(order, dtype=np.int64)
    seat[by_domain] = np.arange(order) - (np.cumsum(held) - held)[start[by_domain]]
    members = np.zeros(domains * order, dtype=np.int64)
    members[start * order + seat] = np.arange(order)
    counts = np.zeros(len(graph.group_weight) * domains, dtype=np.int64)
    np.add.at(counts, graph.group * domains + start[graph.members], graph.counts)
    return AnnealingState(start.copy(), start.copy(), slack, held, members, seat, counts)
