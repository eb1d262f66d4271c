"""`muster tenants` and `tenant`: quotas, and who holds and has used what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from scheduler.cli import complete
from scheduler.cli.calls import AskedServer, Filter, asks_server
from scheduler.cli.lists import Listing, asks_list

if TYPE_CHECKING:
    from scheduler.client import Client
    from scheduler.v1 import service_pb2


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(tenants)
    app.command()(tenant)


@asks_list
def tenants(
    listing: Listing,
    filter: Filter = "",
) -> None:
    """List tenants: guarantee, limit, GPUs held and queued, usage and share."""
    from scheduler.cli.render import messages

    default = ""

    def fetch(client: Client) -> service_pb2.ListTenantsResponse:
        nonlocal default
        answer = client.list_tenants(filter)
        default = answer.default_tenant
        return answer

    listing.write(fetch, "tenants", lambda tenants: messages.tenants_table(tenants, default))


@asks_server
def tenant(
    server: AskedServer,
    name: Annotated[
        str,
        typer.Argument(
            help="Name of the tenant.", autocompletion=complete.tenants, show_default=False
        ),
    ],
) -> None:
    """Show one tenant."""
    from scheduler.cli.render import messages

    server.show(lambda client: client.get_tenant(name), messages.tenant_text)
