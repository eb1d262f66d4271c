"""`muster replay`: a trace through the scheduler, on a virtual clock."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from scheduler.files.errors import InputError, Problem
from simulator.cli.parameters import checked_values, with_options


class TotalsFormat(StrEnum):
    """Format of the totals of a replay."""

    TABLE = "table"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("replay")(with_options(replay_command))


def replay_command(
    report: Annotated[
        Path | None,
        typer.Option(help="Folder for a page (index.html), its figures, and tables."),
    ] = None,
    output: Annotated[
        TotalsFormat, typer.Option("--format", "-o", help="Output format of the totals.")
    ] = TotalsFormat.TABLE,
    **options: Any,
) -> None:
    """Replay a trace through the scheduler that the service runs.

    Admission, decisions, backfill and placement are the same code; only the
    clock and the launcher are replaced. The same trace, options and seed give
    the same log.
    """
    from simulator.cli.terminal import run_with_progress, table
    from simulator.experiment import experiment_of
    from simulator.options import BY_KEY, DEFAULTS, conflicts

    values = {**DEFAULTS, **checked_values(options)}
    for key, message in conflicts(values):
        raise InputError(Problem(BY_KEY[key].flag, message))
    totals = run_with_progress(experiment_of(values), report)
    typer.echo(json.dumps(totals) if output is TotalsFormat.JSON else table(totals))
