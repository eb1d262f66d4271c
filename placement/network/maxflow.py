"""Bandwidth inside and between domains, proved by maximum flow and by spreading.

The bandwidth between two sets of hosts is enclosed by two cheap numbers. From above: a
maximum flow on the graph whose equivalent switches (one domain, rail and layer) are
merged, which can only gain. From below: real traffic, spread evenly over every shortest
path of the unmerged fabric and scaled until its fullest cable is full. Where the two
meet, merging is proved exact. Where they do not (uneven cables, failures), the maximum
flow over every single switch decides, rail by rail.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from placement.errors import BadInput
from placement.fabric.tree import Ints
from placement.network.fluid import spread
from placement.network.wiring import Layer, Links

if TYPE_CHECKING:
    import networkx as nx  # a tenth of a second: imported where it is used

Node = str | tuple[int, int]
SAME = 1e-9
MOST_WORK = 1_000_000_000  # cables x leaves to reach: 100,000 GPUs in racks of 16, 20 s


class By(StrEnum):
    """How a bandwidth is proved."""

    SPREADING = "even spreading reaches the cut"
    MAX_FLOW = "max flow over every switch"
    CUT = "cables in between, an upper bound"  # a fabric too large for the other two


@dataclass(frozen=True, slots=True)
class Proof:
    """Bandwidth between two sets of hosts. Units: bytes per second, one direction.

    `what`: "inside" (one half of the domain to the other) or "out of" the domain.
    `injection`: what the NICs of the smaller side can send. `flow`: what the network
    carries at most, and does carry. `nominal`: the oversubscription of what is measured
    that the fabric file states.
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
    """The tightest domain of each tier, out of it and inside it, innermost tier first.

    Tightest: with the fewest live cables, out of it or out of its children, for its NICs;
    the first of several. Cost: 1 s for 24,576 GPUs.
    """
    proved = []
    for level, layer in enumerate(links.layers):
        if level:
            proved.append(_inside(links, level, layer))
        if level < len(links.layers) - 1:
            proved.append(_out_of(links, level, layer))
    return tuple(proved)


def _inside(links: Links, level: int, layer: Layer) -> Proof:
    """One half of the domain's children to the other half; the first half is smaller."""
    below = links.layers[level - 1]
    above = layer.domain_by_switch[below.uplinks.upper]
    cables = np.bincount(above, minlength=len(layer.domains))
    domain = int(np.argmin(cables / layer.nics))
    children = np.unique(links.domain_by_leaf[level - 1][links.domain_by_leaf[level] == domain])
    half = len(children) // 2
    sides = _Sides(links, level - 1, children[:half], children[half:], level)
    nominal = float(below.oversubscription[children].max())
    return _proved(sides, "inside", layer, domain, nominal)


def _out_of(links: Links, level: int, layer: Layer) -> Proof:
    domain = int(np.argmin(_uplinks(layer) / layer.nics))
    others = np.delete(np.arange(len(layer.domains)), domain)
    sides = _Sides(links, level, np.array([domain]), others, len(links.layers) - 1)
    return _proved(sides, "out of", layer, domain, float(layer.oversubscription[domain]))


def _uplinks(layer: Layer) -> Ints:
    """Live uplinks by domain."""
    return np.bincount(layer.domain_by_switch[layer.uplinks.lower], minlength=len(layer.domains))


@dataclass(frozen=True, slots=True, eq=False)
class _Sides:
    """Two sets of domains of layer `level`, joined by switches up to layer `top`."""

    links: Links
    level: int
    source: Ints
    sink: Ints
    top: int

    def leaves(self, domains: Ints) -> Ints:
        """Live ones."""
        inside = np.isin(self.links.domain_by_leaf[self.level], domains)
        return np.flatnonzero(inside & self.links.live_leaf)

    def smaller(self, by_domain: Ints) -> int:
        """The sum over the smaller side."""
        return int(min(by_domain[self.source].sum(), by_domain[self.sink].sum()))


def _proved(sides: _Sides, what: str, layer: Layer, domain: int, nominal: float) -> Proof:
    links, below = sides.links, sides.links.layers[sides.level]
    source, sink = sides.leaves(sides.source), sides.leaves(sides.sink)
    nics = sides.smaller(below.nics)  # live or not
    most, by = float(min(nics, sides.smaller(_uplinks(below)))), By.CUT
    cables = sum(len(low.uplinks.lower) for low in links.layers[:-1])
    if cables * len(sink) <= MOST_WORK:
        most = _max_flow(links, source, sink, sides.top, is_merged=True)
        flow, by = _carried(links, source, sink), By.SPREADING
        if most - flow > SAME * most:
            most, by = _max_flow(links, source, sink, sides.top, is_merged=False), By.MAX_FLOW
    rate = links.link_bytes_per_s
    return Proof(what, layer.tier, layer.domains[domain], nics * rate, most * rate, nominal, by)


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
        ports, high = layer.uplinks, links.layers[low + 1]
        sizes = (layer.per_rail, high.per_rail) if is_merged else (1, 1)
        ends = np.stack([ports.lower // sizes[0], ports.upper // sizes[1]], axis=1)
        pairs, cables = np.unique(ends, axis=0, return_counts=True)
        for (a, b), count in zip(pairs.tolist(), cables.tolist(), strict=True):
            built.add_edge((low, a), (low + 1, b), capacity=count)
            built.add_edge((low + 1, b), (low, a), capacity=count)
    return built
