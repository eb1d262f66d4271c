"""`muster status`: the cluster on one screen."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from scheduler.cli.calls import AskedServer, asks_server
from scheduler.cli.lists import CLEARED, WATCH_S


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(status)
    app.command()(incidents)


@asks_server
def status(
    server: AskedServer,
    gangs: Annotated[
        int, typer.Option(help="Largest number of gangs to show.", min=1, max=1_000)
    ] = 20,
    incidents: Annotated[
        int, typer.Option(help="Largest number of incidents to show.", min=1, max=100)
    ] = 10,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again every 2 s, until Ctrl-C.")
    ] = False,
) -> None:
    """Show the cluster on one screen: server, domains, tenants, gangs, incidents."""
    from scheduler.cli.render.status import status_text

    with server.connected() as client:
        while True:
            answer = client.get_status(gangs, incidents)
            if watch and sys.stdout.isatty():
                typer.echo(CLEARED, nl=False)
            server.write(answer, status_text)
            if not watch:
                return
            sys.stdout.flush()
            time.sleep(WATCH_S)


@asks_server
def incidents(
    server: AskedServer,
    most: Annotated[
        int, typer.Option("--limit", help="Largest number of incidents to show.", min=1, max=1_000)
    ] = 20,
) -> None:
    """Show failures and what came of each: the gang, how it went on, and the cost, by week too.

    STOOD: from the failure to the next step. LOST: GPU-hours of steps to do again, of standing
    still and of the restart; `~`: by the usual costs, for its ranks report no checkpoints.
    """
    from scheduler.cli.render.status import incidents_text

    server.show(lambda client: client.list_incidents(most), incidents_text)
