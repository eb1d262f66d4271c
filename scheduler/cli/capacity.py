"""`muster slots`: how many jobs of some sizes would start now."""

from __future__ import annotations

from typing import Annotated

import typer

from scheduler.cli.calls import DEFAULT_ADDRESS, Address, Format, Output, connected, write


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(slots)


def slots(
    sizes: Annotated[
        str,
        typer.Option(help="In GPUs, separated by commas; 8,64,512,2048 if empty."),
    ] = "",
    tenant: Annotated[str, typer.Option(help="Whose jobs; the default tenant's if empty.")] = "",
    priority_class: Annotated[
        str, typer.Option("--class", help="Their priority class; none if empty.")
    ] = "",
    time_limit_s: Annotated[
        int | None,
        typer.Option("--limit", help="Their time limit in seconds; the assumed one if unset."),
    ] = None,
    output: Output = Format.TABLE,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Count how many jobs of each size would start now, in all and inside each zone.

    They would be submitted behind all that wait, one after the other; quotas, kept shapes
    and reservations are honoured. A column of a zone counts what it alone would hold.
    """
    from scheduler.cli.advicetext import slots_text

    wanted = _sizes(sizes)
    with connected(address) as client:
        answer = client.list_slots(wanted, tenant, priority_class, time_limit_s)
    write(answer, slots_text, output)


def _sizes(text: str) -> list[int]:
    if not text:
        return []
    words = [word.strip().replace("_", "") for word in text.split(",")]
    if not all(word.isdecimal() and 0 < int(word) < 1 << 31 for word in words):
        raise typer.BadParameter(f"{text!r} is no list of sizes in GPUs", param_hint="--sizes")
    return [int(word) for word in words]
