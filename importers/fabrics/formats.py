"""Each format of topology files as one value, which an entry point names."""

from __future__ import annotations

from importers.fabrics import ibnetdiscover, kubernetes, slurmconf, slurmyaml, topograph
from scheduler.files.fabrics import FabricFormat

SLURM = FabricFormat(slurmconf.read, slurmconf.write_tree)
SLURM_BLOCK = FabricFormat(slurmconf.read, slurmconf.write_blocks, has_outer_tiers=False)
SLURM_YAML = FabricFormat(slurmyaml.read, slurmyaml.write_tree)
SLURM_YAML_BLOCK = FabricFormat(slurmyaml.read, slurmyaml.write_blocks, has_outer_tiers=False)
TOPOGRAPH = FabricFormat(topograph.read, topograph.write)
IBNETDISCOVER = FabricFormat(ibnetdiscover.read, ibnetdiscover.write)
KUBERNETES = FabricFormat(kubernetes.read, kubernetes.write)
