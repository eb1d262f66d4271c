"""A fabric as a graph of networkx, for whoever wants paths, flows or drawings of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from placement.fabric.tree import Fabric

if TYPE_CHECKING:
    import networkx as nx  # a tenth of a second: imported where it is used


def to_networkx(fabric: Fabric) -> nx.Graph[str]:
    """Return the tree of a fabric as an undirected graph of names.

    A node is a host (`tier` "host", `gpus`), a domain (`tier` its tier) or the fabric itself
    (`tier` "fabric"), by its name. An edge joins each to what is around it; `bytes_per_s` is the
    capacity of that uplink in one direction: of a host its NICs, of a domain what the file says
    or what is left of it. The root is `graph["root"]`. Switches are not nodes: `network.wiring`
    has them.
    """
    import networkx as nx

    names = {fabric.name, *fabric.hosts, *(name for t in fabric.tiers for name in t.domains)}
    root = fabric.name
    if len(names) <= fabric.host_count + sum(len(tier.domains) for tier in fabric.tiers):
        root = f"{fabric.name} (fabric)"  # a domain or a host has the name of the fabric
    graph: nx.Graph[str] = nx.Graph(name=fabric.name, root=root)
    graph.add_node(root, tier="fabric")
    outer, outer_of_host = [root], np.zeros(fabric.host_count, dtype=np.int64)
    for tier in fabric.tiers:
        first = np.unique(tier.domain_by_host, return_index=True)[1]
        graph.add_nodes_from(tier.domains, tier=tier.name)
        for name, host, rate in zip(tier.domains, first, tier.uplink_bytes_per_s, strict=True):
            graph.add_edge(name, outer[outer_of_host[host]], bytes_per_s=float(rate))
        outer, outer_of_host = list(tier.domains), tier.domain_by_host
    rates = fabric.injection_bytes_per_s
    for i, host in enumerate(fabric.hosts):
        graph.add_node(host, tier="host", gpus=fabric.gpus_per_host)
        graph.add_edge(host, outer[outer_of_host[i]], bytes_per_s=float(rates[i]))
    return graph
