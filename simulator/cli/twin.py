"""`muster twin`: what a change of a cluster is worth, before it is made."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from placement import BadInput
from scheduler.cli.calls import DEFAULT_ADDRESS, Address
from scheduler.files.errors import InputError, Problem
from simulator.cli.replay import TotalsFormat
from simulator.cli.studies import DaskScheduler, Processes, counted

if TYPE_CHECKING:
    from simulator.twin.fork import ClusterFork
    from simulator.twin.workload import Workload

MOST_SEEDS = 1_000
MOST_DAYS = 3_650
MOST_JOBS = 1_000_000  # of a run: some hours


class Arrivals(StrEnum):
    """The jobs that arrive in a twin."""

    LOG = "log"
    NONE = "none"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("twin")(twin_command)


def twin_command(
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--change",
            help="What is different, such as `spares 2 a zone`; several make one scenario.",
            show_default=False,
        ),
    ] = None,
    each: Annotated[
        bool,
        typer.Option(
            "--each", help="Each change by itself, instead of all together.", show_default=False
        ),
    ] = False,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="A backup of `muster store backup`, or a store: sqlite:///FILE, postgresql://..."
            " (default: the server at --address)",
            show_default=False,
        ),
    ] = None,
    horizon: Annotated[str, typer.Option(help="Simulated time of each run: 30d, 12h.")] = "30d",
    seeds: Annotated[int, typer.Option(min=1, max=MOST_SEEDS, help="Number of seeds.")] = 5,
    prices: Annotated[
        str | None,
        typer.Option(help="A prices file (docs/twin.md): money for each effective GPU-hour."),
    ] = None,
    times: Annotated[
        str | None,
        typer.Option(help="A time model, as for `muster replay`; changes of the network need one."),
    ] = None,
    arrivals: Annotated[
        Arrivals,
        typer.Option(help="New jobs: at the rate of the log, or none but the live ones."),
    ] = Arrivals.LOG,
    config: Annotated[
        str | None,
        typer.Option(help="With --from, the server file of the cluster: its policy and limits."),
    ] = None,
    processes: Processes = None,
    dask: DaskScheduler = None,
    address: Address = DEFAULT_ADDRESS,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the whole answer to this file as JSON.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Write a page with the answer to this file (HTML).")
    ] = None,
    output: Annotated[
        TotalsFormat, typer.Option("--format", "-o", help="Output format.")
    ] = TotalsFormat.TABLE,
) -> None:
    """Ask a copy of the cluster what a change is worth: goodput, waits and money.

    The copy goes on from the state of the cluster through the scheduler that serves, with jobs
    and failures like those of its log. The cluster as it is runs beside it on the same seeds.
    Nothing of the cluster is touched. A running server gives its state to operators.
    """
    from simulator.pool import cores
    from simulator.timing import load_time_model
    from simulator.twin.answer import text
    from simulator.twin.changes import scenario
    from simulator.twin.future import TwinWorld
    from simulator.twin.outages import fit_failures
    from simulator.twin.page import write_twin
    from simulator.twin.prices import load_prices
    from simulator.twin.study import study

    for path in (json_file, page):  # said before hours of runs, not after them
        if path is not None and not path.parent.is_dir():
            raise InputError(Problem("", f"there is no folder {path.parent}", str(path)))
    horizon_ns = _horizon_ns(horizon)
    money = None if prices is None else load_prices(prices)
    with _named("--times"):
        model = None if times is None else load_time_model(times)
    fork = _fork(source, config, address)
    wanted = changes or []
    parts = [[change] for change in wanted] if each else [wanted] if wanted else []
    scenarios = [
        scenario(fork, part, horizon_ns, has_times=model is not None) for part in [[], *parts]
    ]
    failures = fit_failures(fork.state, fork.now_ns)
    world = TwinWorld(fork, _workload(fork, arrivals, horizon_ns), failures, horizon_ns, model)
    at_once, took_s, began_s = processes or cores(), list[float](), perf_counter()
    with counted(len(scenarios) * seeds, "runs") as advance:

        def on_done(run_s: float) -> None:
            took_s.append(run_s)
            if advance:
                advance()

        answer = study(world, scenarios, range(seeds), at_once, dask, money, on_done)
    if dask or min(at_once, len(took_s)) > 1:
        shared = 1.0 if dask else max(1.0, min(at_once, len(took_s)) / cores())
        typer.echo(_speed_up(took_s, perf_counter() - began_s, shared), err=True)
    if json_file:
        json_file.write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")
    if page:
        write_twin(page, answer)
    typer.echo(json.dumps(answer) if output is TotalsFormat.JSON else text(answer))


def _horizon_ns(horizon: str) -> int:
    from scheduler.files.timeparse import parse_duration

    with _named("--horizon"):
        horizon_ns = parse_duration(horizon)
    if not 0 < horizon_ns <= MOST_DAYS * 86_400 * 10**9:
        raise InputError(Problem("--horizon", f"must be up to {MOST_DAYS:,}d, not {horizon}"))
    return horizon_ns


def _speed_up(took_s: Sequence[float], all_s: float, shared: float) -> str:
    """Compare the time of the runs one by one with that of all together. `shared`: processes for
    each core, for more than one make each slower, and the whole no faster."""
    alone_s = sum(took_s) / shared
    return (
        f"{len(took_s):,} runs in {all_s:,.0f} s, {alone_s:,.0f} s one after the other: "
        f"{alone_s / all_s:.1f} times as fast as one process"
    )


def _fork(source: str | None, config: str | None, address: str) -> ClusterFork:
    """Raises: InputError; typer.Exit with what a server refuses."""
    from simulator.cli.fork import fork_of_server, fork_of_store, limits_of_server

    if source is not None:
        return fork_of_store(source, limits_of_server(config))
    if config is not None:
        message = "goes with --from: a running server says itself by what it schedules"
        raise InputError(Problem("--config", message))
    return fork_of_server(address)


def _workload(fork: ClusterFork, arrivals: Arrivals, horizon_ns: int) -> Workload:
    """Raises: InputError where the log is too short to say how often jobs come, or more would come
    than a run ends with."""
    from simulator.report.text import duration
    from simulator.twin.workload import LEAST_NS, fit_workload

    fitted = fit_workload(fork)
    if arrivals is Arrivals.NONE:
        return fitted.without_arrivals
    if fitted.seen_ns < LEAST_NS:
        message = (
            f"the log has {duration(fitted.seen_ns / 1e9)} of jobs, less than the"
            f" {duration(LEAST_NS / 1e9)} that a rate needs; with `none` the live jobs go on alone"
        )
        raise InputError(Problem("--arrivals", message))
    if (jobs := fitted.expected(horizon_ns)) > MOST_JOBS:
        message = (
            f"{jobs:,.0f} jobs would come in a run, more than {MOST_JOBS:,}: look less far ahead"
        )
        raise InputError(Problem("--horizon", message))
    return fitted


@contextmanager
def _named(option: str) -> Iterator[None]:
    """A fault of a value is one of this option."""
    try:
        yield
    except BadInput as error:
        raise InputError(Problem(option, error.message)) from None
