"""`muster accounting`: what jobs have used, by tenant, user and day."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from scheduler.cli.calls import (
    DEFAULT_ADDRESS,
    Address,
    AnswerFormat,
    Filter,
    connected,
    formatted,
)
from scheduler.cli.numbers import past_ns

KEYS = ("tenant", "user", "day")


class TableFormat(StrEnum):
    """Format of rows."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(accounting)


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
