"""`muster compare` and `muster sweep`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from muster.structs import struct
from scheduler.files.errors import InputError, Problem
from simulator.cli.parameters import checked_values, with_options
from simulator.options import BY_KEY, OPTIONS, ReplayOption, Value, conflicts, from_command_line

if TYPE_CHECKING:
    from simulator.experiment_file import ParameterGrid
    from simulator.study import PointStore

MOST_COMPARED = 48  # variants; beyond, a sweep is the better tool


class PointsFormat(StrEnum):
    """Output format of a study."""

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
    dask: DaskScheduler = None,
    output: Annotated[
        PointsFormat, typer.Option("--format", "-o", help="Output format.")
    ] = PointsFormat.TABLE,
    **options: Any,
) -> None:
    """Replay one trace in several ways, under the same seeds, and compare the results.

    Every combination of options that are given several times is a variant. The
    first variant is the baseline. --failures none stands for no failures.
    """
    from simulator.cli.terminal import note_replaced
    from simulator.experiment_file import ParameterGrid
    from simulator.study import PointStore

    several = [option for option in OPTIONS if option.is_several]
    axes = {option.key: _values(option, options[option.key]) for option in several}
    base = checked_values({key: options[key] for key in options.keys() - axes.keys()})
    if (count := prod(len(axes[key]) for key in axes if key != "seed")) > MOST_COMPARED:
        message = f"makes {count} variants, more than {MOST_COMPARED}; use muster sweep"
        raise InputError(Problem("", message))
    grid = ParameterGrid.of(base, {key: each for key, each in axes.items() if each != [None]})
    for point in grid.points:
        for key, message in conflicts(point):
            raise InputError(Problem(BY_KEY[key].flag, message))
    note_replaced(report, "points.json")
    _run(grid, PointStore(None), StudyOutput(report, output, report), processes, dask)


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
    from simulator.experiment_file import load_experiment_file
    from simulator.study import PointStore

    grid = load_experiment_file(str(experiment))
    _run(grid, PointStore(report), StudyOutput(report, output), processes, dask)


@struct(frozen=True, slots=True)
class StudyOutput:
    """Where a study goes. `report`: the folder of its page, None for none; `runs`: where each run
    gets a report of its own."""

    report: Path | None
    format: PointsFormat
    runs: Path | None = None


def _run(
    grid: ParameterGrid, store: PointStore, to: StudyOutput, processes: int | None, dask: str | None
) -> None:
    """Run the points that are missing, and show all."""
    from simulator import study
    from simulator.cli.terminal import violations_reported
    from simulator.pool import cores
    from simulator.report import study_table

    waiting, ready = study.split(grid, store, to.runs)
    if ready:
        typer.echo(f"{len(ready):,} of {len(grid.points):,} points are finished already", err=True)
    with violations_reported(), counted(len(grid.points), "replays", len(ready)) as on_done:
        study.run_points(waiting, store, processes or cores(), dask, on_done)
    table = study.collect(grid, store)
    if to.report:
        from simulator.report.study_page import write_study

        study_table.write(table, to.report)
        write_study(to.report, table)
    if to.format is PointsFormat.JSON:
        typer.echo(json.dumps(table))
    elif to.format is PointsFormat.CSV:
        typer.echo(study_table.csv_text(table), nl=False)
        for note in table["notes"]:
            typer.echo(f"note: {note}", err=True)
    else:
        typer.echo(study_table.text(table))
