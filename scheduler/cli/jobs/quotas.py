"""`muster tenants` and `tenant`: quotas, and who holds and has used what."""

from __future__ import annotations

from typing import Annotated

import typer

from scheduler.cli.calls import (
    DEFAULT_ADDRESS,
    Address,
    AnswerFormat,
    Filter,
    Output,
    connected,
    write,
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(tenants)
    app.command()(tenant)


def tenants(
    filter: Filter = "", output: Output = AnswerFormat.TABLE, address: Address = DEFAULT_ADDRESS
) -> None:
    """List tenants: guarantee, limit, GPUs held and queued, usage and share."""
    from scheduler.cli.render import messages

    with connected(address) as client:
        write(client.list_tenants(filter), messages.tenants_text, output)


def tenant(
    name: Annotated[str, typer.Argument(help="Name of the tenant.", show_default=False)],
    output: Output = AnswerFormat.TABLE,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Show one tenant."""
    from scheduler.cli.render import messages

    with connected(address) as client:
        write(client.get_tenant(name), messages.tenant_text, output)
