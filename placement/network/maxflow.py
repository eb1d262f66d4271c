"""The fabric as a networkx graph, and what max-flow says about it.

The bandwidth between two sets of hosts is enclosed by two cheap numbers. From above: a
maximum flow on the graph whose equivalent switches (one domain, rail and layer) are
merged, which can only gain. From below: real traffic, spread evenly over every shortest
path of the unmerged fabric and scaled until its fullest cable is full. Where the two
meet, merging is proved exact. Where they do not (uneven cables, failures), the maximum
flow over every single switch decides, rail by rail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from placement.errors import BadInput
from placement.fabric.tree import Ints
from placement.network.failures import switch_name
from placement.network.fluid import spread
from placement.network.reachability import domain_of
from placement.network.wiring import Layer, Links

if TYPE_CHECKING:
    import networkx as nx  # a tenth of a second: imported where it is used

Node = str | tuple[int, int]
SAME = 1e-9
MOST_WORK = 1_000_000_000  # cables x leaves to reach: 100,000 GPUs in racks of 16, 20 s


def graph(links: Links) -> nx.Graph[str]:
    """Hosts and switches by name; `cables` and `bytes_per_s` (one direction) on edges.

    Cost: O(cables); 0.2 s for 24,576 GPUs.
    """
    import networkx as nx

    names = [[switch_name(layer, s) for s in range(layer.switch_count)] for layer in links.layers]
    built: nx.Graph[str] = nx.Graph(name=links.fabric.name)
    built.add_nodes_from(links.fabric.hosts, layer="host")
    for layer, named in zip(links.layers, names, strict=True):
        built.add_nodes_from(named, layer=layer.name)
    _connect(built, links, _nic_cables(links, names[0]))
    for low, layer in enumerate(links.layers[:-1]):
        pairs = zip(layer.uplinks.lower, layer.uplinks.upper, strict=True)
        _connect(built, links, ((names[low][a], names[low + 1][b]) for a, b in pairs))
    return built


def _nic_cables(links: Links, leaves: list[str]) -> Iterator[tuple[str, str]]:
    for gpu, leaf in enumerate(links.leaf_by_gpu):
        if links.live_leaf[leaf]:
            yield links.fabric.hosts[gpu // links.fabric.gpus_per_host], leaves[leaf]


def _connect(built: nx.Graph[str], links: Links, cables: Iterator[tuple[str, str]]) -> None:
    for a, b in cables:
        count = built.edges[a, b]["cables"] + 1 if built.has_edge(a, b) else 1
        built.add_edge(a, b, cables=count, bytes_per_s=count * links.link_bytes_per_s)


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

    Cost: 1 s for 24,576 GPUs.
    """
    found = []
    for level in range(len(links.layers)):
        if level:
            found.append(_inside(links, level, _tightest_inside(links, level)))
        if level < len(links.layers) - 1:
            found.append(_out_of(links, level, _tightest(links, level)))
    return tuple(found)


def _tightest(links: Links, level: int) -> int:
    """The domain with the fewest live uplinks for its NICs; the first of several."""
    layer = links.layers[level]
    return int(np.argmin(_uplinks(layer) / _nics(links, level)))


def _tightest_inside(links: Links, level: int) -> int:
    """The domain whose children have the fewest live uplinks for its NICs."""
    low, high = links.layers[level - 1], links.layers[level]
    above = domain_of(high)[low.uplinks.upper]
    cables = np.bincount(above, minlength=len(high.domains))
    return int(np.argmin(cables / _nics(links, level)))


def _uplinks(layer: Layer) -> Ints:
    """Live uplinks by domain."""
    return np.bincount(domain_of(layer)[layer.uplinks.lower], minlength=len(layer.domains))


def _nics(links: Links, level: int) -> Ints:
    """NICs by domain of a layer."""
    return np.bincount(links.layers[level].domain_by_host) * links.fabric.gpus_per_host


def _out_of(links: Links, level: int, domain: int) -> Proof:
    others = np.delete(np.arange(len(links.layers[level].domains)), domain)
    sides = _Sides(links, level, np.array([domain]), others, len(links.layers) - 1)
    nominal = float(links.layers[level].oversubscription[domain])
    return _proved(sides, "out of", links.layers[level], domain, nominal)


def _inside(links: Links, level: int, domain: int) -> Proof:
    """One half of the domain's children to the other half; the first half is smaller."""
    here = links.domain_by_leaf[level] == domain
    children = np.unique(links.domain_by_leaf[level - 1][here])
    half = len(children) // 2
    sides = _Sides(links, level - 1, children[:half], children[half:], level)
    nominal = float(links.layers[level - 1].oversubscription[children].max())
    return _proved(sides, "inside", links.layers[level], domain, nominal)


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

    def nics(self) -> int:
        """Of the smaller side, live or not."""
        nics = _nics(self.links, self.level)
        return int(min(nics[self.source].sum(), nics[self.sink].sum()))

    def cables(self) -> int:
        """What no flow exceeds: NICs, and live uplinks of either side."""
        uplinks = _uplinks(self.links.layers[self.level])
        return int(min(self.nics(), uplinks[self.source].sum(), uplinks[self.sink].sum()))


def _proved(sides: _Sides, what: str, layer: Layer, domain: int, nominal: float) -> Proof:
    links, rate = sides.links, sides.links.link_bytes_per_s
    source, sink = sides.leaves(sides.source), sides.leaves(sides.sink)
    most, by = float(sides.cables()), By.CUT
    cables = sum(len(below.uplinks.lower) for below in links.layers[:-1])
    if cables * len(sink) <= MOST_WORK:
        most = _max_flow(links, source, sink, sides.top, is_merged=True)
        flow, by = _carried(links, source, sink), By.SPREADING
        if most - flow > SAME * most:
            most, by = _max_flow(links, source, sink, sides.top, is_merged=False), By.MAX_FLOW
    injection = sides.nics() * rate
    return Proof(what, layer.tier, layer.domains[domain], injection, most * rate, nominal, by)


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
    fullest = max((load.max(initial=0.0) for load in (*loads.up, *loads.down)), default=0.0)
    return float(sizes.sum() / max(1.0, fullest))


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
