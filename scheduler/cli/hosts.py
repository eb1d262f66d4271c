"""The commands for hosts: hosts, cordon, drain, uncordon, report."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from scheduler.cli.calls import (
    DEFAULT_ADDRESS,
    Address,
    DryRun,
    Etag,
    Filter,
    Format,
    Output,
    States,
    Why,
    checked_only,
    connected,
    state_numbers,
    write,
)

if TYPE_CHECKING:
    from scheduler.client import Client, How
    from scheduler.v1 import host_pb2

HostName = Annotated[str, typer.Argument(help="Name of the host.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("hosts")(list_hosts)
    app.command()(cordon)
    app.command()(drain)
    app.command()(uncordon)
    app.command()(report)


def list_hosts(
    state: States = None,
    name: Annotated[str, typer.Option("--job", help="Only hosts that this job holds.")] = "",
    filter: Filter = "",
    output: Output = Format.TABLE,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """List the hosts, their health and who holds them."""
    from scheduler.cli import messages
    from scheduler.v1 import host_pb2, service_pb2

    states = state_numbers(host_pb2.HostState, "HOST_STATE_", state)
    with connected(address) as client:
        found = client.list_hosts(states, name, filter)
    write(
        service_pb2.ListHostsResponse(hosts=found), lambda m: messages.hosts_text(m.hosts), output
    )


def cordon(
    host: HostName,
    reason: Why = "",
    etag: Etag = "",
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Keep new gangs off a host; what runs there goes on."""
    how: How = {"etag": etag, "dry_run": dry_run}
    _host(address, output, lambda client: client.cordon_host(host, reason, **how))
    checked_only(dry_run)


def drain(
    host: HostName,
    reason: Why = "",
    etag: Etag = "",
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Cordon a host and move what runs there, or wait for its end."""
    how: How = {"etag": etag, "dry_run": dry_run}
    _host(address, output, lambda client: client.drain_host(host, reason, **how))
    checked_only(dry_run)


def uncordon(
    host: HostName,
    reason: Why = "",
    etag: Etag = "",
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Take a cordoned or draining host back into service."""
    how: How = {"etag": etag, "dry_run": dry_run}
    _host(address, output, lambda client: client.uncordon_host(host, reason, **how))
    checked_only(dry_run)


def report(
    host: HostName,
    signal: Annotated[
        str,
        typer.Option(help="Kind of signal, e.g. gpu-lost, nic-down, repaired.", show_default=False),
    ],
    detail: Annotated[str, typer.Option(help="What the monitor has to say.")] = "",
    output: Output = Format.TABLE,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Report a health signal of a host."""
    _host(address, output, lambda client: client.report_host(host, signal, detail))


def _host(address: str, output: Format, call: Callable[[Client], host_pb2.Host]) -> None:
    from scheduler.cli import messages

    with connected(address) as client:
        write(call(client), lambda host: messages.hosts_text([host]), output)
