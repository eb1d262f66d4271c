"""What reads each format of topology files, as entry points name it."""

from __future__ import annotations

from importers.fabrics import ibnetdiscover, kubernetes, slurmconf, slurmyaml

SLURM = SLURM_BLOCK = slurmconf.read
SLURM_YAML = SLURM_YAML_BLOCK = slurmyaml.read
IBNETDISCOVER = ibnetdiscover.read
KUBERNETES = kubernetes.read
