"""The fabric as a networkx graph, and what max-flow says about it.

Two numbers enclose the bandwidth between two sets of hosts. From above: a maximum flow
on the graph whose equivalent switches (one domain, rail and layer) are merged, which
can only gain. From below: real traffic, spread evenly over every shortest path of the
unmerged fabric and scaled until its fullest cable is full. Where the two meet, the
merged graph is proved exact at any size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import networkx as nx
import numpy as np

from placement.errors import BadInput
from placement.fabric import Ints
from placement.links.names import switch_name
from placement.links.reach import domain_of
from placement.links.spread import spread
from placement.links.wiring import Layer, Links

Node = str | tuple[int, int]
SAME = 1e-9


def graph(links: Links) -> nx.Graph[str]:
    """Hosts and switches by name; `cables` and `bytes_per_s` (one direction) on edges.

    Cost: O(cables); 0.2 s for 24,576 GPUs.
    """
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


@dataclass(frozen=True, slots=True)
class Proof:
    """Bandwidth between two sets of hosts. Units: bytes per second, one direction.

    `what`: "inside" (one half of the domain to the other) or "out of" the domain.
    `injection`: what the NICs of the smaller side can send. `flow`: what the fabric
    carries for certain; `most`: what it cannot exceed. `nominal`: the oversubscription
    that the fabric file states, of what is measured.
    """

    what: str
    tier: str
    domain: str
    injection: float
    flow: float
    most: float
    nominal: float

    @property
    def is_exact(self) -> bool:
        return self.most - self.flow <= SAME * self.most

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
    here = links.domain_by_leaf[level] == domain
    top = len(links.layers) - 1
    nominal = float(links.layers[level].oversubscription[domain])
    return _between(links, ("out of", level, domain, nominal), here, ~here, top)


def _inside(links: Links, level: int, domain: int) -> Proof:
    """One half of the domain's children to the other half; the first half is smaller."""
    here = links.domain_by_leaf[level] == domain
    children = np.unique(links.domain_by_leaf[level - 1][here])
    first = np.isin(links.domain_by_leaf[level - 1], children[: len(children) // 2])
    nominal = float(links.layers[level - 1].oversubscription[children].max())
    return _between(links, ("inside", level, domain, nominal), here & first, here & ~first, level)


def _between(
    links: Links, named: tuple[str, int, int, float], source: Ints, sink: Ints, top: int
) -> Proof:
    """`source`, `sink`: masks over leaves; `top`: the highest layer that may be used."""
    what, level, domain, nominal = named
    layer, rate = links.layers[level], links.link_bytes_per_s
    nics = links.nics_by_leaf
    injection = float(min(nics[source].sum(), nics[sink].sum()))
    live_source = np.flatnonzero(source & links.live_leaf)
    live_sink = np.flatnonzero(sink & links.live_leaf)
    most = _most(links, live_source, live_sink, top)
    flow = min(_carried(links, live_source, live_sink), float(most))
    return Proof(
        what, layer.tier, layer.domains[domain], injection * rate, flow * rate, most * rate, nominal
    )


def _carried(links: Links, source: Ints, sink: Ints) -> float:
    """Cables' worth of traffic that even spreading carries. Every pair of a rail talks."""
    rail = np.arange(links.layers[0].switch_count) % links.rails
    nics = links.nics_by_leaf
    pairs = [
        np.array(np.meshgrid(source[rail[source] == r], sink[rail[sink] == r])).reshape(2, -1)
        for r in range(links.rails)
    ]
    a, b = np.concatenate(pairs, axis=1)
    if not len(a):
        return 0.0
    sent = np.bincount(rail[source], nics[source], links.rails)
    taken = np.bincount(rail[sink], nics[sink], links.rails)
    sizes = nics[a] * nics[b] / np.maximum(sent, taken)[rail[a]]
    try:
        loads = spread(links, a, b, sizes)
    except BadInput:  # some pair has no path left
        return 0.0
    fullest = max((load.max() for load in (*loads.up, *loads.down) if len(load)), default=0.0)
    return float(sizes.sum() / max(1.0, fullest))


def _most(links: Links, source: Ints, sink: Ints, top: int) -> int:
    """Maximum flow in cables, equivalent switches merged."""
    merged = _merged(links, top)
    nics = links.nics_by_leaf
    merged.add_nodes_from(("source", "sink"))
    for leaf in source:
        merged.add_edge("source", (0, int(leaf)), capacity=int(nics[leaf]))
    for leaf in sink:
        merged.add_edge((0, int(leaf)), "sink", capacity=int(nics[leaf]))
    return int(nx.maximum_flow_value(merged, "source", "sink"))


def _merged(links: Links, top: int) -> nx.DiGraph[Node]:
    """One node for the switches of a layer, domain and rail; capacity in cables."""
    built: nx.DiGraph[Node] = nx.DiGraph()
    for low, layer in enumerate(links.layers[:top]):
        ports, high = layer.uplinks, links.layers[low + 1]
        pairs = np.stack([ports.lower // layer.per_rail, ports.upper // high.per_rail], axis=1)
        for (a, b), cables in zip(*np.unique(pairs, axis=0, return_counts=True), strict=True):
            built.add_edge((low, int(a)), (low + 1, int(b)), capacity=int(cables))
            built.add_edge((low + 1, int(b)), (low, int(a)), capacity=int(cables))
    return built
