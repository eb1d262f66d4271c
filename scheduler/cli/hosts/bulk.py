"""`muster report --import`: what files of other programs say, sent to the server.

A host that Slurm drains is drained here, one that is down has failed, one that does not
respond has missed a heartbeat; what was done for Slurm's sake is undone when Slurm has the
node back, and nothing else. The same for Kubernetes, which also cordons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import typer

from placement import BadInput
from scheduler.cli.calls import checked_only, connected
from scheduler.cli.exit_codes import BAD_INPUT
from scheduler.files.errors import Problem
from scheduler.files.health.found import (
    CORDON,
    DRAIN,
    KUBERNETES,
    SLURM,
    UNCORDON,
    ImportedReport,
    change_for,
)
from scheduler.files.links.linksfile import LinkEntry
from scheduler.files.plugins import importer

if TYPE_CHECKING:
    from scheduler.client import Client
    from scheduler.v1 import host_pb2, service_pb2

DCGM = "dcgm-json"


def report_file(path: str, kind: str, address: str, *, dry_run: bool) -> None:
    """Report what the file says. Exit 2 when some of it was refused, the rest being done."""
    from scheduler.files.health.kubernetesnodes import load_kubernetes_nodes
    from scheduler.files.health.slurmnodes import load_slurm

    own: dict[str, Callable[[str], list[ImportedReport]]] = {
        SLURM: load_slurm,
        KUBERNETES: load_kubernetes_nodes,
    }
    if kind not in (*own, DCGM):
        message = (
            "must be dcgm-json, slurm, kubernetes, ports-csv, ibdiagnet, ufm-json or sonic with"
            " --import"
        )
        raise typer.BadParameter(message, param_hint="--format")
    path = "/dev/stdin" if path == "-" else path
    reports: list[ImportedReport] = (own.get(kind) or importer(kind))(path)
    with connected(address) as client:
        hosts = {host.name: host for host in client.list_hosts()}
        wrong = [_unknown(path, item) for item in reports if item.host not in hosts]
        known = [item for item in reports if item.host in hosts]
        done: Counter[str] = Counter()
        if not dry_run:
            wrong += _send(client, path, known, hosts, done, kind)
        else:
            done.update(_word(item, hosts[item.host], kind) for item in known)
    for problem in wrong:
        typer.echo(f"muster: {problem}", err=True)
    total = ", ".join(f"{n:,} {label}" for label, n in sorted(done.items()) if label)
    typer.echo(f"{len(reports):,} reports read: {total or 'nothing to do'}")
    checked_only(dry_run)
    if wrong:
        raise typer.Exit(BAD_INPUT)


def _unknown(path: str, item: ImportedReport) -> Problem:
    return Problem(item.field, f"no host {item.host!r} in this fabric", path, item.line)


def _word(item: ImportedReport, host: host_pb2.Host, source: str) -> str:
    """The signal, or the change, that a statement comes to; nothing where it is so already."""
    from scheduler.wire.jobs import HOST_STATE_BY_NUMBER

    if item.standing is None:
        return item.signal
    cordon = host.cordon_reason if host.cordoned else None
    return change_for(
        item.standing, HOST_STATE_BY_NUMBER.get(host.state), host.reason, cordon, source
    )


def _send(
    client: Client,
    path: str,
    imported: Iterable[ImportedReport],
    hosts: dict[str, host_pb2.Host],
    done: Counter[str],
    source: str,
) -> list[Problem]:
    """Send the reports and return those refused; `done` counts the others."""
    from scheduler.v1 import service_pb2

    changes = {
        CORDON: client.cordon_host,
        DRAIN: client.drain_host,
        UNCORDON: client.uncordon_host,
    }
    reports: list[tuple[ImportedReport, service_pb2.ReportHostRequest]] = []
    wrong: list[Problem] = []
    for item in imported:
        word = _word(item, hosts[item.host], source)
        detail = f"{source}: {item.detail}".rstrip(": ") if item.standing else item.detail
        if word in changes:
            refused = _refused(changes[word], item.host, detail)
            wrong += [Problem(item.field, refused, path, item.line)] if refused else []
            done[word] += not refused
        elif word:
            request = service_pb2.ReportHostRequest(
                name=item.host, signal=word, detail=detail, gpu=item.gpu, xid=item.xid
            )
            reports.append((item, request))
    results = client.report_hosts([request for _, request in reports])
    for (item, request), result in zip(reports, results, strict=True):
        if result.error:
            wrong.append(Problem(item.field, result.error, path, item.line))
        else:
            done[request.signal] += 1
    return wrong


def _refused(change: Callable[[str, str], object], host: str, reason: str) -> str:
    """Change one host; return the server's refusal, "" when it made the change.

    Raises: ServiceError when it did not answer, for then the others fail as well.
    """
    from scheduler.client import ServiceError

    try:
        change(host, reason)
    except ServiceError as error:
        if not error.reason:
            raise
        return error.message
    return ""


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
        changed, wrong = _report_links(client, entries, dry_run=dry_run)
    for entry in wrong:
        message = f"no domain {entry.domain!r} in this fabric"
        typer.echo(f"muster: {Problem('domain', message, uplinks, entry.line)}", err=True)
    typer.echo(f"{len(ports):,} ports of {len(entries):,} uplinks read: {changed:,} changed")
    checked_only(dry_run)
    if wrong:
        raise typer.Exit(BAD_INPUT)


def report_failed(failed: Sequence[str], address: str, *, dry_run: bool) -> None:
    """Report what is left of the uplinks that these switches and cables are part of."""
    from network.failures import uplinks_left
    from network.wiring import links
    from placement.fabric.reader import from_spec
    from scheduler.files.yaml12 import parse

    with connected(address) as client:
        fabric = from_spec(parse(client.get_fabric(with_file=True).file.decode()).mapping())
        try:
            left = uplinks_left(links(fabric), failed)
        except BadInput as error:
            raise typer.BadParameter(error.message, param_hint="--failed") from None
        detail = f"{', '.join(failed)} failed"
        entries = [LinkEntry(name, has / had, detail=detail) for name, (has, had) in left.items()]
        changed, _ = _report_links(client, entries, dry_run=dry_run)
    typer.echo(f"{len(entries):,} uplinks are part of it: {changed:,} changed")
    if changed and not dry_run:
        typer.echo("`muster defrag --slow` proposes moves of the gangs that this slows down")
    checked_only(dry_run)


def _report_links(
    client: Client, entries: Sequence[LinkEntry], *, dry_run: bool
) -> tuple[int, list[LinkEntry]]:
    """Report the uplinks whose share is another than the server has, and print them. Return how
    many these are, and the entries whose domain the fabric does not have."""
    now = {link.name: link.share for link in client.list_links(show_all=True).links}
    changed = [e for e in entries if e.domain in now and abs(e.share - now[e.domain]) > NEAR]
    for entry in changed:
        client.report_link(entry.domain, entry.share, entry.detail, dry_run=dry_run)
        typer.echo(_line(entry, now[entry.domain]))
    return len(changed), [entry for entry in entries if entry.domain not in now]


def _line(entry: LinkEntry, before: float) -> str:
    detail = f": {entry.detail}" if entry.detail else ""
    return f"{entry.domain} carries {entry.share:.4g} instead of {before:.4g}{detail}"
