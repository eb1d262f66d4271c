"""`muster status`: the cluster on one screen."""

from __future__ import annotations

from typing import Annotated

import typer

from scheduler.cli.calls import DEFAULT_ADDRESS, Address, Output, OutputFormat, connected, write


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(status)


def status(
    gangs: Annotated[int, typer.Option(help="Gangs to show at most.", min=1, max=1_000)] = 20,
    incidents: Annotated[int, typer.Option(help="Incidents to show at most.", min=1, max=100)] = 10,
    output: Output = OutputFormat.TABLE,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Show the server, hosts and GPUs by domain, queues, gangs with their cuts, incidents."""
    from scheduler.cli.render.status import status_text

    with connected(address) as client:
        write(client.get_status(gangs, incidents), status_text, output)
