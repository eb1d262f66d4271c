"""The hardware: a tree of tiers above hosts, and who may use which host.

Enters: a fabric file as a mapping, or a preset by name. Leaves: `Fabric` with the domain of each
host on each tier (tree.py), sets of hosts as integers (hostset.py), Slurm's ranges of names
(hostlist.py), labels (labels.py), and on which hosts a gang may lie (constraints.py).
"""
