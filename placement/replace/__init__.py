"""A gang that runs already: placed again near its hosts, swapped, shifted, resized.

Enters: the hosts of a gang, free or lost hosts. Leaves: swaps of single hosts (swaps.py), moves of
blocks along their axes (shift.py), a placement anew that moves few blocks (near.py), and who stays
where when the number of replicas changes (elastic.py).
See docs/engine.md, "Near an old placement".
"""
