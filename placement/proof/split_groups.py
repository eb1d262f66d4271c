"""Lower bounds on the cut of layouts that split P groups.

Groups are of k blocks, as in `groups`. A layout that parts P of them costs what it does on the
loose grid, and P times what a parted group has lost there. And *lane by lane*: it costs P prices
and the least cut of whole groups over zones that hold what zones may hold of one lane. Let a zone
have u groups whole and q more blocks of the lane, which are of parted groups. Then

    k u + q <= its hosts,    and all q add up to at most P,

so that a zone holds t blocks takes q >= (k t - hosts) / (k - 1), and t hosts at least. How many
zones hold t or more, at most, is a count of those with the smallest q, and such counts make up
zones again. For each P the better bound counts; the first few P are all that have to be proved.
See docs/engine.md, "Groups kept together".
"""

from __future__ import annotations

from collections.abc import Sequence

from placement.bound.size_relaxation import by_sizes
from placement.grid.groups import Groups
from placement.grid.layout import Layout, patterns_of
from placement.proof.branch_and_price import Prover
from placement.proof.node import QUICK_STATES
from placement.workload.request import SHARES

LEAST_PARTED = 0.005  # of the cut: what a parted group must cost to be thought of
MOST_PROVED = 12  # numbers of parted groups for which more than sizes is asked


def lane_rooms(capacities: Sequence[int], size: int, parted: int) -> list[int]:
    """Return the room of zones for a lane, such that zones of no layout that splits so many groups
    of `size` blocks hold more.

    Sorted zones of any such layout hold no more, one by one, of the cheapest lane.
    """
    rooms: list[int] = []
    zones = sorted((c for c in capacities if c), reverse=True)
    for t in range(1, max(zones, default=0) + 1):
        beyond = sorted(max(0, -(-(size * t - c) // (size - 1))) for c in zones if c >= t)
        many, left = 0, parted
        for q in beyond:
            left -= q
            if left < 0:
                break
            many += 1
        if not many:
            break
        rooms[:many] = [t] * many
    return rooms


class Parted:
    """A lower bound on layouts that split groups, which improves from call to call."""

    def __init__(self, groups: Groups, capacities: Sequence[int], whole: Layout) -> None:
        """`whole`: a layout of the grid of groups."""
        self.groups, self._capacities, self._layout = groups, capacities, whole
        self._loose = -1  # not known yet
        self._known: dict[int, int] = {}  # by lanes, for each number of parted groups
        self._provers: dict[int, Prover] = {}

    def prove(self, cost: int, least: int, rounds: int) -> int:
        """Return a lower bound on layouts that split a group, capped at `cost`, by so many rounds
        of each proof that is needed. Stops once it falls below `least`."""
        groups, bound, parted = self.groups, cost, 1
        if groups.parted < LEAST_PARTED * cost:
            return 0
        if self._loose < 0:
            self._loose = self._proved_loose(cost)
        while parted <= groups.whole.size and bound >= least:
            loose, paid = self._loose + parted * groups.parted, parted * groups.price
            if loose >= cost or paid >= cost:
                break
            lanes = paid + self._by_lanes(parted, cost - paid, loose - paid, rounds)
            bound = min(bound, max(loose, lanes))
            parted += 1
        return bound

    def _proved_loose(self, cost: int) -> int:
        """The bound of the loose grid; 0 where it takes long or is far below `cost`."""
        groups = self.groups
        need, bound = cost - groups.parted, by_sizes(groups.loose, self._capacities)
        if bound < need:
            seeds = patterns_of(groups.laid_out(self._layout), len(self._capacities))
            prover = Prover(groups.loose, self._capacities, seeds)
            if prover.states <= QUICK_STATES:
                bound = max(bound, prover.prove(need, 1, is_last=True))
        return bound

    def _by_lanes(self, parted: int, need: int, known: int, rounds: int) -> int:
        """The bound of whole groups over zones that hold a lane if so many groups are parted. A
        proof that is behind what is `known` after one round gets a small share of them."""
        whole = self.groups.whole
        rooms = lane_rooms(self._capacities, self.groups.size, parted)
        if parted not in self._known:
            self._known[parted] = by_sizes(whole, rooms)
        if self._known[parted] < need and parted not in self._provers:
            if len(self._provers) == MOST_PROVED:
                return self._known[parted]
            seeds = patterns_of(self._layout, len(self._capacities))
            self._provers[parted] = Prover(whole, rooms, seeds)
            self._ask(parted, need, 1)
        if self._known[parted] < need and rounds > 1:
            self._ask(parted, need, rounds if self._known[parted] >= known else rounds // SHARES[1])
        return self._known[parted]

    def _ask(self, parted: int, need: int, rounds: int) -> None:
        proved = self._provers[parted].prove(need, rounds)
        self._known[parted] = max(self._known[parted], proved)
