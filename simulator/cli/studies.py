"""`muster compare` and `muster sweep`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scheduler.files.defaults import LEAST_GAIN_PERCENT, RESIZE_EVERY_S
from scheduler.files.errors import InputError, Problem

if TYPE_CHECKING:
    from simulator.options import Value

NEAR = "how it is replayed, as for `muster replay`"


class Output(StrEnum):
    """What the result is written as."""

    TABLE = "table"
    JSON = "json"


class Listing(StrEnum):
    """What a sweep's points are written as."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("compare")(compare_command)
    app.command("sweep")(sweep_command)


Processes = Annotated[
    int | None,
    typer.Option(min=1, help="Replays at once; default: the cores.", show_default=False),
]


def compare_command(
    trace: Annotated[str, typer.Argument(help="The trace, plain or gzip.", show_default=False)],
    trace_format: Annotated[str, typer.Option(help="As for `muster replay`.", show_default=False)],
    fabric: Annotated[
        list[str], typer.Option(help="A preset or a fabric file; several.", show_default=False)
    ],
    policy: Annotated[
        list[str] | None, typer.Option(help="How the queue is served; several. [production]")
    ] = None,
    placement: Annotated[
        list[str] | None, typer.Option(help="Who chooses the hosts; several. [minimum-cut]")
    ] = None,
    spares: Annotated[
        list[str] | None,
        typer.Option(help="auto, a number or a share, whatever jobs state; several."),
    ] = None,
    failures: Annotated[
        list[str] | None, typer.Option(help="A failure model, or none; several. [none]")
    ] = None,
    checkpoint_s: Annotated[
        list[int] | None, typer.Option(help="Time between checkpoints; several. [1800]")
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Every variant runs under each; several. [0]")
    ] = None,
    restart_s: Annotated[
        int | None, typer.Option(help="Time until progress again. [300]", show_default=False)
    ] = None,
    detect_s: Annotated[
        int | None, typer.Option(help="Time until a failure is noticed. [0]", show_default=False)
    ] = None,
    times: Annotated[
        str | None, typer.Option(help="A time model, as for replay.", show_default=False)
    ] = None,
    until_h: Annotated[
        float | None, typer.Option(help="Cut off what is live then.", show_default=False)
    ] = None,
    attach: Annotated[str, typer.Option(help="ring, llm or llm-elastic, as for replay.")] = "ring",
    decision_s: Annotated[float, typer.Option(min=0, help="How long a decision lasts.")] = 0.0,
    tenants: Annotated[str | None, typer.Option(help="A tenants file.")] = None,
    health: Annotated[str | None, typer.Option(help="A health file.")] = None,
    windows: Annotated[str | None, typer.Option(help="A windows file.")] = None,
    assumed_limit_h: Annotated[
        float | None, typer.Option(help="Time limit of jobs that state none.")
    ] = None,
    resize_every_s: Annotated[
        int, typer.Option(help="Elastic gangs grow no sooner after their last start.")
    ] = RESIZE_EVERY_S,
    least_gain_percent: Annotated[
        int, typer.Option(help="More replicas that are worth a restart.")
    ] = LEAST_GAIN_PERCENT,
    since: Annotated[str | None, typer.Option(help="Leave out earlier jobs.")] = None,
    limit: Annotated[int | None, typer.Option(help="So many jobs at most.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a bad record.")] = False,
    report: Annotated[
        Path | None, typer.Option(help="Folder for a page that compares, and one of every run.")
    ] = None,
    parquet: Annotated[bool, typer.Option("--parquet", help="Tables as Parquet too.")] = False,
    processes: Processes = None,
    output: Annotated[Output, typer.Option("--format", help="How it is written.")] = Output.TABLE,
) -> None:
    """Replay one trace in several ways, under the same seeds, and put them side by side.

    Options that say "several" may be given more than once; every combination is a variant,
    and the first is what the others are compared with.
    """
    from simulator import compare as study
    from simulator.cli.terminal import violations_reported
    from simulator.options import DEFAULTS, option
    from simulator.pool import cores

    if parquet:
        _need_parquet(report)
    once: dict[str, Value] = {
        "trace": trace,
        "trace_format": trace_format,
        "restart_s": restart_s,
        "detect_s": detect_s,
        "attach": attach,
        "times": times,
        "until_h": until_h,
        "decision_s": decision_s,
        "tenants": tenants,
        "health": health,
        "windows": windows,
        "assumed_limit_h": assumed_limit_h,
        "resize_every_s": resize_every_s,
        "least_gain_percent": least_gain_percent,
        "since": since,
        "limit": limit,
        "strict": strict,
    }
    several: dict[str, Sequence[Value]] = {
        "fabric": fabric,
        "policy": policy or ["production"],
        "placement": placement or ["minimum-cut"],
        "spares": spares or [None],
        "failures": [None if text == "none" else text for text in failures or ["none"]],
        "checkpoint_s": checkpoint_s or [None],
    }
    base = {**DEFAULTS, **{key: option(key, value) for key, value in once.items()}}
    axes = {key: _distinct(key, values) for key, values in several.items()}
    seeds = [int(value or 0) for value in _distinct("seed", seed or [0])]
    variants = study.variants(base, axes)
    if len(variants) > study.MOST:
        message = f"makes {len(variants)} variants, more than {study.MOST}; use muster sweep"
        raise InputError(Problem("", message))
    for key, text in study.faults(variants):
        raise InputError(Problem(f"--{key.replace('_', '-')}", text))
    with violations_reported(), _counted(len(variants) * len(seeds), "replays") as on_done:
        found = study.compare(variants, seeds, processes or cores(), report, parquet, on_done)
    if report:
        from simulator.report.comparison_page import write_comparison

        write_comparison(report, found)
    typer.echo(json.dumps(found) if output is Output.JSON else _side_by_side(found))


def _distinct(key: str, values: Sequence[Value]) -> list[Value]:
    from simulator.options import option

    found = [option(key, value) for value in values]
    if twice := [value for i, value in enumerate(found) if value in found[:i]]:
        raise InputError(Problem(f"--{key.replace('_', '-')}", f"{twice[0]} is given twice"))
    return found


def _need_parquet(folder: Path | None) -> None:
    from simulator.collectors.tables import need_parquet

    if folder is None:
        raise InputError(Problem("--parquet", "needs --report, the folder to write to"))
    need_parquet()


@contextmanager
def _counted(total: int, of: str, done: int = 0) -> Iterator[Callable[[], None] | None]:
    """A bar with the time that is left, where stderr is a terminal."""
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


def _side_by_side(found: dict[str, Any]) -> str:
    """Figures by row, variants by column."""
    from simulator.report.figures import SeedRange, shown

    variants = found["variants"]
    runs = [run for variant in variants for run in variant["runs"]]
    rows = [["", *(variant["name"] for variant in variants)]]
    for figure in shown(runs):
        ranges = [variant["figures"][figure.key] for variant in variants]
        text = [SeedRange(r["mean"], r["min"], r["max"]).text(figure) for r in ranges]
        rows.append([figure.words, *text])
    seeds = ", ".join(map(str, found["seeds"]))
    several = "; mean (least to most) over them" if len(found["seeds"]) > 1 else ""
    head = f"{found['trace']['file']}, seed{'s' if several else ''} {seeds}{several}"
    notes = [f"note: {sentence}" for sentence in (*found["notes"], *_shared(runs))]
    return "\n".join([head, "", *_columns(rows), "", *notes])


def _shared(runs: Sequence[dict[str, Any]]) -> list[str]:
    """What all runs assume."""
    return [s for s in runs[0]["assumptions"] if all(s in run["assumptions"] for run in runs)]


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        first = row[0].ljust(widths[0])
        rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        lines.append("  ".join([first, *rest]).rstrip())
    return lines


def sweep_command(
    case: Annotated[
        Path, typer.Argument(help="A case file: what is run, and its grid.", show_default=False)
    ],
    report: Annotated[
        Path,
        typer.Option(help="Folder of the page and of the points; finished ones are kept in it."),
    ],
    processes: Processes = None,
    dask: Annotated[
        str | None,
        typer.Option(help="A Dask scheduler (tcp://host:8786) whose workers run the points."),
    ] = None,
    output: Annotated[Listing, typer.Option("--format", help="How it is written.")] = Listing.TABLE,
) -> None:
    """Replay every point of a grid: spares, oversubscription, failures, policies, seeds, ...

    A point that is finished is a file, named by a digest of all that it depends on: run the
    same command again after an interruption, or with a larger grid, and only what is
    missing is run.
    """
    from simulator import sweep as study
    from simulator.cli.terminal import violations_reported
    from simulator.experiment_file import load_case
    from simulator.pool import cores
    from simulator.report import points

    grid = load_case(str(case))
    store = study.PointStore(report)
    waiting, ready = study.split(grid, store)
    if ready:
        typer.echo(f"{len(ready):,} of {len(grid.points):,} points are there already", err=True)
    with violations_reported(), _counted(len(grid.points), "points", len(ready)) as on_done:
        study.run(waiting, store, processes or cores(), dask, on_done)
    table = study.collect(grid, store)
    points.write(table, report)
    from simulator.report.sweep_page import write_sweep

    write_sweep(report, table)
    if output is Listing.JSON:
        typer.echo(json.dumps(table))
    elif output is Listing.CSV:
        typer.echo((report / "points.csv").read_text(), nl=False)
    else:
        typer.echo("\n".join(_columns(points.rows(table))))
    for note in [] if output is Listing.JSON else table["notes"]:
        typer.echo(f"note: {note}", err=output is Listing.CSV)
