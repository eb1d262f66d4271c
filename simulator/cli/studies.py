"""`muster compare` and `muster sweep`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from scheduler.files.errors import InputError, Problem
from simulator.cli.parameters import checked_values, with_options
from simulator.cli.replay import TotalsFormat
from simulator.options import BY_KEY, DEFAULTS, OPTIONS, ReplayOption, Value, from_command_line
from simulator.report.text import columns


class PointsFormat(StrEnum):
    """Format of a sweep's points."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("compare")(with_options(compare_command, takes_several=True))
    app.command("sweep")(sweep_command)


Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        "--workers",
        min=1,
        max=1024,
        help="Number of runs at once. Default: the number of cores.",
        show_default=False,
    ),
]
DaskScheduler = Annotated[
    str | None,
    typer.Option(
        "--dask",
        help="A Dask scheduler (tcp://host:8786) whose workers do the runs.",
        show_default=False,
    ),
]


def compare_command(
    report: Annotated[
        Path | None,
        typer.Option(help="Folder for a page that compares, and a report of every run."),
    ] = None,
    processes: Processes = None,
    output: Annotated[
        TotalsFormat, typer.Option("--format", "-o", help="Output format.")
    ] = TotalsFormat.TABLE,
    **options: Any,
) -> None:
    """Replay one trace in several ways, under the same seeds, and compare the results.

    Every combination of options that are given several times is a variant. The
    first variant is the baseline. --failures none stands for no failures.
    """
    from simulator import compare as study
    from simulator.cli.terminal import violations_reported
    from simulator.pool import cores

    axes = {
        option.key: _values(option, options[option.key]) for option in OPTIONS if option.is_several
    }
    seeds = [int(seed or 0) for seed in axes.pop("seed")]
    single = {key: value for key, value in options.items() if not BY_KEY[key].is_several}
    variants = study.variants({**DEFAULTS, **checked_values(single)}, axes)
    if len(variants) > study.MOST:
        message = f"makes {len(variants)} variants, more than {study.MOST}; use muster sweep"
        raise InputError(Problem("", message))
    for key, message in study.ineffective(variants):
        raise InputError(Problem(BY_KEY[key].flag, message))
    with violations_reported(), counted(len(variants) * len(seeds), "replays") as on_done:
        result = study.compare(variants, seeds, processes or cores(), report, on_done)
    if report:
        from simulator.report.comparison_page import write_comparison

        write_comparison(report, result)
    typer.echo(json.dumps(result) if output is TotalsFormat.JSON else _side_by_side(result))


def _values(option: ReplayOption, texts: Sequence[Value] | None) -> list[Value]:
    """The values of an option that may be given several times."""
    values = [
        None if option.key == "failures" and text == "none" else from_command_line(option.key, text)
        for text in texts or [option.default]
    ]
    if twice := [value for i, value in enumerate(values) if value in values[:i]]:
        raise InputError(Problem(option.flag, f"{twice[0]} is given twice"))
    return values


@contextmanager
def counted(total: int, of: str, done: int = 0) -> Iterator[Callable[[], None] | None]:
    """Show a progress bar with the time that is left, where stderr is a terminal."""
    from rich import progress as rich
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        rich.BarColumn(),
        rich.TextColumn("{task.completed:,.0f} of {task.total:,.0f} " + of),
        rich.TimeElapsedColumn(),
        rich.TextColumn("left:"),
        rich.TimeRemainingColumn(elapsed_when_finished=False),
    )
    with rich.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total - done)
        yield lambda: bar.advance(task)


def _side_by_side(result: dict[str, Any]) -> str:
    """Figures by row, variants by column."""
    from simulator.report.figures import SeedRange, shown

    variants = result["variants"]
    runs = [run for variant in variants for run in variant["runs"]]
    rows = [["", *(variant["name"] for variant in variants)]]
    for figure in shown(runs):
        ranges = [variant["figures"][figure.key] for variant in variants]
        text = [SeedRange(r["mean"], r["min"], r["max"]).text(figure) for r in ranges]
        rows.append([figure.words, *text])
    seeds = ", ".join(map(str, result["seeds"]))
    several = "; mean (least to most) over them" if len(result["seeds"]) > 1 else ""
    head = f"{result['trace']['file']}, seed{'s' if several else ''} {seeds}{several}"
    notes = [f"note: {sentence}" for sentence in (*result["notes"], *_shared(runs))]
    return "\n".join([head, "", columns(rows), "", *notes])


def _shared(runs: Sequence[dict[str, Any]]) -> list[str]:
    """Return the assumptions that all runs share."""
    return [s for s in runs[0]["assumptions"] if all(s in run["assumptions"] for run in runs)]


def sweep_command(
    experiment: Annotated[
        Path,
        typer.Argument(help="An experiment file: options and a grid.", show_default=False),
    ],
    report: Annotated[
        Path,
        typer.Option(help="Folder for the page and the points; finished points stay in it."),
    ],
    processes: Processes = None,
    dask: DaskScheduler = None,
    output: Annotated[
        PointsFormat, typer.Option("--format", "-o", help="Output format.")
    ] = PointsFormat.TABLE,
) -> None:
    """Replay every point of a grid: spares, oversubscription, failures, policies, seeds.

    A finished point is a file, named by a digest of everything that it depends
    on. The same command, run again after an interruption or with a larger grid,
    runs only the points that are missing.
    """
    from simulator import sweep as study
    from simulator.cli.terminal import violations_reported
    from simulator.experiment_file import load_experiment_file
    from simulator.pool import cores
    from simulator.report import points

    grid = load_experiment_file(str(experiment))
    store = study.PointStore(report)
    waiting, ready = study.split(grid, store)
    if ready:
        typer.echo(f"{len(ready):,} of {len(grid.points):,} points are finished already", err=True)
    with violations_reported(), counted(len(grid.points), "points", len(ready)) as on_done:
        study.run_points(waiting, store, processes or cores(), dask, on_done)
    table = study.collect(grid, store)
    points.write(table, report)
    from simulator.report.sweep_page import write_sweep

    write_sweep(report, table)
    if output is PointsFormat.JSON:
        typer.echo(json.dumps(table))
    elif output is PointsFormat.CSV:
        typer.echo((report / "points.csv").read_text(), nl=False)
    else:
        typer.echo(columns(points.rows(table)))
    for note in [] if output is PointsFormat.JSON else table["notes"]:
        typer.echo(f"note: {note}", err=output is PointsFormat.CSV)
