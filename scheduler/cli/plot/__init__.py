"""Pictures of a placement: the fabric with the job on it, and the load of its uplinks.

numpy and matplotlib are imported when something is drawn, never before; no display.
The same placement gives the same bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from placement import BadInput

if TYPE_CHECKING:
    from placement.fabric.hostset import HostSet
    from placement.fabric.tree import Fabric
    from placement.workload.request import Placement, Request

SUFFIXES = (".png", ".svg")


def check_path(path: Path) -> None:
    """Refuse a file name without a known suffix, or in a folder that does not exist. Raises:
    BadInput."""
    if path.suffix.lower() not in SUFFIXES:
        raise BadInput("--plot", f"{path} must end in {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise BadInput("--plot", f"{path}: there is no folder {path.parent}")


def draw(
    fabric: Fabric,
    request: Request,
    placement: Placement,
    path: Path,
    *,
    free: HostSet | None = None,
    name: str = "",
) -> None:
    """Draw `placement` into a PNG or SVG file.

    `free`: the hosts that could be used, all if not given; the others are shown as
    busy. `name` is the job's. Colours stand for its stages or for its replicas, whichever lie in
    fewer of the outermost domains.

    Raises: BadInput on another suffix. Cost: 1 s, of which importing is half.
    """
    check_path(path)
    from placement.fabric import hostset
    from scheduler.cli.plot.figure import Picture, figure, save

    usable = hostset.full(fabric.host_count) if free is None else free
    save(figure(Picture(fabric, request, placement, usable, name)), path)
