"""The command burn-in: has agents check idle hosts, and shows what they measured."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from scheduler.cli.calls import AskedServer, asks_server, each_done, expanded
from scheduler.cli.exit_codes import TIMED_OUT
from scheduler.cli.hosts.hosts import HostNames, host_names
from scheduler.cli.numbers import MOST
from scheduler.core.policies.health_signals import BURN_IN

if TYPE_CHECKING:
    from scheduler.client.client import Client
    from scheduler.v1 import host_pb2

_LOOK_S = 1.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("burn-in")(burn_in)


@asks_server
def burn_in(
    server: AskedServer,
    hosts: HostNames = None,
    free: Annotated[
        bool, typer.Option("--free", help="All hosts that are in service and idle.")
    ] = False,
    most_s: Annotated[
        int,
        typer.Option(
            "--most-s", min=1, max=MOST, help="Seconds after which hosts go back unchecked."
        ),
    ] = 1800,
) -> None:
    """Check idle hosts: GPUs, memory, network between pairs, and what agents.burn_in names.

    No gang starts on them meanwhile. What is measured is kept; hosts that are slower than others
    are taken last. A host that fails a check is out, with its words.
    Example: muster burn-in --free
    """
    from scheduler.cli.render import messages
    from scheduler.v1 import service_pb2

    if bool(hosts) == free:
        raise typer.BadParameter("give exactly one", param_hint="HOST or --free")
    with server.connected() as client:
        if hosts:
            named = set(host_names(client, expanded(hosts)))
            idle = [host for host in client.list_hosts() if host.name in named]
            busy = [host.name for host in idle if host.job]
            if missing := (named - {host.name for host in idle}) | set(busy):
                reason = f"no idle host: {', '.join(sorted(missing))}"
                raise typer.BadParameter(reason, param_hint="HOST")
        else:
            idle = [host for host in client.list_hosts() if _is_free(host)]
        names = [host.name for host in idle]
        _, code = each_done(client, names, lambda _, name: client.cordon_host(name, BURN_IN))
        late = set(names)
        try:
            _wait(client, late, time.monotonic() + most_s)
        finally:
            for name in sorted(late):
                client.uncordon_host(name)
        for name in sorted(late):
            typer.echo(f"{name}: not checked within {most_s} s: does an agent run there?", err=True)
        done = [host for host in client.list_hosts() if host.name in names]
        server.write(service_pb2.ListHostsResponse(hosts=done), messages.measures_table)
    if code or late:
        raise typer.Exit(code or TIMED_OUT)


def _is_free(host: host_pb2.Host) -> bool:
    from scheduler.v1.host_pb2 import HOST_STATE_GOLDEN, HOST_STATE_HEALTHY, HOST_STATE_SUSPECT

    serving = (HOST_STATE_HEALTHY, HOST_STATE_GOLDEN, HOST_STATE_SUSPECT)
    return host.state in serving and not host.job


def _wait(client: Client, names: set[str], until_s: float) -> None:
    """Wait until all are checked, and drop those that are from `names`."""
    while names and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
        names &= {host.name for host in client.list_hosts() if _is_awaited(host)}


def _is_awaited(host: host_pb2.Host) -> bool:
    from scheduler.v1.host_pb2 import HOST_STATE_CORDONED

    return host.state == HOST_STATE_CORDONED and host.cordon_reason == BURN_IN
