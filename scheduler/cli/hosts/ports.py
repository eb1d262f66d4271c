"""`muster report --import` of ports: what switches say of them becomes what uplinks carry."""

from __future__ import annotations

from collections.abc import Callable

import typer

from scheduler.cli.calls import checked_only, connected
from scheduler.cli.exit_codes import BAD_INPUT
from scheduler.files.errors import Problem
from scheduler.files.links.linksfile import LinkEntry
from scheduler.files.links.ports import COLUMNS, SwitchPort, load_ibdiagnet, load_port_table
from scheduler.files.links.switchports import load_sonic, load_ufm
from scheduler.files.links.uplinkports import load_uplink_ports, shares

PORTS_CSV = "ports-csv"
READERS: dict[str, Callable[[str], list[SwitchPort]]] = {
    "ibdiagnet": load_ibdiagnet,
    "ufm-json": load_ufm,
    "sonic": load_sonic,
}
NEAR = 1e-6  # shares that are the same


def report_ports(
    path: str, kind: str, uplinks: str, columns: str, address: str, *, dry_run: bool
) -> None:
    """Report the uplinks whose share is another than the server has. Exit 2 when a domain of the
    file `uplinks` is not in the fabric, the others being reported."""
    if not uplinks:
        raise typer.BadParameter("is missing", param_hint="--uplinks")
    if kind != PORTS_CSV and columns:
        raise typer.BadParameter("goes with --format ports-csv", param_hint="--columns")
    path = "/dev/stdin" if path == "-" else path
    named = _columns(columns)
    ports = load_port_table(path, named) if kind == PORTS_CSV else READERS[kind](path)
    entries = shares(uplinks, load_uplink_ports(uplinks), ports)
    with connected(address) as client:
        now = {link.name: link.share for link in client.list_links(show_all=True).links}
        wrong = [entry for entry in entries if entry.domain not in now]
        changed = [e for e in entries if e.domain in now and abs(e.share - now[e.domain]) > NEAR]
        for entry in changed:
            client.report_link(entry.domain, entry.share, entry.detail, dry_run=dry_run)
            typer.echo(_line(entry, now[entry.domain]))
    for entry in wrong:
        message = f"no domain {entry.domain!r} in this fabric"
        typer.echo(f"muster: {Problem('domain', message, uplinks, entry.line)}", err=True)
    typer.echo(f"{len(ports):,} ports of {len(entries):,} uplinks read: {len(changed):,} changed")
    checked_only(dry_run)
    if wrong:
        raise typer.Exit(BAD_INPUT)


def _line(entry: LinkEntry, before: float) -> str:
    detail = f": {entry.detail}" if entry.detail else ""
    return f"{entry.domain} carries {entry.share:.4g} instead of {before:.4g}{detail}"


def _columns(text: str) -> dict[str, str]:
    """Raises: BadParameter."""
    named = dict(COLUMNS)
    for part in filter(None, text.split(",")):
        key, is_pair, column = part.partition("=")
        if not is_pair or key not in named or not column:
            message = f"must be {', '.join(f'{name}=COLUMN' for name in named)}, not {part!r}"
            raise typer.BadParameter(message, param_hint="--columns")
        named[key] = column
    return named
