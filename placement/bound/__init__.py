"""Lower bounds on what zones of given capacities cut, without branching.

Enters: a grid or a hypergraph, and capacities. Leaves: doubled cuts that no layout goes below: the
size relaxation, dynamic programs over path decompositions, rings and orbits, grids of cells, and
the pricing problem with rounding that branch and price stands on.
See docs/engine.md, "The relaxation".
"""
