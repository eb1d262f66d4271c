"""`muster replay`: a trace through the scheduler, on a virtual clock."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from scheduler.files.defaults import LEAST_GAIN_PERCENT, RESIZE_EVERY_S
from scheduler.files.errors import InputError, Problem

MOST_DECISION_S = 86_400
# Spelt out, for the readers are imported only when a command runs; a test compares.
TRACE_FORMATS = "swf, philly-csv, philly-json, helios, acme, pai, gavel, slurm-sacct or muster."


class OutputFormat(StrEnum):
    """What the totals are written as."""

    TABLE = "table"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("replay")(replay_command)


def replay_command(
    ctx: typer.Context,
    trace: Annotated[
        Path | None, typer.Argument(help="The trace, plain or gzip.", show_default=False)
    ] = None,
    trace_format: Annotated[
        str | None, typer.Option(help=TRACE_FORMATS, show_default=False)
    ] = None,
    fabric: Annotated[
        str | None,
        typer.Option(help="A preset (roce-24k, ib-24k) or a fabric file.", show_default=False),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            help="How the queue is served: production, easy, fifo, conservative, or a policy that"
            " a package adds."
        ),
    ] = "production",
    placement: Annotated[
        Literal["minimum-cut", "consecutive", "random", "spread"],
        typer.Option(
            help="Who chooses the hosts: the scheduler, or for comparison fewest domains by"
            " a count of slots, chance, or Arnold's spread."
        ),
    ] = "minimum-cut",
    tenants: Annotated[
        str | None,
        typer.Option(
            help="A tenants file; jobs belong to the tenant named like their queue or user."
        ),
    ] = None,
    health: Annotated[
        str | None, typer.Option(help="A health file: what reports of hosts do, as for serve.")
    ] = None,
    windows: Annotated[
        str | None,
        typer.Option(help="A windows file; +2h in it counts from the first submit."),
    ] = None,
    assumed_limit_h: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=87_600,
            help="Time limit of jobs that state none; default: their run time.",
        ),
    ] = None,
    resize_every_s: Annotated[
        int,
        typer.Option(min=0, help="An elastic gang grows no sooner after its last start."),
    ] = RESIZE_EVERY_S,
    least_gain_percent: Annotated[
        int,
        typer.Option(min=0, help="More replicas that are worth a restart, or all it asks for."),
    ] = LEAST_GAIN_PERCENT,
    failures: Annotated[
        str | None,
        typer.Option(
            help="poisson:rate=6.5,repair_h=24 (per 1,000 host-days), weibull:, llama3, rsc1,"
            " rsc2, ft-hsdp, infinitehbd:FILE, lanl:FILE, a YAML file of causes, or host"
            " events (CSV, JSON); several with `;`."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    spares: Annotated[
        str | None,
        typer.Option(
            help='auto, a number of hosts or a share such as "2%", whatever jobs state; by default'
            " what jobs of a muster trace state, and 0 for those of which only the size is known.",
            show_default=False,
        ),
    ] = None,
    attach: Annotated[
        Literal["ring", "llm", "llm-elastic"],
        typer.Option(help="What jobs train of which the trace knows only the size."),
    ] = "ring",
    report: Annotated[
        Path | None,
        typer.Option(
            help="Folder for a page (index.html), its figures, and tables of jobs and events."
        ),
    ] = None,
    parquet: Annotated[
        bool, typer.Option("--parquet", help="Tables of --report as Parquet too; needs pyarrow.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse a trace with a record that cannot be used.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(help="Leave out earlier jobs: YYYY-MM-DD or seconds after the first submit."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, max=2**31 - 1, help="Replay so many jobs at most.", show_default=False),
    ] = None,
    checkpoint_s: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Productive time between two checkpoints; default: of the tenants file, or 1800.",
        ),
    ] = None,
    restart_s: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Time until an interrupted gang makes progress again; default: the same, or 300.",
        ),
    ] = None,
    detect_s: Annotated[
        int | None,
        typer.Option(
            min=0, help="Time until a failure is noticed, which is lost; default: the same, or 0."
        ),
    ] = None,
    times: Annotated[
        str | None,
        typer.Option(
            help="A time model: default, llama3 or a YAML file, then changes such as"
            " llama3,checkpoint.interval_s=1800. Takes the place of --checkpoint-s,"
            " --restart-s and --detect-s; steps take as long as the placement and its"
            " neighbours make them.",
            show_default=False,
        ),
    ] = None,
    until_h: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=876_000,
            help="Cut off whatever is live so long after the first submit.",
            show_default=False,
        ),
    ] = None,
    decision_s: Annotated[
        str, typer.Option(help="How long a decision is taken to last; measured: as it does.")
    ] = "0",
    output: Annotated[
        OutputFormat, typer.Option("--format", help="How the totals are written.")
    ] = OutputFormat.TABLE,
) -> None:
    """Replay a trace through the scheduler that the service runs.

    The same admission, decisions, backfill and placement, with the clock and the
    launcher replaced. The same trace, options and seed give the same log.
    """
    options = _options(ctx)

    from simulator.cli.terminal import Order, run, table
    from simulator.experiment import case_of

    totals = run(Order(case_of(options), report, parquet))
    typer.echo(json.dumps(totals) if output is OutputFormat.JSON else table(totals))


def _given(ctx: typer.Context) -> dict[str, Any]:
    """The options of the replay itself that stand on the command line."""
    from simulator.options import DEFAULTS, MEASURED, option

    values = {
        name: value
        for name, value in ctx.params.items()
        if name in DEFAULTS and str(ctx.get_parameter_source(name)).endswith("COMMANDLINE")
    }
    if "trace" in values:
        values["trace"] = str(values["trace"])
    if "decision_s" in values:
        values["decision_s"] = _decision_s(values["decision_s"])
    # A trace that cannot be read is named by its reader.
    return {
        name: value if name == "trace" or value == MEASURED else option(name, value)
        for name, value in values.items()
    }


def _options(ctx: typer.Context) -> dict[str, Any]:
    """All options of the replay. Raises: InputError."""
    from simulator.options import COSTS, DEFAULTS, NEEDED

    given = _given(ctx)
    for key in NEEDED:
        if key not in given:
            name = "TRACE" if key == "trace" else f"--{key.replace('_', '-')}"
            raise InputError(Problem(name, "is required"))
    for key in COSTS:
        if key in given and "times" in given:
            name = f"--{key.replace('_', '-')}"
            raise InputError(Problem(name, "stands beside --times, which says it: give one"))
    return {**DEFAULTS, **given}


def _decision_s(text: str) -> float | str:
    from simulator.options import MEASURED

    if text == MEASURED:
        return MEASURED
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MOST_DECISION_S:
        message = f"must be measured, or seconds from 0 to {MOST_DECISION_S:,}, not {text!r}"
        raise InputError(Problem("--decision-s", message))
    return seconds
