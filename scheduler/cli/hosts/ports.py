"""`muster report --import` of ports: what switches say of them becomes what uplinks carry."""

from __future__ import annotations

import typer

from scheduler.cli.calls import checked_only, connected
from scheduler.cli.exit_codes import BAD_INPUT
from scheduler.files.errors import Problem
from scheduler.files.links.linksfile import LinkEntry
from scheduler.files.plugins import importer

PORTS_CSV = "ports-csv"
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
    entries, ports = importer("ports")(path, kind, uplinks, columns)
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
