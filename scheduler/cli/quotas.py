"""`muster tenants`: quotas, and who holds and has used what."""

from __future__ import annotations

import typer

from scheduler.cli.calls import DEFAULT_ADDRESS, Address, Format, Output, connected, write


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(tenants)


def tenants(output: Output = Format.TABLE, address: Address = DEFAULT_ADDRESS) -> None:
    """List tenants: guarantee, limit, GPUs held and asked for, usage and share of it."""
    from scheduler.cli import messages

    with connected(address) as client:
        write(client.list_tenants(), messages.tenants_text, output)
