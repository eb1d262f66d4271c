"""The one reader of what uplinks carry: which format a file has is seen from its content."""

from __future__ import annotations

from placement.fabric.tree import Fabric
from scheduler.files.links import linksfile
from scheduler.files.links.linksfile import LinkEntry


def load_links(path: str, fabric: Fabric) -> list[LinkEntry]:
    """Raises: InputError naming file, line and field."""
    return linksfile.load_links(path, fabric)
