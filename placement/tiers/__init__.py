"""From the outermost zones down to hosts.

Enters: a request and free hosts. Leaves: which zone carries which block, with its bound
(grid_zones.py, graph_zones.py), and below that the hosts themselves (descent.py, packing.py,
seating.py), chosen among equals for what stays free (fragmentation.py, preference.py). Other
objectives and shapes search in the same way (objectives.py, spread.py, shape.py).
See docs/engine.md, "The tiers".
"""
