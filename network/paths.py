"""Flows that each take one path, hop by hop.

Up to the first layer whose domain holds both ends, then down; at every switch one of
the cables that lead there. ECMP takes the one that a hash names, each switch with a
salt of its own. A pinned path reads the destination's number instead, digit by digit,
as D-mod-k routing does: on RoCE-24K, uplink k of a rack carries what goes to slot k of
any rack.

On a whole fabric all cables of a switch upwards lead there, and all those into the
leaf's domain downwards: picking one is arithmetic. After failures a switch may have a
cable that ends in front of a dead end; only sub-flows at such switches are looked up.

Source: RoCE (2024), sections on ECMP, path pinning and E-ECMP with queue-pair scaling.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
import numpy.typing as npt

from muster.structs import struct
from network.failures import CUT_OFF, reach, sum_by
from network.flows import Flows
from network.fluid import ByLink, every_cable
from network.wiring import Floats, Links, Mask
from placement import BadInput
from placement.fabric.tree import Ints

Words = npt.NDArray[np.uint64]
BATCH = 1 << 19  # queue pairs at once: 40 MB
CELLS = 1 << 23  # sub-flows x cables looked up at once


def path_loads(links: Links, flows: Flows, queue_pairs: int, salt: int | None) -> ByLink:
    """Return the bytes on every cable when each queue pair of each flow takes one path; pinned
    without `salt`.

    Raises: BadInput when two ends have no path left. Cost: O(sub-flows x hops); 0.5 s for a
    million.
    """
    walker = Walker(links, salt, links.leaf_by_gpu[flows.dst_gpu])
    total = every_cable(links, 0.0)
    batch = max(1, BATCH // queue_pairs)
    for begin in range(0, len(flows), batch):
        trips = trips_of(links, flows.part(slice(begin, begin + batch)), queue_pairs)
        for low, is_up, trip, cable in walker.hops(trips):
            loads = (total.up if is_up else total.down)[low]
            loads += np.bincount(cable, trips.bytes[trip], len(loads))
    return total


@struct(frozen=True, slots=True, eq=False)
class Trips:
    """One batch of sub-flows on their way. Shape of each field: (sub-flows,)."""

    source: Ints  # leaf
    target: Ints  # leaf
    slot: Ints  # number of the target NIC on its rail, in tree order
    key: Words  # hash of the five-tuple and the queue pair
    bytes: Floats


def trips_of(links: Links, flows: Flows, queue_pairs: int) -> Trips:
    """Split flows into queue pairs, routed by a hash of both NICs and the queue pair; each axis has
    connections of its own."""
    pair = np.tile(np.arange(queue_pairs), len(flows))
    flows = flows.part(np.repeat(np.arange(len(flows)), queue_pairs))
    key = mixed(flows.src_gpu.astype(np.uint64))
    for part in (flows.dst_gpu, flows.axis, pair):
        key = mixed(key ^ part.astype(np.uint64))
    leaf, target = links.leaf_by_gpu, flows.dst_gpu
    slot = target if links.is_mesh else target // links.fabric.gpus_per_host
    return Trips(leaf[flows.src_gpu], leaf[target], slot, key, flows.bytes / queue_pairs)


class Walker:
    """Carries sub-flows over `links` to some leaves. Pinned when `salt` is None."""

    def __init__(self, links: Links, salt: int | None, leaves: Ints) -> None:
        self.links = links
        self.salt = salt
        self.leaves = np.unique(leaves)
        self.passable = None if links.is_whole else reach(links, self.leaves)
        self.bundles: dict[tuple[int, bool], _Bundles] = {}

    def hops(self, trips: Trips) -> Iterator[tuple[int, bool, Ints, Ints]]:
        """Yield (lower layer, is up, sub-flows, their cables), in the order of travel."""
        at = trips.source.copy()
        top = self._turning_layer(trips)
        lows = range(len(self.links.layers) - 1)
        for low, is_up in (*((low, True) for low in lows), *((low, False) for low in lows[::-1])):
            going = np.flatnonzero(top > low)
            if not len(going):
                continue
            if (low, is_up) not in self.bundles:
                self.bundles[low, is_up] = _Bundles(
                    self.links, low, is_up, self.leaves, self.passable
                )
            number = self._number(trips, going, at, low, is_up)
            bundles = self.bundles[low, is_up]
            cable = bundles.chosen(at[going], trips.target[going], number)
            at[going] = bundles.far[cable]
            yield low, is_up, going, cable

    def _turning_layer(self, trips: Trips) -> Ints:
        """The first layer whose domain holds both ends; 0 for one leaf."""
        top = np.zeros(len(trips.source), dtype=np.int64)
        apart = trips.source != trips.target
        for level, domain in enumerate(self.links.domain_by_leaf[:-1]):
            apart = apart & ((domain[trips.source] != domain[trips.target]) | (level == 0))
            top += apart
        return top

    def _number(self, trips: Trips, going: Ints, at: Ints, low: int, is_up: bool) -> Words:
        """Return the number that a switch takes modulo the cables that it may choose from."""
        if self.salt is None:
            return (trips.slot[going] // self._radix(low, is_up)).astype(np.uint64)
        place = mixed(at[going].astype(np.uint64) * np.uint64(64) + np.uint64(2 * low + is_up))
        return mixed(trips.key[going] ^ place ^ mixed(np.uint64(self.salt)))

    def _radix(self, low: int, is_up: bool) -> int:
        """Return the weight of the digits of a slot number below this one."""
        widths = [layer.width for layer in self.links.layers[:-1]]
        if is_up:
            return prod(widths[:low])
        # A mesh comes down where the slot's own digit says; a plane has parallel cables.
        return prod(widths[: max(0, low - 1)] if self.links.is_mesh else widths[: low + 1])


class _Bundles:
    """The cables between two layers in one direction, in bundles among which a switch chooses
    for a leaf: all of its uplinks, or its cables down into the leaf's domain.

    `shut`: must the switch at the far end not be passed for a leaf? `is_doubtful`: may some
    cable of a switch lead to such a one? Shape: (switches, leaves); None on a whole fabric.
    """

    def __init__(
        self, links: Links, low: int, is_up: bool, leaves: Ints, passable: list[Mask] | None
    ) -> None:
        layer, cables = links.layers[low], links.layers[low].uplinks
        self.leaves = leaves
        if is_up:
            self.near, self.far, self.domains = cables.lower, cables.upper, 1
            self.domain_by_leaf, into = np.zeros_like(links.domain_by_leaf[low]), np.array([0])
        else:
            self.near, self.far, self.domains = cables.upper, cables.lower, len(layer.domains)
            self.domain_by_leaf = links.domain_by_leaf[low]
            into = layer.domain_by_switch[cables.lower]
        bundle = self.near * self.domains + into
        self.order = np.argsort(bundle, kind="stable")
        self.keys, begins = np.unique(bundle[self.order], return_index=True)
        self.begins = np.append(begins, len(bundle))
        self.is_doubtful: Mask | None = None
        if passable is not None:
            behind = ~passable[low + is_up]
            self.shut = behind if is_up else behind & links.around(low, leaves)
            switches = links.layers[low + (not is_up)].switch_count
            self.is_doubtful = sum_by(self.near, self.shut[self.far], switches)

    def chosen(self, at: Ints, leaf: Ints, number: Words) -> Ints:
        """Cable `number` modulo those of the bundle that lead on.

        Raises: BadInput where none does.
        """
        key = at * self.domains + self.domain_by_leaf[leaf]
        bundle = np.searchsorted(self.keys, key)
        if (np.append(self.keys, -1)[bundle] != key).any():
            raise BadInput("failed", CUT_OFF)
        first, count = self.begins[bundle], np.diff(self.begins)[bundle]
        nth = (number % count.astype(np.uint64)).astype(np.int64)
        if self.is_doubtful is not None:
            column = np.searchsorted(self.leaves, leaf)
            doubtful = np.flatnonzero(self.is_doubtful[at, column])
            step = max(1, CELLS // int(count.max()))
            for begin in range(0, len(doubtful), step):
                rows = doubtful[begin : begin + step]
                nth[rows] = self._live(first[rows], count[rows], column[rows], number[rows])
        return np.asarray(self.order[first + nth])

    def _live(self, first: Ints, count: Ints, column: Ints, number: Words) -> Ints:
        """Return the cable of its bundle that each sub-flow takes when only some lead on."""
        held = np.arange(count.max())
        cable = self.order[np.minimum(first[:, None] + held, len(self.order) - 1)]
        leads_on = (held < count[:, None]) & ~self.shut[self.far[cable], column[:, None]]
        live = leads_on.sum(axis=1)
        if not live.all():
            raise BadInput("failed", CUT_OFF)
        nth = (number % live.astype(np.uint64)).astype(np.int64)
        return np.asarray((leads_on.cumsum(axis=1) > nth[:, None]).argmax(axis=1))


def mixed(words: Words | np.uint64) -> Words:
    """Mix the bits of numbers by SplitMix64's finaliser: every bit of the input changes every bit
    of the output."""
    with np.errstate(over="ignore"):
        z = np.asarray(words, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
