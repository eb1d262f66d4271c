"""uplink_shares(): the entry point of readers of ports."""

from __future__ import annotations

from collections.abc import Callable

from importers.ports.switchports import load_sonic, load_ufm
from importers.ports.tables import COLUMNS, SwitchPort, load_ibdiagnet, load_port_table
from importers.ports.uplinkports import load_uplink_ports, shares
from scheduler.files.errors import InputError, Problem
from scheduler.files.links.linksfile import LinkEntry

READERS: dict[str, Callable[[str], list[SwitchPort]]] = {
    "ibdiagnet": load_ibdiagnet,
    "ufm-json": load_ufm,
    "sonic": load_sonic,
}


def uplink_shares(
    path: str, kind: str, uplinks: str, columns: str
) -> tuple[list[LinkEntry], list[SwitchPort]]:
    """Return what the uplinks in the file `uplinks` carry, and the ports that say so.

    `columns`: of the kind ports-csv, "device=COLUMN,...". Raises: InputError.
    """
    reader = READERS.get(kind)
    ports = reader(path) if reader else load_port_table(path, _columns(columns))
    return shares(uplinks, load_uplink_ports(uplinks), ports), ports


def _columns(text: str) -> dict[str, str]:
    """Raises: InputError."""
    named = dict(COLUMNS)
    for part in filter(None, text.split(",")):
        key, is_pair, column = part.partition("=")
        if not is_pair or key not in named or not column:
            message = f"must be {', '.join(f'{name}=COLUMN' for name in named)}, not {part!r}"
            raise InputError(Problem("--columns", message))
        named[key] = column
    return named
