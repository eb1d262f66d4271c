"""Bandwidth inside and between domains, proved by maximum flow over every single switch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from muster.structs import struct
from network.wiring import Layer, Links
from placement import max_flow
from placement.fabric.tree import Ints

INSIDE, OUT_OF = "inside", "out of"


@struct(frozen=True, slots=True)
class Proof:
    """A proved bandwidth between two sets of hosts. Units: bytes per second, one direction.

    `what`: INSIDE (one half of the domain to the other) or OUT_OF the domain. `injection`: what the
    NICs of the smaller side can send. `flow`: what the network carries at most, and does carry.
    `nominal`: the oversubscription of what is measured that the fabric file states.
    """

    what: str
    tier: str
    domain: str
    injection: float
    flow: float
    nominal: float

    @property
    def oversubscription(self) -> float:
        return self.injection / self.flow if self.flow else float("inf")


def proofs(links: Links) -> tuple[Proof, ...]:
    """Return the maximum flow out of, and inside, the tightest domain of each tier, inner first.

    Tightest: with the fewest live cables, out of it or out of its children, for its NICs;
    the first of several. Cost: 0.1 s for 24,576 GPUs.
    """
    proved, below = [], None
    for level, layer in enumerate(links.layers):
        count = len(layer.domains)
        if below is not None:
            cables = np.bincount(layer.domain_by_switch[below.uplinks.upper], minlength=count)
            domain = int(np.argmin(cables / layer.nics))
            is_child = links.domain_by_leaf[level] == domain
            children = np.unique(links.domain_by_leaf[level - 1][is_child])
            halves = np.split(children, [len(children) // 2])  # the first one is smaller
            proved.append(_proof(links, INSIDE, level, domain, level - 1, halves))
        if layer is not links.layers[-1]:
            domain = int(np.argmin(_uplinks(layer) / layer.nics))
            sides = np.array([domain]), np.delete(np.arange(count), domain)
            proved.append(_proof(links, OUT_OF, level, domain, level, sides))
        below = layer
    return tuple(proved)


def _uplinks(layer: Layer) -> Ints:
    """Live uplinks by domain."""
    return np.bincount(layer.domain_by_switch[layer.uplinks.lower], minlength=len(layer.domains))


def _proof(
    links: Links, subject: str, level: int, domain: int, low: int, sides: Sequence[Ints]
) -> Proof:
    """The proof for a domain of layer `level`; `sides`: two sets of domains of layer `low`."""
    layer, below, rate = links.layers[level], links.layers[low], links.link_bytes_per_s
    nics = int(min(below.nics[side].sum() for side in sides))
    source, sink = (
        np.flatnonzero(np.isin(links.domain_by_leaf[low], side) & links.live_leaf) for side in sides
    )
    flow = _max_flow(links, source, sink, level if subject == INSIDE else len(links.layers) - 1)
    measured = sides[0] if subject == OUT_OF else np.concatenate(sides)
    nominal = float(below.oversubscription[measured].max())
    return Proof(subject, layer.tier, layer.domains[domain], nics * rate, flow * rate, nominal)


def _max_flow(links: Links, source: Ints, sink: Ints, top: int) -> int:
    """In cables, from some leaf switches to others over switches up to layer `top`."""
    layers, nics = links.layers[: top + 1], links.nics_by_leaf
    first = np.cumsum([0, *(layer.switch_count for layer in layers)])  # numbers of switches
    begin, end = first[-1], first[-1] + 1
    arcs = [(np.full(len(source), begin), source, nics[source])]
    arcs.append((sink, np.full(len(sink), end), nics[sink]))
    for low, layer in enumerate(layers[:-1]):
        ends = first[low] + layer.uplinks.lower, first[low + 1] + layer.uplinks.upper
        one = np.ones(len(layer.uplinks), dtype=np.int64)
        arcs += [(*ends, one), (*ends[::-1], one)]
    tails, heads, capacities = map(np.concatenate, zip(*arcs, strict=True))
    return max_flow(tails, heads, capacities, int(begin), int(end))
