"""Zones that hold too many blocks of a gang give some up, the fewest that can be.

Where the blocks of a zone end, those of the next begin: one block at the border changes
sides for little or no cut, and where it is the next zone that has no room, that one gives
up a block in turn. So each block that has to leave goes the cheapest way from border to border
to a zone with room, priced by the cut that every step adds and, for each block that moves,
by one edge of the lightest kind. Nothing else moves, but blocks that lie apart from their
neighbours, where their place among them has room again.
See docs/engine.md, "Near an old placement".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import product
from math import inf

import numpy as np

from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric, Ints
from placement.graph.hypergraph import Hypergraph, block_graph
from placement.replace.near import Hint, seated_near
from placement.tiers.seating import Hosts
from placement.workload.request import Objective, Request

MOST_ZONES = 64  # beyond that every step costs more than it finds
NEVER = np.iinfo(np.int64).max // 4


def shifted(
    fabric: Fabric,
    request: Request,
    hosts: Hosts,
    room: HostSet,
    most: Sequence[int],
    most_rise: float = inf,
) -> Hosts | None:
    """The gang with at most so many blocks in each outermost domain.

    `hosts`: those in block order that it is on, or was: those of them that are in `room`
    are kept by blocks that stay in their zone. `most`: by outermost domain, no more than there is
    `room` in it. `most_rise`: bytes that it may cut more; what comes to twice as much on the way is
    given up. None then, where the gang does not fit, or where its graph is too large.
    """
    if not fabric.tiers or request.objective is not Objective.CUT:
        return None
    zones = fabric.tiers[0].domain_by_host[list(hosts)]
    links = _links(request, fabric.gpus_per_host)
    if links is None or len(most) > MOST_ZONES or sum(most) < len(hosts):
        return None
    border = _Borders(links, zones.copy(), np.array(most, dtype=np.int64))
    border.join()
    if not border.relieve(2 * most_rise * links.graph.scale):
        return None
    border.join()
    if border.risen > most_rise * links.graph.scale:
        return None
    return seated_near(fabric, request, room, Hint(tuple(hosts)), border.zone)


@lru_cache(maxsize=8)
def _links(request: Request, gpus_per_host: int) -> _Links | None:
    graph = block_graph(request, gpus_per_host)
    return None if graph is None else _Links(graph)


class _Links:
    """A graph by block: what each is tied to, and the groups it is in.

    `ends` and `groups`: by block, what is its own in the lists beside them.
    """

    def __init__(self, graph: Hypergraph) -> None:
        tied = np.concatenate([graph.tail, graph.head])
        order = np.argsort(tied, kind="stable")
        self.other = np.concatenate([graph.head, graph.tail])[order]
        self.weight = np.concatenate([graph.weight, graph.weight])[order]
        self.ends = np.searchsorted(tied[order], np.arange(graph.blocks + 1))
        order = np.argsort(graph.members, kind="stable")
        self.group = graph.group[order]
        self.groups = np.searchsorted(graph.members[order], np.arange(graph.blocks + 1))
        self.graph = graph
        weights = np.concatenate([graph.weight, graph.group_weight])
        self.least = int(weights[weights > 0].min(initial=NEVER))
        self.member_of = np.searchsorted(graph.group, np.arange(len(graph.group_weight) + 1))

    def beside(self, block: int) -> Ints:
        """This block and all whose price changes when it moves."""
        groups = self.group[self.groups[block] : self.groups[block + 1]].tolist()
        parts = [self.other[self.ends[block] : self.ends[block + 1]], np.array([block])]
        members, begin = self.graph.members, self.member_of
        parts += [members[begin[group] : begin[group + 1]] for group in groups]
        return np.unique(np.concatenate(parts))


class _Borders:
    """A layout on its way. `zone`: of each block; `most`: blocks that each zone may hold;
    `risen`: what it cuts more so far, in the units of the graph."""

    def __init__(self, links: _Links, zone: Ints, most: Ints) -> None:
        self._links, self.zone, self._most = links, zone, most
        self._held = np.bincount(zone, minlength=len(most))
        self.risen = 0
        self._a_move = links.least if links.least < NEVER else 1
        graph, zones = links.graph, len(most)
        meets = graph.group * zones + zone[graph.members]
        self._meets = np.bincount(meets, minlength=len(graph.group_weight) * zones)
        self._meets = self._meets.reshape(-1, zones)
        # What more is cut once a block is in another zone. Shape: (blocks, zones).
        self._dearer = self._priced(np.arange(graph.blocks))
        # From one zone to another: the block that goes at the least cost, and that cost.
        self._block = np.zeros((zones, zones), dtype=np.int64)
        self._more = np.full((zones, zones), NEVER, dtype=np.int64)
        self._compare(range(zones))

    def relieve(self, most_rise: float) -> bool:
        """Until no zone holds too many, for which there is room somewhere, or more is cut than
        that: whether it came so far."""
        while (self._held > self._most).any():
            for here, there in self._way():
                self._move(int(self._block[here, there]), there)
            if self.risen > most_rise:
                return False
        return True

    def join(self) -> None:
        """Blocks to where they cut less by more than their move counts for, while there is
        room."""
        for _ in range(len(self.zone)):
            more = np.where(self._held < self._most, self._more, NEVER)
            here, there = divmod(int(more.argmin()), len(self._most))
            if more[here, there] >= -self._a_move:
                return
            self._move(int(self._block[here, there]), there)

    def _move(self, block: int, there: int) -> None:
        links, here = self._links, int(self.zone[block])
        self.risen += int(self._dearer[block, there])
        groups = links.group[links.groups[block] : links.groups[block + 1]]
        self._meets[groups, here] -= 1
        self._meets[groups, there] += 1
        self._held[here] -= 1
        self._held[there] += 1
        self.zone[block] = there
        beside = links.beside(block)
        self._dearer[beside] = self._priced(beside)
        self._compare({here, there, *self.zone[beside].tolist()})

    def _priced(self, blocks: Ints) -> Ints:
        """What more is cut once each of these is in another zone. Shape: (them, zones)."""
        links, zones = self._links, len(self._most)
        at, link = _spans(links.ends, blocks)
        more = np.zeros((len(blocks), zones), dtype=np.int64)
        np.subtract.at(more, (at, self.zone[links.other[link]]), links.weight[link])
        at, link = _spans(links.groups, blocks)
        if len(at):
            group = links.group[link]
            others = self._meets[group]
            others[np.arange(len(at)), self.zone[blocks[at]]] -= 1
            weight = links.graph.group_weight[group][:, None]
            np.add.at(more, at, np.where(others == 0, weight, 0))
        return np.asarray(more - more[np.arange(len(blocks)), self.zone[blocks]][:, None])

    def _compare(self, zones: Iterable[int]) -> None:
        """Who leaves these zones first, anew."""
        for here in zones:
            members = np.flatnonzero(self.zone == here)
            self._more[here] = NEVER
            if len(members):
                dearer = self._dearer[members]
                first = dearer.argmin(axis=0)
                self._block[here] = members[first]
                self._more[here] = dearer[first, np.arange(len(self._most))]
                self._more[here, here] = NEVER

    def _way(self) -> list[tuple[int, int]]:
        """The cheapest way from a zone that holds too many to one with room, by steps."""
        price = np.where(self._more < NEVER, np.maximum(self._more, 0) + self._a_move, NEVER)
        steps = price.tolist()
        cost = np.where(self._held > self._most, 0, NEVER).tolist()
        before, zones, is_less = [-1] * len(cost), range(len(cost)), True
        while is_less:
            is_less = False
            for here, there in product(zones, zones):
                if cost[here] + steps[here][there] < cost[there]:
                    cost[there], before[there] = cost[here] + steps[here][there], here
                    is_less = True
        open_ = (self._held < self._most).tolist()
        there = min((z for z in zones if open_[z]), key=lambda z: (cost[z], z))
        way: list[tuple[int, int]] = []
        while before[there] >= 0:
            way.append((before[there], there))
            there = before[there]
        return way[::-1]


def _spans(ends: Ints, blocks: Ints) -> tuple[Ints, Ints]:
    """What is of these blocks in a list by block: at which of them, and where in the list."""
    begin, count = ends[blocks], ends[blocks + 1] - ends[blocks]
    at = np.repeat(np.arange(len(blocks)), count)
    return at, np.arange(len(at)) + (begin - np.cumsum(count) + count)[at]
