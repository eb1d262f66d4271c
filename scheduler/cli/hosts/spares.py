"""`muster spares`: what each zone survives."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from scheduler.cli.calls import AskedServer, asks_server
from scheduler.cli.render.tables import Column, ListTable, number_column, terminal_view
from scheduler.cli.render.text import counted
from scheduler.v1 import service_pb2, spares_pb2

MOST_HOLDERS = 3


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(spares)


@asks_server
def spares(server: AskedServer) -> None:
    """Show the spares of each zone, and what one more would save.

    Jobs with `spares: auto` share their spares in a zone. SHORT: share of the time in which
    more hosts are down than spares are held. SAVED: GPU-hours a year that one spare more
    would save, given the hosts that are free now.
    """
    server.show(lambda client: client.list_spares(), spares_text)


def spares_text(answer: service_pb2.ListSparesResponse) -> str:
    target = sum(zone.target for zone in answer.zones)
    rate = answer.failures_per_1000_host_days
    hours = answer.mean_repair_duration.ToNanoseconds() / (3_600 * 10**9)
    basis = (
        f"target for {rate:.2f} failures per 1,000 host-days and {hours:.1f} h of repair\n"
        f"({counted(answer.failures, 'failure')} and {counted(answer.repairs, 'repair')} seen),\n"
        f"short at most {100 * answer.epsilon:.2f} % of the time: {target:,} spares by zone,"
        f" {answer.pooled:,} in one pool"
    )
    return f"{_ZONES.text(answer.zones, terminal_view())}\n\n{basis}"


def _named(holders: Sequence[spares_pb2.SpareHolder]) -> str:
    names = [f"{holder.job} {holder.spares:,}" for holder in holders]
    more = len(names) - MOST_HOLDERS
    shown = ", ".join(names[:MOST_HOLDERS]) + (f" and {more:,} more" if more > 0 else "")
    return shown or "-"


_ZONES = ListTable(
    (
        Column("ZONE", lambda zone: zone.domain),
        number_column("IN GANGS", "gang_hosts"),
        number_column("SPARES", "held"),
        number_column("TARGET", "target"),
        number_column("OWN", "own"),
        number_column("LENT", "lent"),
        number_column("FREE", "free"),
        number_column("DOWN", "down"),
        number_column("RACKS", "whole_racks", is_minor=True),
        Column("SHORT", lambda zone: f"{100 * zone.short_share:.3f} %", is_right=True),
        Column(
            "SHORT, 1 MORE",
            lambda zone: f"{100 * zone.short_share_next:.3f} %",
            is_right=True,
            is_minor=True,
        ),
        Column(
            "SAVED GPU-H/Y", lambda zone: f"{zone.saved_gpu_hours_per_year:,.0f}", is_right=True
        ),
        Column("HELD BY", lambda zone: _named(zone.holders), is_text=True, is_minor=True),
        Column("LENT TO", lambda zone: _named(zone.borrowers), is_text=True, is_minor=True),
    ),
    "no zones",
)
