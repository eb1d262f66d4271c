"""The hardware: a tree of tiers above hosts, and where a gang may lie.

Enters: a fabric file as a mapping, or a preset by name. Leaves: `Fabric` with the domain of each
host on each tier (tree.py), sets of hosts as integers (hostset.py), Slurm's ranges of names
(hostlist.py), labels (labels.py), what is left of uplinks (links.py), a graph of networkx
(graph.py), and on which hosts a gang may lie (constraints.py).
"""
