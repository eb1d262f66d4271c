"""From the outermost zones down to hosts.

Enters: a request and free hosts. Leaves: the domain that holds all (single_domain.py), or which
zone carries which block, with its bound (grid_zones.py, graph_zones.py); below that the hosts
(seating.py), among equals by what stays free and what is preferred (fragmentation.py); and bounds
of inner tiers and proofs (bound_proofs.py). Other objectives (objectives.py, spread.py,
step_clock.py), shapes and segments (shape.py) search in the same way.
See docs/engine.md, "The tiers".
"""
