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
from itertools import product
from math import inf

import numpy as np

from placement.fabric.constraints import with_gang_view
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric, Ints
from placement.graph.hypergraph import Hypergraph, block_graph
from placement.kernels import INFINITE
from placement.replace.near import Hint, seated_near
from placement.tiers.seating import Hosts
from placement.workload.request import Objective, Request

MOST_ZONES = 64  # beyond that every step costs more than it finds


@with_gang_view
def shifted(
    fabric: Fabric,
    request: Request,
    hosts: Hosts,
    room: HostSet,
    most: Sequence[int],
    most_rise: float = inf,
) -> Hosts | None:
    """Move blocks of a gang so that each outermost domain has at most so many. `hosts`: where the
    gang is or was, in block order; blocks that stay in their zone keep those of these hosts that
    are in `room`. `most`: blocks by outermost domain, no more than there is `room`. `most_rise`:
    bytes that it may cut more; a try that cuts twice as much more on the way is given up. None
    where that fails, the gang does not fit, or its graph is too large.
    """
    by_cut = request.objective in (Objective.CUT, Objective.TIME)
    if not fabric.tiers or not by_cut or request.where.has_segments:
        return None
    zones = fabric.tiers[0].domain_by_host[list(hosts)]
    graph = block_graph(request, fabric.gpus_per_host)
    if graph is None or len(most) > MOST_ZONES or sum(most) < len(hosts):
        return None
    border = _Borders(graph, zones.copy(), np.array(most, dtype=np.int64))
    border.join()
    if not border.relieve(2 * most_rise * graph.scale):
        return None
    border.join()
    if border.risen > most_rise * graph.scale:
        return None
    return seated_near(fabric, request, room, Hint(tuple(hosts)), border.zone)


class _Borders:
    """A layout on its way. `zone`: of each block; `most`: blocks that each zone may hold;
    `risen`: what it cuts more so far, in the units of the graph."""

    def __init__(self, graph: Hypergraph, zone: Ints, most: Ints) -> None:
        self._graph, self.zone, self._most = graph, zone, most
        self._held = np.bincount(zone, minlength=len(most))
        self.risen = 0
        weights = np.concatenate([graph.weight, graph.group_weight])
        least = int(weights[weights > 0].min(initial=INFINITE))
        self._a_move, zones = least if least < INFINITE else 1, len(most)
        meets = graph.group * zones + zone[graph.members]
        self._meets = np.bincount(meets, minlength=len(graph.group_weight) * zones)
        self._meets = self._meets.reshape(-1, zones)
        # What more is cut once a block is in another zone. Shape: (blocks, zones).
        self._dearer = self._priced(np.arange(graph.blocks))
        # From one zone to another: the block that goes at the least cost, and that cost.
        self._block = np.zeros((zones, zones), dtype=np.int64)
        self._more = np.full((zones, zones), INFINITE, dtype=np.int64)
        self._compare(range(zones))

    def relieve(self, most_rise: float) -> bool:
        """Move blocks until no zone holds too many; False: the cut would rise too much."""
        while (self._held > self._most).any():
            for here, there in self._cheapest_path():
                self._move(int(self._block[here, there]), there)
            if self.risen > most_rise:
                return False
        return True

    def join(self) -> None:
        """Move blocks while the cut saved exceeds the cost of moving, and there is room."""
        for _ in range(len(self.zone)):
            more = np.where(self._held < self._most, self._more, INFINITE)
            here, there = divmod(int(more.argmin()), len(self._most))
            if more[here, there] >= -self._a_move:
                return
            self._move(int(self._block[here, there]), there)

    def _move(self, block: int, there: int) -> None:
        near, here = self._graph.incidence, int(self.zone[block])
        self.risen += int(self._dearer[block, there])
        groups = near.in_group[near.in_begin[block] : near.in_begin[block + 1]]
        self._meets[groups, here] -= 1
        self._meets[groups, there] += 1
        self._held[here] -= 1
        self._held[there] += 1
        self.zone[block] = there
        # All whose price changes when the block moves.
        others = near.link_to[near.link_begin[block] : near.link_begin[block + 1]]
        members = self._graph.members[np.isin(self._graph.group, groups)]
        changed = np.unique(np.concatenate([others, members, [block]]))
        self._dearer[changed] = self._priced(changed)
        self._compare({here, there, *self.zone[changed].tolist()})

    def _priced(self, blocks: Ints) -> Ints:
        """Compute how much more is cut once each block is in another zone. Shape: (blocks,
        zones)."""
        near, zones = self._graph.incidence, len(self._most)
        at, link = _spans(near.link_begin, blocks)
        more = np.zeros((len(blocks), zones), dtype=np.int64)
        np.subtract.at(more, (at, self.zone[near.link_to[link]]), near.link_weight[link])
        at, link = _spans(near.in_begin, blocks)
        if len(at):
            group = near.in_group[link]
            others = self._meets[group]
            others[np.arange(len(at)), self.zone[blocks[at]]] -= 1
            weight = self._graph.group_weight[group][:, None]
            np.add.at(more, at, np.where(others == 0, weight, 0))
        return np.asarray(more - more[np.arange(len(blocks)), self.zone[blocks]][:, None])

    def _compare(self, zones: Iterable[int]) -> None:
        """Who leaves these zones first, anew."""
        for here in zones:
            members = np.flatnonzero(self.zone == here)
            self._more[here] = INFINITE
            if len(members):
                dearer = self._dearer[members]
                first = dearer.argmin(axis=0)
                self._block[here] = members[first]
                self._more[here] = dearer[first, np.arange(len(self._most))]
                self._more[here, here] = INFINITE

    def _cheapest_path(self) -> list[tuple[int, int]]:
        """The cheapest way from a zone that holds too many to one with room, by steps."""
        price = np.where(self._more < INFINITE, np.maximum(self._more, 0) + self._a_move, INFINITE)
        steps = price.tolist()
        cost = np.where(self._held > self._most, 0, INFINITE).tolist()
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
    """Find the entries of these blocks in a list sorted by block: whose they are, and where."""
    begin, count = ends[blocks], ends[blocks + 1] - ends[blocks]
    at = np.repeat(np.arange(len(blocks)), count)
    return at, np.arange(len(at)) + (begin - np.cumsum(count) + count)[at]
