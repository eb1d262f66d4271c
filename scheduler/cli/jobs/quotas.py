"""`muster tenants` and `tenant`: quotas, and who holds and has used what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from scheduler.cli import complete
from scheduler.cli.calls import (
    DEFAULT_ADDRESS,
    Address,
    AnswerFormat,
    Filter,
    Output,
    connected,
    write,
)
from scheduler.cli.lists import (
    Columns,
    ListFormat,
    ListOptions,
    ListOutput,
    NoHeaders,
    Sort,
    WatchList,
    write_list,
)

if TYPE_CHECKING:
    from scheduler.v1 import service_pb2


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(tenants)
    app.command()(tenant)


def tenants(
    filter: Filter = "",
    output: ListOutput = ListFormat.TABLE,
    columns: Columns = "",
    sort: Sort = "",
    no_headers: NoHeaders = False,
    watch: WatchList = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """List tenants: guarantee, limit, GPUs held and queued, usage and share."""
    from scheduler.cli.render import messages

    default = ""

    def fetch() -> service_pb2.ListTenantsResponse:
        nonlocal default
        answer = client.list_tenants(filter)
        default = answer.default_tenant
        return answer

    with connected(address) as client:
        write_list(
            fetch,
            "tenants",
            lambda tenants: messages.tenants_table(tenants, default),
            ListOptions(output, columns, sort, no_headers, watch),
        )


def tenant(
    name: Annotated[
        str,
        typer.Argument(
            help="Name of the tenant.", autocompletion=complete.tenants, show_default=False
        ),
    ],
    output: Output = AnswerFormat.TABLE,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Show one tenant."""
    from scheduler.cli.render import messages

    with connected(address) as client:
        write(client.get_tenant(name), messages.tenant_text, output)
