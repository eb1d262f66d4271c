"""`muster twin`: what a change of a cluster is worth, before it is made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scheduler.files.errors import InputError, Problem
from simulator.cli.replay import TotalsFormat
from simulator.cli.studies import Processes, counted

if TYPE_CHECKING:
    from scheduler.core import SchedulingOptions

MOST_SEEDS = 1_000
MOST_DAYS = 3_650


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("twin")(twin_command)


def twin_command(
    source: Annotated[
        str,
        typer.Option(
            "--from",
            help="A backup of `muster store backup`, or a store: sqlite:///FILE, postgresql://...",
            show_default=False,
        ),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--change",
            help="What is different, such as `spares 2 a zone`; several make one scenario.",
            show_default=False,
        ),
    ] = None,
    each: Annotated[
        bool, typer.Option("--each", help="Each change by itself as well.", show_default=False)
    ] = False,
    horizon: Annotated[str, typer.Option(help="How far the runs go on: 30d, 12h.")] = "30d",
    seeds: Annotated[int, typer.Option(min=1, max=MOST_SEEDS, help="Number of seeds.")] = 5,
    prices: Annotated[
        str | None,
        typer.Option(help="A prices file (docs/twin.md): money for each effective GPU-hour."),
    ] = None,
    times: Annotated[
        str | None,
        typer.Option(help="A time model, as for `muster replay`; changes of the network need one."),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(help="The server file of the cluster: its policy and limits."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the whole answer to this file as JSON.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Write a page with the answer to this file (HTML).")
    ] = None,
    processes: Processes = None,
    output: Annotated[
        TotalsFormat, typer.Option("--format", help="Output format.")
    ] = TotalsFormat.TABLE,
) -> None:
    """Ask a copy of the cluster what a change is worth: goodput, waits and money.

    The copy goes on from the state of the cluster through the scheduler that serves, with jobs
    and failures like those of its log. The cluster as it is runs beside it on the same seeds.
    Nothing of the cluster is touched.
    """
    from scheduler.files.timeparse import parse_duration
    from simulator.cli.fork import fork_of_store
    from simulator.pool import cores
    from simulator.timing import load_time_model
    from simulator.twin.answer import text
    from simulator.twin.changes import scenario
    from simulator.twin.future import TwinWorld
    from simulator.twin.outages import fit_failures
    from simulator.twin.prices import load_prices
    from simulator.twin.study import study
    from simulator.twin.workload import fit_workload

    wanted = changes or []
    with _named("--horizon"):
        horizon_ns = parse_duration(horizon)
        if not 0 < horizon_ns <= MOST_DAYS * 86_400 * 10**9:
            raise InputError(Problem("--horizon", f"must be up to {MOST_DAYS:,}d, not {horizon}"))
    for path in (json_file, page):
        _check_folder(path)
    money = None if prices is None else load_prices(prices)
    with _named("--times"):
        model = None if times is None else load_time_model(times)
    fork = fork_of_store(source, _limits(config))
    parts = [[change] for change in wanted] if each and len(wanted) > 1 else []
    scenarios = [
        scenario(fork, part, horizon_ns, has_times=model is not None)
        for part in ([], *parts, *([wanted] if wanted else []))
    ]
    failures = fit_failures(fork.state, fork.now_ns)
    world = TwinWorld(fork, fit_workload(fork), failures, horizon_ns, model)
    with counted(len(scenarios) * seeds, "runs") as on_done:
        answer = study(world, scenarios, range(seeds), processes or cores(), money, on_done)
    if json_file:
        json_file.write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")
    if page:
        from simulator.twin.page import write_twin

        write_twin(page, answer)
    typer.echo(json.dumps(answer) if output is TotalsFormat.JSON else text(answer))


def _limits(config: str | None) -> SchedulingOptions:
    """By which the server of a backup schedules."""
    from simulator.cli.fork import limits_of_server

    return limits_of_server(config)


@contextmanager
def _named(option: str) -> Iterator[None]:
    """A fault of a value is one of this option."""
    from placement import BadInput

    try:
        yield
    except BadInput as error:
        raise InputError(Problem(option, error.message)) from None


def _check_folder(path: Path | None) -> None:
    """Before hours of runs, not after them."""
    if path is not None and not path.parent.is_dir():
        raise InputError(Problem("", f"there is no folder {path.parent}", str(path)))
