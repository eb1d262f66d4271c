"""Which cables lead to a leaf, at every switch, before and after failures.

On a whole fabric all cables of a switch upwards lead there, and all those into the
leaf's domain downwards: picking one is arithmetic. After failures a switch may have a
cable that ends in front of one; only sub-flows at such switches are looked up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from placement.errors import BadInput
from placement.fabric.tree import Ints
from placement.network.fluid import CUT_OFF
from placement.network.reachability import Mask, any_by, domain_of, is_inside, reach
from placement.network.wiring import Links

Words = npt.NDArray[np.uint64]
CELLS = 1 << 23  # sub-flows x cables looked up at once


class Ways:
    """Which cables lead to each of these leaves, sorted."""

    def __init__(self, links: Links, leaves: Ints) -> None:
        self.links = links
        self.leaves = leaves
        self.ways: list[Mask] | None = None if links.is_whole else reach(links, leaves)

    def up(self, low: int, at: Ints, target: Ints, number: Words) -> Ints:
        ports = self.links.layers[low].uplinks
        first, count = ports.first[at], ports.count[at]
        if self.ways is None:
            return _nth(first, count, number)
        column = np.searchsorted(self.leaves, target)
        choice = Choice(first, count, number, self.ways[low + 1], ports.upper, column)
        return choice.picked(self._blocked_up[low][at, column])

    def down(self, low: int, at: Ints, target: Ints, number: Words) -> Ints:
        layer = self.links.layers[low]
        order, keys, begins = self._downwards[low]
        wanted = at * len(layer.domains) + self.links.domain_by_leaf[low][target]
        found = np.searchsorted(keys, wanted)
        found = np.where(np.append(keys, -1)[found] == wanted, found, len(keys))
        first, count = begins[found], np.diff(begins, append=begins[-1])[found]
        if self.ways is None:
            return np.asarray(order[_nth(first, count, number)])
        column = np.searchsorted(self.leaves, target)
        lower = layer.uplinks.lower[order]
        choice = Choice(first, count, number, self.ways[low], lower, column)
        return np.asarray(order[choice.picked(self._blocked_down[low][at, column])])

    @cached_property
    def _downwards(self) -> list[tuple[Ints, Ints, Ints]]:
        """By layer: cables sorted by upper switch and lower domain; where each pair begins."""
        found = []
        for layer in self.links.layers[:-1]:
            ports = layer.uplinks
            key = ports.upper * len(layer.domains) + domain_of(layer)[ports.lower]
            order = np.argsort(key, kind="stable")
            keys, begins = np.unique(key[order], return_index=True)
            found.append((order, keys, np.append(begins, len(key))))
        return found

    @cached_property
    def _blocked_up(self) -> list[Mask]:
        """By layer: has a switch an uplink that some leaf is not behind? (switches, leaves)"""
        found = []
        for layer, beyond in zip(self.links.layers[:-1], (self.ways or [])[1:], strict=True):
            ports = layer.uplinks
            found.append(any_by(ports.lower, ~beyond[ports.upper], layer.switch_count))
        return found

    @cached_property
    def _blocked_down(self) -> list[Mask]:
        """The same of the cables into a leaf's own domain; rows are upper switches."""
        found = []
        for low, (layer, ways) in enumerate(zip(self.links.layers, self.ways or [], strict=True)):
            if layer.ports is not None:
                lower, upper = layer.ports.lower, layer.ports.upper
                shut = is_inside(self.links, low, self.leaves)[lower] & ~ways[lower]
                found.append(any_by(upper, shut, self.links.layers[low + 1].switch_count))
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Cables `first` to `first + count` of each sub-flow, of which some lead nowhere.

    `far`: the switch at the far end of each cable; `usable`: may it be passed for the
    leaf of a `column`? Shape: (switches, leaves).
    """

    first: Ints
    count: Ints
    number: Words
    usable: Mask
    far: Ints
    column: Ints

    def picked(self, blocked: Mask) -> Ints:
        """Cable `number` modulo those that lead on.

        Raises: BadInput where none does.
        """
        if not self.count.all():
            raise BadInput("failed", CUT_OFF)
        cable = _nth(self.first, self.count, self.number)
        doubtful = np.flatnonzero(blocked)
        widest = int(self.count.max(initial=1))
        step = max(1, CELLS // widest)
        for begin in range(0, len(doubtful), step):
            here = doubtful[begin : begin + step]
            cable[here] = self._looked_up(here, widest)
        return cable

    def _looked_up(self, here: Ints, widest: int) -> Ints:
        held = np.arange(widest)
        cable = np.minimum(self.first[here, None] + held, len(self.far) - 1)
        good = (held < self.count[here, None]) & self.usable[
            self.far[cable], self.column[here, None]
        ]
        live = good.sum(axis=1)
        if not live.all():
            raise BadInput("failed", CUT_OFF)
        nth = (self.number[here] % live.astype(np.uint64)).astype(np.int64)
        picked: Ints = self.first[here] + (good.cumsum(axis=1) > nth[:, None]).argmax(axis=1)
        return picked


def _nth(first: Ints, count: Ints, number: Words) -> Ints:
    picked: Ints = first + (number % count.astype(np.uint64)).astype(np.int64)
    return picked
