"""Gangs as a weighted hypergraph of blocks, whether or not they form a grid.

Enters: a request, or a region of a grid. Leaves: `Hypergraph` with its cut of an assignment
(hypergraph.py).
See docs/engine.md, "Gangs that are no grid".
"""
