"""Flows that each take one path, hop by hop.

Up to the first layer whose domain holds both ends, then down; at every switch one of
the cables that lead there. ECMP takes the one that a hash names, each switch with a
salt of its own. A pinned path reads the destination's number instead, digit by digit,
as D-mod-k routing does: on RoCE-24K, uplink k of a rack carries what goes to slot k of
any rack.

Source: RoCE (2024), sections on ECMP, path pinning and E-ECMP with queue-pair scaling.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

from placement.congestion.flows import Floats
from placement.errors import BadInput
from placement.fabric import Ints
from placement.links.reach import Mask, domain_of, reach
from placement.links.spread import CUT_OFF, CableLoads, idle
from placement.links.wiring import Links

Words = npt.NDArray[np.uint64]
CELLS = 1 << 23  # sub-flows x cables at once, where failures must be looked up


@dataclass(frozen=True, slots=True, eq=False)
class Trips:
    """Sub-flows of one batch. Shape of each: (sub-flows,)."""

    source: Ints  # leaf
    target: Ints  # leaf
    slot: Ints  # number of the target NIC on its rail, in tree order
    key: Words  # hash of the five-tuple and the queue pair
    bytes: Floats


class Walker:
    """Carries sub-flows over `links`. Pinned when `salt` is None."""

    def __init__(self, links: Links, salt: int | None) -> None:
        self.links = links
        self.salt = salt

    def loads(self, trips: Trips) -> CableLoads:
        """Bytes on every cable. Cost: O(sub-flows x hops); 0.5 s for a million."""
        total = idle(self.links)
        for direction, low, trip, cable in self.hops(trips):
            loads = (total.up if direction == "up" else total.down)[low]
            loads += np.bincount(cable, trips.bytes[trip], len(loads))
        return total

    def hops(self, trips: Trips) -> Iterator[tuple[str, int, Ints, Ints]]:
        """(direction, lower layer, sub-flows, their cables), in the order of travel.

        Raises: BadInput when two ends have no path left.
        """
        at = trips.source.copy()
        ways = _Ways(self.links, trips.target)
        top = self._turning_layer(trips)
        layers = self.links.layers
        for low in range(len(layers) - 1):
            going = np.flatnonzero(top > low)
            number = self._number(trips, going, at, low, is_up=True)
            cable = ways.up(low, at[going], going, number)
            at[going] = layers[low].uplinks.upper[cable]
            yield "up", low, going, cable
        for low in range(len(layers) - 2, -1, -1):
            going = np.flatnonzero(top > low)
            number = self._number(trips, going, at, low, is_up=False)
            cable = ways.down(low, at[going], going, number)
            at[going] = layers[low].uplinks.lower[cable]
            yield "down", low, going, cable

    def _turning_layer(self, trips: Trips) -> Ints:
        """The first layer whose domain holds both ends; 0 for one leaf."""
        top = np.zeros(len(trips.source), dtype=np.int64)
        apart = trips.source != trips.target
        for level, domain in enumerate(self.links.domain_by_leaf[:-1]):
            apart = apart & ((domain[trips.source] != domain[trips.target]) | (level == 0))
            top += apart
        return top

    def _number(self, trips: Trips, going: Ints, at: Ints, low: int, is_up: bool) -> Words:
        """What a switch picks by: taken modulo the cables that it may choose from."""
        if self.salt is None:
            return (trips.slot[going] // self._radix(low, is_up)).astype(np.uint64)
        place = mixed(at[going].astype(np.uint64) * np.uint64(64) + np.uint64(2 * low + is_up))
        return mixed(trips.key[going] ^ place ^ mixed(np.uint64(self.salt)))

    def _radix(self, low: int, is_up: bool) -> int:
        """What the digits of a slot number below this one count for."""
        widths = [layer.width for layer in self.links.layers[:-1]]
        if is_up:
            return prod(widths[:low])
        # A mesh comes down where the slot's own digit says; a plane has parallel cables.
        return prod(widths[: max(0, low - 1)] if self.links.is_mesh else widths[: low + 1])


def mixed(words: Words | np.uint64) -> Words:
    """SplitMix64's finaliser: every bit of the input reaches every bit of the output."""
    with np.errstate(over="ignore"):
        z = np.asarray(words, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


class _Ways:
    """Which cables lead to the target of each trip."""

    def __init__(self, links: Links, target: Ints) -> None:
        self.links = links
        self.leaves, self.column = np.unique(target, return_inverse=True)
        self.ways: list[Mask] | None = None if links.is_whole else reach(links, self.leaves)

    def up(self, low: int, at: Ints, trips: Ints, number: Words) -> Ints:
        ports = self.links.layers[low].uplinks
        usable = None if self.ways is None else self.ways[low + 1]
        first, count = ports.first[at], ports.count[at]
        return self._pick(first, count, number, trips, ports.upper, usable)

    def down(self, low: int, at: Ints, trips: Ints, number: Words) -> Ints:
        layer = self.links.layers[low]
        order, keys, begins = self._downwards[low]
        wanted = (
            at * len(layer.domains)
            + self.links.domain_by_leaf[low][self.leaves][self.column[trips]]
        )
        found = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        is_there = keys[found] == wanted if len(keys) else np.zeros(len(at), dtype=np.bool_)
        count = np.where(is_there, begins[found + 1] - begins[found], 0)
        usable = None if self.ways is None else self.ways[low]
        picked = self._pick(begins[found], count, number, trips, layer.uplinks.lower[order], usable)
        return order[picked]

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

    def _pick(
        self, first: Ints, count: Ints, number: Words, trips: Ints, far: Ints, usable: Mask | None
    ) -> Ints:
        """Cable `number` modulo those that lead on, of `count` from `first`.

        `far`: the switch at the far end of each; `usable`: may it be passed? Shape:
        (switches, leaves).
        """
        if usable is None:
            return first + (number % count.astype(np.uint64)).astype(np.int64)
        if len(first) and not count.all():
            raise BadInput("failed", CUT_OFF)
        picked = np.empty(len(first), dtype=np.int64)
        widest = int(count.max(initial=1))
        step = max(1, CELLS // widest)
        for begin in range(0, len(first), step):
            here = slice(begin, begin + step)
            column = self.column[trips[here], None]
            cable = first[here, None] + np.arange(widest)
            held = np.minimum(cable, len(far) - 1)
            good = (np.arange(widest) < count[here, None]) & usable[far[held], column]
            live = good.sum(axis=1)
            if not live.all():
                raise BadInput("failed", CUT_OFF)
            nth = (number[here] % live.astype(np.uint64)).astype(np.int64)
            picked[here] = first[here] + (good.cumsum(axis=1) > nth[:, None]).argmax(axis=1)
        return picked
