"""`muster status`: the cluster on one screen."""

from __future__ import annotations

from typing import Annotated

import typer

from scheduler.cli.calls import AskedServer, asks_server


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(status)


@asks_server
def status(
    server: AskedServer,
    gangs: Annotated[
        int, typer.Option(help="Largest number of gangs to show.", min=1, max=1_000)
    ] = 20,
    incidents: Annotated[
        int, typer.Option(help="Largest number of incidents to show.", min=1, max=100)
    ] = 10,
) -> None:
    """Show the cluster on one screen: server, domains, tenants, gangs, incidents."""
    from scheduler.cli.render.status import status_text

    server.show(lambda client: client.get_status(gangs, incidents), status_text)
