"""`muster replay`: a trace through the scheduler, on a virtual clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from scheduler.problems import InputError, Problem

if TYPE_CHECKING:
    from rich.console import Console

    from simulator.case import Case, Progress

MOST_WARNINGS = 20
MOST_DECISION_S = 86_400
# Spelt out, for the readers are imported only when a command runs; a test compares.
TRACE_FORMATS = "swf, philly-csv, philly-json, helios, acme, pai, gavel, slurm-sacct or muster."
STEPS = 2_000  # kernel steps between two looks at the progress bar


class Format(StrEnum):
    """What the totals are written as."""

    TABLE = "table"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the commands of the simulator: one plug-in for all."""
    from simulator import tracecli
    from simulator.study import commands

    app.command("replay")(replay_command)
    tracecli.register(app)
    commands.register(app)


def replay_command(
    trace: Annotated[Path, typer.Argument(help="The trace, plain or gzip.", show_default=False)],
    trace_format: Annotated[str, typer.Option(help=TRACE_FORMATS, show_default=False)],
    fabric: Annotated[
        str,
        typer.Option(help="A preset (roce-24k, ib-24k) or a fabric file.", show_default=False),
    ],
    policy: Annotated[
        Literal["production", "easy", "fifo", "conservative"],
        typer.Option(help="How the queue is served."),
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
        str,
        typer.Option(
            help='auto, a number of hosts or a share such as "2%"; 0 by default, for traces'
            " know nothing of spares. Jobs of a muster trace say it themselves."
        ),
    ] = "0",
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
        int | None, typer.Option(min=1, help="Replay so many jobs at most.", show_default=False)
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
        Format, typer.Option("--format", help="How the totals are written.")
    ] = Format.TABLE,
) -> None:
    """Replay a trace through the scheduler that the service runs.

    The same admission, decisions, backfill and placement, with the clock and the
    launcher replaced. The same trace, options and seed give the same log.
    """
    from scheduler import specs
    from scheduler.core import Policy
    from scheduler.tenantsfile import load_tenants
    from scheduler.windowsfile import load_windows
    from simulator.case import Case, costs_of
    from simulator.placers import Placer
    from simulator.shapes import Rule
    from simulator.timing import load_times

    ruled = load_tenants(tenants) if tenants is not None else None
    case = Case(
        trace,
        trace_format,
        specs.load_fabric(fabric),
        Policy(policy),
        failures,
        seed,
        specs.parse_spares(spares),
        costs_of(ruled, checkpoint_s, restart_s, detect_s),
        _decision_s(decision_s),
        strict,
        since,
        limit,
        ruled,
        load_windows(windows) if windows is not None else None,
        None if assumed_limit_h is None else max(1, round(assumed_limit_h * 3600)),
        Rule(attach),
        placement=Placer(placement),
        times=load_times(times) if times is not None else None,
        until_s=None if until_h is None else until_h * 3600,
    )
    totals = _run(case, report, parquet)
    typer.echo(json.dumps(totals) if output is Format.JSON else _table(totals))


def _decision_s(text: str) -> float | None:
    """None: as long as it does take."""
    from scheduler.problems import InputError, Problem

    if text == "measured":
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MOST_DECISION_S:
        message = f"must be measured, or seconds from 0 to {MOST_DECISION_S:,}, not {text!r}"
        raise InputError(Problem("--decision-s", message))
    return seconds


def _run(case: Case, folder: Path | None, has_parquet: bool) -> dict[str, Any]:
    """The replay, with warnings and a progress bar on stderr."""
    from rich.console import Console

    from simulator.case import run_case
    from simulator.conserved import NotConserved
    from simulator.report import Report
    from simulator.report.tables import need_parquet

    if has_parquet:
        if folder is None:
            raise InputError(Problem("--parquet", "needs --report, the folder to write to"))
        need_parquet()
    console = Console(stderr=True)
    warnings = Warnings()
    with ExitStack() as stack:
        report = None
        if folder:
            report = stack.enter_context(Report(folder, has_parquet=has_parquet))
        progress = stack.enter_context(_progress(console, case)) if console.is_terminal else None
        try:
            totals = run_case(case, report, warnings.add, progress)
        except NotConserved as error:
            typer.echo(f"error: the replay is void, {error}; please report this", err=True)
            raise typer.Exit(1) from None
    warnings.close()
    return totals


class Warnings:
    """The first few lines on stderr, and how many more there were."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, line: str) -> None:
        self._count += 1
        if self._count <= MOST_WARNINGS:
            typer.echo(line, err=True)

    def close(self) -> None:
        if self._count > MOST_WARNINGS:
            typer.echo(f"... and {self._count - MOST_WARNINGS:,} more", err=True)


@contextmanager
def _progress(console: Console, case: Case) -> Iterator[Callable[[Progress], None]]:
    """A bar of the jobs ended among those read so far."""
    from rich import progress as rich

    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.TextColumn("{task.completed:,.0f} of {task.total:,.0f} jobs"),
        rich.TextColumn("{task.fields[events]:,} events"),
        rich.TimeElapsedColumn(),
    )
    with rich.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(case.trace.name, total=1, events=0)
        steps = 0

        def show(now: Progress) -> None:
            nonlocal steps
            steps += 1
            if steps % STEPS == 0:
                bar.update(task, total=now.records, completed=now.ended, events=now.events)

        yield show


def _table(totals: dict[str, Any]) -> str:
    from simulator.report import figures, headline

    rows = figures(totals)
    width = max(len(name) for name, _ in rows)
    lines = [f"{name.ljust(width)}  {value}" for name, value in rows]
    notes = [f"note: {sentence}" for sentence in totals["assumptions"]]
    return "\n".join([headline(totals), "", *lines, "", *notes])
