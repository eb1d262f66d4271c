"""The inner loop of annealing, over flat arrays: `anneal`.

Random words come from Marsaglia's xorshift with 32 bits, which a seed starts.
"""

from __future__ import annotations

from math import log
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from placement.fabric.tree import Ints
from placement.kernels import Kernel, refill

STRAY = 6_554  # of 65,536 idle proposals that try any domain at all: a tenth
# Draws of Metropolis' rule: -log of evenly spaced numbers, rounded.
DRAWS = np.array([round(-log((i + 0.5) / 1024), 6) for i in range(1024)])
WORD = 0xFFFFFFFF


class Board(NamedTuple):
    """A graph of pieces. What belongs to vertex v of a list stands at begin[v] to begin[v + 1].

    `sizes`: blocks of each vertex. `link_*`: neighbours, and the weight of the edge.
    `near_*`: others whose domain is worth a try. `in_*`: the groups of a vertex, what it
    counts in each and what parting costs: by count for a clique, else for each domain.
    """

    sizes: Ints
    link_begin: Ints
    link_to: Ints
    link_weight: Ints
    near_begin: Ints
    near_to: Ints
    in_begin: Ints
    in_group: Ints
    in_count: Ints
    in_price: Ints
    in_clique: Ints


class Standing(NamedTuple):
    """An assignment on its way.

    `at`: domain of each vertex, `best` the best one so far. By domain: `slack`, blocks it can
    still take, `held`, vertices in it. `members`: the vertices of each domain, as many places
    as there are vertices for each; `seat`: where each vertex stands there. `counts`: of
    each group in each domain.
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


def _dearer(board: Board, now: Standing, vertex: int, here: int, there: int) -> int:
    """What the cut grows by when `vertex` goes from `here` to `there`."""
    at, to, weight = now.at, board.link_to, board.link_weight
    more = 0
    for link in range(board.link_begin[vertex], board.link_begin[vertex + 1]):
        where = at[to[link]]
        if where == here:
            more += weight[link]
        elif where == there:
            more -= weight[link]
    counts, domains = now.counts, len(now.slack)
    for k in range(board.in_begin[vertex], board.in_begin[vertex + 1]):
        first = board.in_group[k] * domains
        left = counts[first + here] - board.in_count[k]
        met = counts[first + there]
        if board.in_clique[k]:
            more += board.in_price[k] * (left - met)
        else:
            more += board.in_price[k] * ((left > 0) - (met > 0))
    return more


def _shift(board: Board, now: Standing, vertex: int, here: int, there: int) -> None:
    counts, domains = now.counts, len(now.slack)
    now.at[vertex] = there
    for k in range(board.in_begin[vertex], board.in_begin[vertex + 1]):
        first = board.in_group[k] * domains
        counts[first + here] -= board.in_count[k]
        counts[first + there] += board.in_count[k]


def _reseat(now: Standing, vertex: int, here: int, there: int) -> None:
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


def _trade(now: Standing, vertex: int, other: int, here: int, there: int) -> None:
    order = len(now.at)
    members, seat = now.members, now.seat
    members[here * order + seat[vertex]] = other
    members[there * order + seat[other]] = vertex
    seat[vertex], seat[other] = seat[other], seat[vertex]


def _exchange(
    board: Board, now: Standing, vertex: int, there: int, word: int, most: float
) -> tuple[bool, int]:
    """Trade places with a piece of the full domain `there` where that costs at most `most`:
    whether it did, and what it cost."""
    here, sizes = now.at[vertex], board.sizes
    if not now.held[there]:
        return False, 0
    other = now.members[there * len(now.at) + (word * now.held[there] >> 32)]
    extra = sizes[vertex] - sizes[other]
    if now.slack[there] < extra or now.slack[here] < -extra:
        return False, 0
    more = _dearer(board, now, vertex, here, there)
    _shift(board, now, vertex, here, there)
    more += _dearer(board, now, other, there, here)
    if more > most:
        _shift(board, now, vertex, there, here)
        return False, 0
    _shift(board, now, other, there, here)
    _trade(now, vertex, other, here, there)
    now.slack[here] += extra
    now.slack[there] -= extra
    return True, more


def _go(board: Board, now: Standing, vertex: int, there: int, most: float) -> tuple[bool, int]:
    """The same for a domain with room."""
    here = now.at[vertex]
    more = _dearer(board, now, vertex, here, there)
    if more > most:
        return False, 0
    _shift(board, now, vertex, here, there)
    _reseat(now, vertex, here, there)
    now.slack[here] += board.sizes[vertex]
    now.slack[there] -= board.sizes[vertex]
    return True, more


def _wish(board: Board, now: Standing, open_: Ints, vertex: int, word: int) -> tuple[int, int]:
    """The domain to try, the vertex's own for none: that of a neighbour; where they are together,
    now and then any. And the last random word."""
    begin = board.near_begin[vertex]
    degree = board.near_begin[vertex + 1] - begin
    word = _next(word)
    there = now.at[board.near_to[begin + (word * degree >> 32)]]
    if there == now.at[vertex]:
        word = _next(word)
        if (word & 0xFFFF) < STRAY:
            there = open_[(word >> 16) * len(open_) >> 16]
    return there, word


def _anneal(
    board: Board,
    now: Standing,
    movable: Ints,
    open_: Ints,
    temperatures: npt.NDArray[np.float64],
    draws: npt.NDArray[np.float64],
    each: int,
    enough: int,
    word: int,
) -> int:
    """So many proposals at each temperature, until `enough` is saved; how much was at most.

    `movable`: vertices with somewhere to go; `open_`: domains with room; `word`: not zero.
    """
    saved = most_saved = 0
    for warmth in temperatures:
        for _ in range(each):
            word = _next(word)
            vertex = movable[word * len(movable) >> 32]
            there, word = _wish(board, now, open_, vertex, word)
            if there == now.at[vertex]:
                continue
            word = _next(word)
            most = warmth * draws[word >> 22]
            if now.slack[there] < board.sizes[vertex]:
                word = _next(word)
                is_done, more = _exchange(board, now, vertex, there, word, most)
            else:
                is_done, more = _go(board, now, vertex, there, most)
            if is_done:
                saved -= more
                if saved > most_saved:
                    most_saved = saved
                    refill(now.best, now.at)
                    if most_saved >= enough:
                        return most_saved
    return most_saved


anneal = Kernel(_anneal, _next, _dearer, _shift, _reseat, _trade, _exchange, _go, _wish)
