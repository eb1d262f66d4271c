"""`muster slots`, `defrag`, `tenants`, `tenant` and `accounting`: what free hosts are worth, moves
that mend it, and who holds and has used what."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from scheduler.cli import complete
from scheduler.cli.calls import (
    DEFAULT_ADDRESS,
    Address,
    AnswerFormat,
    AskedServer,
    Filter,
    asks_server,
    checked_only,
    connected,
    formatted,
)
from scheduler.cli.lists import Listing, asks_list
from scheduler.cli.numbers import MOST, past_ns, some_seconds

if TYPE_CHECKING:
    from scheduler.client import Client
    from scheduler.v1 import service_pb2


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(slots)
    app.command()(defrag)
    app.command()(tenants)
    app.command()(tenant)
    app.command()(accounting)


@asks_server
def slots(
    server: AskedServer,
    sizes: Annotated[
        str,
        typer.Option(help="Job sizes in GPUs, with commas. (default: 8,64,512,2048)"),
    ] = "",
    tenant: Annotated[
        str, typer.Option(help="Tenant of the jobs. (default: the default tenant)")
    ] = "",
    priority_class: Annotated[
        str, typer.Option("--class", help="Priority class of the jobs.")
    ] = "",
    time_limit_s: Annotated[
        int | None,
        typer.Option(
            "--limit",
            parser=some_seconds,
            metavar="DURATION",
            help="Time limit of the jobs, such as 2h30m. (default: the assumed limit)",
        ),
    ] = None,
) -> None:
    """Count how many jobs of each size would start now, in total and inside each zone.

    As if the jobs were submitted one after the other, behind the queue, under all quotas, cells
    and reservations. The line of a zone counts the jobs that fit into this zone alone.
    """
    from scheduler.cli.render.reason import slots_text

    wanted = _sizes(sizes)
    server.show(
        lambda client: client.list_slots(wanted, tenant, priority_class, time_limit_s), slots_text
    )


def _sizes(text: str) -> list[int]:
    if not text:
        return []
    words = [word.strip().replace("_", "") for word in text.split(",")]
    if not all(word.isdecimal() and 0 < int(word) < 1 << 31 for word in words):
        raise typer.BadParameter(f"{text!r} is not a list of sizes in GPUs", param_hint="--sizes")
    return [int(word) for word in words]


@asks_server
def defrag(
    server: AskedServer,
    hosts: Annotated[
        int | None,
        typer.Option("--for-hosts", min=1, max=MOST, help="Number of hosts to free in one zone."),
    ] = None,
    job: Annotated[
        str | None, typer.Option("--for", help="Free the hosts that this queued job needs.")
    ] = None,
    slow: Annotated[
        bool,
        typer.Option("--slow", help="Move gangs that degraded links hold up, where that pays."),
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Make the moves, all of them or none.")
    ] = False,
    etag: Annotated[
        str, typer.Option(help="With --apply: refuse if the proposal has changed.")
    ] = "",
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="With --apply: check that the moves are possible; change nothing."
        ),
    ] = False,
) -> None:
    """Propose the cheapest moves of running gangs that free hosts of one zone, or end slow steps.

    A move stops a gang and starts it again with some blocks on other hosts. Its price is
    the work since the last checkpoint and a restart. The cut of no gang grows, except with --slow.
    """
    from scheduler.cli.render.reason import proposal_text

    if (hosts is not None) + (job is not None) + slow != 1:
        raise typer.BadParameter("give exactly one", param_hint="--for-hosts, --for or --slow")
    if etag and not apply:
        raise typer.BadParameter("needs --apply", param_hint="--etag")
    with server.connected() as client:
        answer = client.defragment(
            hosts=hosts or 0,
            job=job or "",
            slow_gangs=slow,
            apply=apply,
            etag=etag,
            dry_run=dry_run,
        )
    server.write(answer, proposal_text)
    checked_only(apply and dry_run)


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


KEYS = ("tenant", "user", "day")


class TableFormat(StrEnum):
    """Format of rows."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


def accounting(
    by: Annotated[
        str, typer.Option(help="A row for each of these: tenant, user, day, with commas; or none.")
    ] = "tenant,user",
    since: Annotated[
        str, typer.Option(help="Jobs that ended since: 30d or 12h ago, or 2026-11-01.")
    ] = "30d",
    until: Annotated[
        str,
        typer.Option(help="Jobs that ended before, as --since. Without it, live jobs count too."),
    ] = "",
    filter: Filter = "",
    output: Annotated[
        TableFormat, typer.Option("--format", "-o", help="Output format.")
    ] = TableFormat.TABLE,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Sum up GPU-hours, goodput, waiting and failures by tenant, user and day.

    Covers the jobs that you may see. A job counts in full on the day (UTC) of its end; live
    jobs count until now.
    Example: muster accounting --by tenant,day --since 2026-11-01 --format csv
    """
    from scheduler.cli.render import accounting as tables

    keys = _keys(by)
    start_ns = past_ns(since, "--since")
    end_ns = past_ns(until, "--until") if until else None
    with connected(address) as client:
        answer = client.sum_usage(keys, start_ns, end_ns, filter)
    if output is TableFormat.TABLE:
        text = tables.usage_text(answer, keys) + "\n"
    elif output is TableFormat.CSV:
        text = tables.usage_csv(answer, keys)
    else:
        rows = tables.records(answer, keys)
        text = formatted({"rows": rows}, AnswerFormat(output.value)) + "\n"
    sys.stdout.write(text)


def _keys(text: str) -> list[str]:
    words = [word for word in text.split(",") if word and word != "none"]
    for word in words:
        if word not in KEYS:
            raise typer.BadParameter(f"{word!r} is not one of {', '.join(KEYS)}", param_hint="--by")
    return list(dict.fromkeys(words))
