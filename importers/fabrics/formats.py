"""Each format of topology files as one value, which an entry point names."""

from __future__ import annotations

from importers.fabrics import ibnetdiscover, kubernetes, slurmconf, slurmyaml
from scheduler.files.fabrics import FabricFormat

SLURM = SLURM_BLOCK = FabricFormat(slurmconf.read)
SLURM_YAML = SLURM_YAML_BLOCK = FabricFormat(slurmyaml.read)
IBNETDISCOVER = FabricFormat(ibnetdiscover.read)
KUBERNETES = FabricFormat(kubernetes.read)
