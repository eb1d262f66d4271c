"""Traffic spread over every shortest path, as a fluid.

Each switch divides what it has for a leaf over the cables that lead there, in
proportion to their weights: equal ones are the ideal that no single path per flow
reaches, unequal ones are what adaptive routing settles on.

Theory of operation. Traffic is a matrix, switch x destination leaf. One layer up, the
rows of cables that share an upper switch are added; what has reached a domain that
holds its leaf turns round, and is divided over the cables into the leaf's domain on
every layer down. Leaves are taken in batches of columns, so memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placement.errors import BadInput
from placement.fabric.tree import Ints
from placement.network.reachability import Floats, Mask, domain_of, is_inside, reach, sum_by
from placement.network.wiring import Links

CUT_OFF = "leaves hosts of the job no path to each other"
CELLS = 4_000_000  # cables x leaves at once: 32 MB


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """By layer below the top: how a switch favours its cables. Shape: (cables,)."""

    up: tuple[Floats, ...]
    down: tuple[Floats, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CableLoads:
    """Bytes on each cable, by layer below the top. Shape: (cables,)."""

    up: tuple[Floats, ...]
    down: tuple[Floats, ...]

    def __add__(self, other: CableLoads) -> CableLoads:
        return CableLoads(
            tuple(a + b for a, b in zip(self.up, other.up, strict=True)),
            tuple(a + b for a, b in zip(self.down, other.down, strict=True)),
        )


def idle(links: Links) -> CableLoads:
    """Nothing on any cable."""
    zero = tuple(np.zeros(len(layer.uplinks.lower)) for layer in links.layers[:-1])
    return CableLoads(zero, tuple(load.copy() for load in zero))


def even(links: Links) -> Weights:
    """Every cable alike."""
    ones = tuple(np.ones(len(layer.uplinks.lower)) for layer in links.layers[:-1])
    return Weights(ones, ones)


def spread(
    links: Links, source: Ints, target: Ints, sizes: Floats, weights: Weights | None = None
) -> CableLoads:
    """Load of every cable when leaf `source[i]` sends `sizes[i]` bytes to `target[i]`.

    Raises: BadInput when two leaves have no path left.
    Cost: O(cables x destination leaves); 0.2 s for 16,384 GPUs of RoCE-24K.
    """
    total = idle(links)
    chosen = weights or even(links)
    most = max((len(layer.uplinks.lower) for layer in links.layers[:-1]), default=1)
    for leaves, demand in _batches(links, source, target, sizes, max(1, CELLS // most)):
        total += _Flood(links, leaves, chosen).loads(demand)
    return total


def _batches(
    links: Links, source: Ints, target: Ints, sizes: Floats, width: int
) -> Iterator[tuple[Ints, Floats]]:
    """Destination leaves, and what each leaf has for them. Shape: (leaves, batch)."""
    away = source != target
    order = np.flatnonzero(away)[np.argsort(target[away], kind="stable")]
    leaves, begins = np.unique(target[order], return_index=True)
    begins = np.append(begins, len(order))
    for begin in range(0, len(leaves), width):
        batch = leaves[begin : begin + width]
        here = order[begins[begin] : begins[begin + len(batch)]]
        demand = np.zeros((links.layers[0].switch_count, len(batch)))
        np.add.at(demand, (source[here], np.searchsorted(batch, target[here])), sizes[here])
        yield batch, demand


class _Flood:
    """One batch of destination leaves on its way."""

    def __init__(self, links: Links, leaves: Ints, weights: Weights) -> None:
        self.links = links
        self.leaves = leaves
        self.weights = weights
        self.ways = None if links.is_whole else reach(links, leaves)

    def loads(self, demand: Floats) -> CableLoads:
        ups: list[Floats] = []
        turning: list[Floats] = []
        for low in range(len(self.links.layers) - 1):
            inside = is_inside(self.links, low, self.leaves)
            turning.append(np.where(inside, demand, 0.0))
            load, demand = self._climb(low, np.where(inside, 0.0, demand))
            ups.append(load)
        downs: list[Floats] = []
        for low in range(len(self.links.layers) - 2, -1, -1):
            load, demand = self._descend(low, demand)
            downs.insert(0, load)
            demand = demand + turning[low]
        return CableLoads(tuple(ups), tuple(downs))

    def _climb(self, low: int, demand: Floats) -> tuple[Floats, Floats]:
        """Load of the cables above layer `low`, and the traffic one layer higher."""
        ports = self.links.layers[low].uplinks
        sending = np.flatnonzero(_busy(demand)[ports.lower])
        lower, upper = ports.lower[sending], ports.upper[sending]
        share = np.repeat(self.weights.up[low][sending, None], len(self.leaves), axis=1)
        if self.ways is not None:
            share *= self.ways[low + 1][upper]
        moved = _divided(demand, lower, share)
        load = np.zeros(len(ports.lower))
        load[sending] = moved.sum(axis=1)
        return load, sum_by(upper, moved, self.links.layers[low + 1].switch_count)

    def _descend(self, low: int, demand: Floats) -> tuple[Floats, Floats]:
        """Load of the cables below layer `low + 1`, and the traffic one layer lower."""
        layer = self.links.layers[low]
        ports = layer.uplinks
        holds = np.isin(domain_of(layer), self.links.domain_by_leaf[low][self.leaves])
        wanted = np.flatnonzero(holds[ports.lower] & _busy(demand)[ports.upper])
        lower, upper = ports.lower[wanted], ports.upper[wanted]
        share = (
            self.weights.down[low][wanted, None] * is_inside(self.links, low, self.leaves)[lower]
        )
        if self.ways is not None:
            share *= self.ways[low][lower]
        moved = _divided(demand, upper, share)
        load = np.zeros(len(ports.lower))
        load[wanted] = moved.sum(axis=1)
        return load, sum_by(lower, moved, layer.switch_count)


def _busy(demand: Floats) -> Mask:
    """Which switches have anything to pass on."""
    return np.asarray(demand.any(axis=1))


def _divided(demand: Floats, switch: Ints, share: Floats) -> Floats:
    """Traffic of each switch over its cables. Shape: (cables, leaves)."""
    whole = sum_by(switch, share, len(demand))
    if ((demand > 0) & (whole == 0)).any():
        raise BadInput("failed", CUT_OFF)
    per_share = np.divide(demand, whole, out=np.zeros_like(demand), where=whole > 0)
    moved: npt.NDArray[np.float64] = share * per_share[switch]
    return moved
