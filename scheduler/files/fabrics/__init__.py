"""Topology files of other programs, made into fabrics.

Every format becomes one value, a `TopologyNetwork`: hosts, and the domains above each. What
it lacks, an overlay adds (overlay.py); what comes out is a fabric file
(fabricyaml.py). Formats are entry points of the group `muster.fabric-formats`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from placement.fabric.tree import Fabric
from scheduler.files.fabrics import fabricyaml, overlay
from scheduler.files.fabrics.build import Built, build
from scheduler.files.fabrics.fitting import only_hosts
from scheduler.files.fabrics.network import Choices, TopologyNetwork
from scheduler.files.fabrics.overlay import FabricOverlay
from scheduler.files.plugins import Plugins

__all__ = [
    "FORMATS",
    "Choices",
    "dump",
    "read_fabric",
]


# Of each format what reads a file of it.
FORMATS: Plugins[Callable[[str, Choices], TopologyNetwork]] = Plugins("muster.fabric-formats")


def read_fabric(
    path: str, form: str, overlay_path: str | None = None, choices: Choices | None = None
) -> Built:
    """Read the fabric that a topology file describes, and notes on what was assumed or left out.

    Raises: InputError with file, line and field.
    """
    choices = choices or Choices()
    extra = overlay.read(overlay_path) if overlay_path else FabricOverlay()
    network = only_hosts(FORMATS[form](path, choices), choices.hosts)
    return build(network, extra, Path(path).stem, path)


def dump(fabric: Fabric) -> str:
    """Return the text of a fabric file."""
    return fabricyaml.dump(fabric.spec)
