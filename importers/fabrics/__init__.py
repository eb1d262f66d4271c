"""The formats of topology files, one module each with its `read`.

Inside: Slurm's topology.conf (slurmconf) and topology.yaml (slurmyaml), with what both share
(slurm); the labels of Kubernetes nodes; ibnetdiscover, with the tree that cables form (cabling);
the tree that a list of switches forms (switches).
Enters: a path. Leaves: a TopologyNetwork, or an InputError with file, line and field.
"""
