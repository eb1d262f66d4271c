"""`muster serve`, and the commands that talk to a server."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from scheduler.cli import capacity, hosts, jobs, quotas
from scheduler.cli.calls import DEFAULT_ADDRESS, FAILED, end, quiet_grpc

if TYPE_CHECKING:
    from scheduler.server import Ready, Settings


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(serve)
    jobs.register(app)
    hosts.register(app)
    quotas.register(app)
    capacity.register(app)


def serve(
    fabric: Annotated[
        str | None,
        typer.Option(help="A preset or a fabric file; a store that has one needs none."),
    ] = None,
    store: Annotated[
        str, typer.Option(help="Where the log is kept, sqlite:///FILE.")
    ] = "sqlite:///muster.db",
    listen: Annotated[
        str,
        typer.Option(help="HOST:PORT; port 0 takes a free one. Callers are not authenticated."),
    ] = DEFAULT_ADDRESS,
    policy: Annotated[
        Literal["production", "easy", "fifo", "conservative"],
        typer.Option(help="How the queue is ordered and whether later jobs may overtake."),
    ] = "production",
    tenants: Annotated[
        str | None,
        typer.Option(help="A tenants file: quotas, shares, priority classes. Default: as before."),
    ] = None,
    assumed_limit_h: Annotated[
        float, typer.Option(min=0.01, max=87_600, help="Time limit of jobs that state none.")
    ] = 24.0,
) -> None:
    """Serve until SIGTERM or Ctrl-C. One line on stdout says when it is ready."""
    import logging

    quiet_grpc()
    from scheduler.core import Limits, Policy
    from scheduler.server import Settings
    from scheduler.specs import load_fabric
    from scheduler.tenantsfile import load_tenants

    described = load_fabric(fabric) if fabric is not None else None
    file = load_tenants(tenants) if tenants is not None else None
    if file and described:
        file.check(described)
    limits = Limits(policy=Policy(policy), assumed_limit_s=max(1, round(assumed_limit_h * 3600)))
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    spec = described.spec if described else None
    _serve(Settings(store, listen, spec, limits, tenants=file.tenants if file else None))


def _serve(settings: Settings) -> None:
    import asyncio

    from scheduler.server import CannotListen
    from scheduler.server import serve as run
    from scheduler.store import StoreError

    try:
        asyncio.run(run(settings, _say_ready))
    except (StoreError, CannotListen) as error:
        raise end(str(error), FAILED) from None


def _say_ready(ready: Ready) -> None:
    typer.echo(
        f"muster serves {ready.fabric.name} ({ready.fabric.host_count:,} hosts)"
        f" on {ready.address}, log at version {ready.version}"
    )
    sys.stdout.flush()
