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
from math import prod

import numpy as np

from placement.fabric.tree import Ints
from placement.network.flows import Floats
from placement.network.fluid import CableLoads, idle
from placement.network.ways import Ways, Words
from placement.network.wiring import Links


@dataclass(frozen=True, slots=True, eq=False)
class Trips:
    """Sub-flows of one batch. Shape of each: (sub-flows,)."""

    source: Ints  # leaf
    target: Ints  # leaf
    slot: Ints  # number of the target NIC on its rail, in tree order
    key: Words  # hash of the five-tuple and the queue pair
    bytes: Floats


class Walker:
    """Carries sub-flows over `links` to some leaves. Pinned when `salt` is None."""

    def __init__(self, links: Links, salt: int | None, leaves: Ints) -> None:
        self.links = links
        self.salt = salt
        self.ways = Ways(links, np.unique(leaves))

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
        top = self._turning_layer(trips)
        layers = self.links.layers
        for low in range(len(layers) - 1):
            going = np.flatnonzero(top > low)
            number = self._number(trips, going, at, low, is_up=True)
            cable = self.ways.up(low, at[going], trips.target[going], number)
            at[going] = layers[low].uplinks.upper[cable]
            yield "up", low, going, cable
        for low in range(len(layers) - 2, -1, -1):
            going = np.flatnonzero(top > low)
            number = self._number(trips, going, at, low, is_up=False)
            cable = self.ways.down(low, at[going], trips.target[going], number)
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
