"""uplink_shares(), the entry point of readers of ports: which ports of switches are the uplink of
which domain, and what it so carries.

    domain,device,port,gbps
    z3,z3-ctsw04,Ethernet1/1,400

`gbps` is what a port was built for. An uplink carries the share that its ports have together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from importers.ports.switchports import load_sonic, load_ufm
from importers.ports.tables import (
    COLUMNS,
    SwitchPort,
    csv_lines,
    csv_rows,
    load_ibdiagnet,
    load_port_table,
)
from muster.structs import struct
from placement.fabric.links import checked_share
from scheduler.files.errors import InputError, Problem, refusal
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


NEEDED = ("domain", "device", "port", "gbps")
MOST_NAMED = 4  # ports in the detail of a link


@struct(frozen=True, slots=True)
class UplinkPort:
    """One port of a domain's uplink, with the line that names it."""

    domain: str
    device: str
    name: str
    gbps: float
    line: int


def load_uplink_ports(path: str) -> list[UplinkPort]:
    """Read which ports each uplink has. Raises: InputError with line and column."""
    ports, lines = [], dict[tuple[str, str], int]()
    for row in csv_rows(path, csv_lines(path), NEEDED):
        port = UplinkPort(
            row.text("domain"),
            row.text("device"),
            row.text("port"),
            row.number("gbps"),
            row.line,
        )
        if not port.gbps:
            raise refusal("must be more than 0", path, row.line, "gbps")
        first = lines.setdefault((port.device, port.name), row.line)
        if first != row.line:
            message = f"{port.device} {port.name} is in line {first} already"
            raise refusal(message, path, row.line, "port")
        ports.append(port)
    return ports


def shares(path: str, mapped: Sequence[UplinkPort], ports: Sequence[SwitchPort]) -> list[LinkEntry]:
    """Return the share that each mapped uplink carries, in the order of the file `path` that maps
    them.

    Raises: InputError where a port that it names is not among `ports`, or is there twice in
    different states, so that it is unknown whether it is up.
    """
    now = {(port.device, port.name): port.gbps for port in ports}
    differing = {key for port in ports if now[key := (port.device, port.name)] != port.gbps}
    by_domain = defaultdict[str, list[UplinkPort]](list)
    for port in mapped:
        if (port.device, port.name) not in now:
            message = f"the imported file has no port {port.name!r} of {port.device!r}"
            raise refusal(message, path, port.line, "port")
        if (port.device, port.name) in differing:
            message = f"the imported file has {port.device} {port.name} twice, and not the same"
            raise refusal(message, path, port.line, "port")
        by_domain[port.domain].append(port)
    return [_entry(domain, uplinks, now) for domain, uplinks in by_domain.items()]


def _entry(
    domain: str, uplinks: Sequence[UplinkPort], now: dict[tuple[str, str], float]
) -> LinkEntry:
    carried = {port: min(port.gbps, now[port.device, port.name]) for port in uplinks}
    share = checked_share(sum(carried.values()) / sum(port.gbps for port in uplinks))
    slow = [port for port in uplinks if carried[port] < port.gbps]
    words = [f"{port.device} {port.name} {carried[port]:g} Gbit/s" for port in slow[:MOST_NAMED]]
    more = f" and {len(slow) - MOST_NAMED} more" if len(slow) > MOST_NAMED else ""
    return LinkEntry(domain, share, uplinks[0].line, ", ".join(words) + more)
