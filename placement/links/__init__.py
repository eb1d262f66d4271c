"""The backend fabric switch by switch: counts, names, max-flow proofs (docs/fabric.md)."""

from placement.links.maxflow import By, Proof, graph, proofs
from placement.links.names import link_name, switch_name, without
from placement.links.wiring import Layer, Links, Ports, Striping, links

__all__ = [
    "By",
    "Layer",
    "Links",
    "Ports",
    "Proof",
    "Striping",
    "graph",
    "link_name",
    "links",
    "proofs",
    "switch_name",
    "without",
]
