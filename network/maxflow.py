"""Bandwidth inside and between domains, proved by maximum flow and by spreading.

The bandwidth between two sets of hosts is enclosed by two cheap numbers. From above: a
maximum flow on the graph whose equivalent switches (one domain, rail and layer) are
merged, which can only gain. From below: real traffic, spread evenly over every shortest
path of the unmerged fabric and scaled until its fullest cable is full. Where the two
meet, merging is proved exact. Where they do not (uneven cables, failures), the maximum
flow over every single switch decides, rail by rail.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from muster.structs import struct
from network.fluid import spread
from network.wiring import Layer, Links
from placement import BadInput
from placement.fabric.tree import Ints

if TYPE_CHECKING:
    import networkx as nx  # a tenth of a second: imported where it is used

INSIDE, OUT_OF = "inside", "out of"
Node = str | tuple[int, int]
SAME = 1e-9
MOST_WORK = 1_000_000_000  # cables x leaves to reach: 100,000 GPUs in racks of 16, 20 s


class By(StrEnum):
    """How a bandwidth is proved."""

    SPREADING = "even spreading reaches the cut"
    MAX_FLOW = "max flow over every switch"
    CUT = "cables in between, an upper bound"  # a fabric too large for the other two


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
    by: By

    @property
    def oversubscription(self) -> float:
        return self.injection / self.flow if self.flow else float("inf")


def proofs(links: Links) -> tuple[Proof, ...]:
    """Return the maximum flow out of, and inside, the tightest domain of each tier, inner first.

    Tightest: with the fewest live cables, out of it or out of its children, for its NICs;
    the first of several. Cost: 1 s for 24,576 GPUs.
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
    nics, cables = (
        int(min(count[side].sum() for side in sides)) for count in (below.nics, _uplinks(below))
    )
    flow, by = float(min(nics, cables)), By.CUT
    source, sink = (
        np.flatnonzero(np.isin(links.domain_by_leaf[low], side) & links.live_leaf) for side in sides
    )
    if sum(len(layer.uplinks) for layer in links.layers) * len(sink) <= MOST_WORK:
        top = level if subject == INSIDE else len(links.layers) - 1
        flow, by = _max_flow(links, source, sink, top, is_merged=True), By.SPREADING
        if flow - _carried(links, source, sink) > SAME * flow:
            flow, by = _max_flow(links, source, sink, top, is_merged=False), By.MAX_FLOW
    measured = sides[0] if subject == OUT_OF else np.concatenate(sides)
    nominal = float(below.oversubscription[measured].max())
    return Proof(subject, layer.tier, layer.domains[domain], nics * rate, flow * rate, nominal, by)


def _carried(links: Links, source: Ints, sink: Ints) -> float:
    """Cables' worth of traffic that even spreading carries. Every pair of a rail talks."""
    rail = np.arange(links.layers[0].switch_count) % links.rails
    nics = links.nics_by_leaf
    a, b = (ends.ravel() for ends in np.meshgrid(source, sink))
    a, b = a[rail[a] == rail[b]], b[rail[a] == rail[b]]
    sent = np.bincount(rail[source], nics[source], links.rails)
    taken = np.bincount(rail[sink], nics[sink], links.rails)
    sizes = nics[a] * nics[b] / np.maximum(sent, taken)[rail[a]]
    try:
        loads = spread(links, a, b, sizes)
    except BadInput:  # some pair has no path left
        return 0.0
    return float(sizes.sum()) / max(1.0, loads.most)


def _max_flow(links: Links, source: Ints, sink: Ints, top: int, is_merged: bool) -> float:
    """In cables. Rails are networks of their own: alike, unless something has failed."""
    import networkx as nx

    one_for_all = links.is_whole and not is_merged
    network = _network(links, top, is_merged)
    network.add_nodes_from(("source", "sink"))
    for leaf in source:
        if not (one_for_all and leaf % links.rails):
            network.add_edge("source", (0, int(leaf)), capacity=int(links.nics_by_leaf[leaf]))
    for leaf in sink:
        network.add_edge((0, int(leaf)), "sink", capacity=int(links.nics_by_leaf[leaf]))
    flow = float(nx.maximum_flow_value(network, "source", "sink"))
    return flow * links.rails if one_for_all else flow


def _network(links: Links, top: int, is_merged: bool) -> nx.DiGraph[Node]:
    """Switches of all rails up to layer `top`, both directions; capacity in cables.

    Merged: one node for the switches of a layer, domain and rail.
    """
    import networkx as nx

    built: nx.DiGraph[Node] = nx.DiGraph()
    for low, layer in enumerate(links.layers[:top]):
        cables, high = layer.uplinks, links.layers[low + 1]
        sizes = (layer.per_rail, high.per_rail) if is_merged else (1, 1)
        ends = np.stack([cables.lower // sizes[0], cables.upper // sizes[1]], axis=1)
        pairs, counts = np.unique(ends, axis=0, return_counts=True)
        for (a, b), count in zip(pairs.tolist(), counts.tolist(), strict=True):
            built.add_edge((low, a), (low + 1, b), capacity=count)
            built.add_edge((low + 1, b), (low, a), capacity=count)
    return built
