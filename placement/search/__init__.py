"""Upper bounds: layouts by slicing trees, annealing, segmentation of a line, integer cover.

Enters: a grid or a hypergraph, capacities of zones, work allowed, a cost at which to stop.
Leaves: layouts. Random choices come from a seed, work is counted, so answers repeat.
See docs/engine.md, "The search".
"""
