"""`muster advise`: questions of operators and buyers, answered by runs of a twin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scheduler.cli.calls import DEFAULT_ADDRESS, Address
from scheduler.files.errors import InputError, Problem
from simulator.cli.replay import TotalsFormat
from simulator.cli.studies import Processes
from simulator.cli.twin import (
    Arrivals,
    ArrivalsKind,
    Config,
    Horizon,
    JsonFile,
    Output,
    Page,
    PricesFile,
    Seeds,
    Source,
    Times,
    TwinQuestion,
    check_folder,
)

if TYPE_CHECKING:
    from simulator.twin.advise import TwinDecision

MOST_SPARES = 100
MOST_CHOICES = 24

app = typer.Typer(help="Advice from a twin of the cluster.", no_args_is_help=True)
Durations = Annotated[str, typer.Option("--every", help="Try these, with commas between them.")]


def register(parent: typer.Typer) -> None:
    """Add the commands."""
    parent.add_typer(app, name="advise")


@app.command()
def spares(
    source: Source = None,
    most: Annotated[
        int, typer.Option(min=1, max=MOST_SPARES, help="Try 0 to so many spares a zone.")
    ] = 4,
    horizon: Horizon = "30d",
    seeds: Seeds = 5,
    prices: PricesFile = None,
    times: Times = None,
    arrivals: ArrivalsKind = Arrivals.LOG,
    config: Config = None,
    json_file: JsonFile = None,
    page: Page = None,
    processes: Processes = None,
    output: Output = TotalsFormat.TABLE,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Advise how many spares each zone should hold.

    Each number is a run of the twin on the same seeds. The front has the numbers that no other
    beats both in hosts that stand idle and in GPU-hours that gangs lose.
    """
    from simulator.twin.advise import spares

    asked = TwinQuestion(
        source, horizon, seeds, prices, times, arrivals, config, processes, address
    )
    _advise(asked, spares(most), json_file, page, output)


@app.command()
def oversubscription(
    source: Source = None,
    ratios: Annotated[
        str, typer.Option(help="Try these, with commas between them: 4 is 4:1.")
    ] = "1,2,4,7",
    horizon: Horizon = "30d",
    seeds: Seeds = 5,
    prices: PricesFile = None,
    times: Times = "default",
    arrivals: ArrivalsKind = Arrivals.LOG,
    config: Config = None,
    json_file: JsonFile = None,
    page: Page = None,
    processes: Processes = None,
    output: Output = TotalsFormat.TABLE,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Advise how wide the uplinks of the outermost tier should be.

    With prices of uplinks, what a GPU-hour of work costs decides; else the work itself.
    """
    from simulator.twin.advise import uplinks

    asked = TwinQuestion(
        source, horizon, seeds, prices, times, arrivals, config, processes, address
    )
    _advise(asked, uplinks(_numbers("--ratios", ratios)), json_file, page, output)


@app.command()
def checkpoints(
    source: Source = None,
    every: Durations = "10m,30m,1h,2h,4h",
    horizon: Horizon = "30d",
    seeds: Seeds = 5,
    prices: PricesFile = None,
    times: Times = "default",
    arrivals: ArrivalsKind = Arrivals.LOG,
    config: Config = None,
    json_file: JsonFile = None,
    page: Page = None,
    processes: Processes = None,
    output: Output = TotalsFormat.TABLE,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Advise how often jobs should write a checkpoint.

    Often costs writes, seldom costs work done again. `muster checkpoint JOB` has the optimum of
    one job by formulas.
    """
    from simulator.twin.advise import checkpoints

    asked = TwinQuestion(
        source, horizon, seeds, prices, times, arrivals, config, processes, address
    )
    _advise(asked, checkpoints(_durations("--every", every)), json_file, page, output)


@app.command()
def policy(
    policies: Annotated[list[str], typer.Argument(help="Policies to try beside the present one.")],
    source: Source = None,
    horizon: Horizon = "30d",
    seeds: Seeds = 5,
    prices: PricesFile = None,
    times: Times = None,
    arrivals: ArrivalsKind = Arrivals.LOG,
    config: Config = None,
    json_file: JsonFile = None,
    page: Page = None,
    processes: Processes = None,
    output: Output = TotalsFormat.TABLE,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Advise by which policy the queue should be served."""
    from simulator.twin.advise import queue_policies

    if len(set(policies)) < len(policies):
        raise InputError(Problem("policies", "a policy is named twice"))
    asked = TwinQuestion(
        source, horizon, seeds, prices, times, arrivals, config, processes, address
    )
    _advise(asked, queue_policies(policies), json_file, page, output)


@app.command()
def defrag(
    source: Source = None,
    every: Durations = "6h,1d",
    hosts: Annotated[
        int,
        typer.Option(
            min=1, max=200_000, help="Free so many hosts in one domain for the first that waits."
        ),
    ] = 8,
    horizon: Horizon = "30d",
    seeds: Seeds = 5,
    prices: PricesFile = None,
    times: Times = None,
    arrivals: ArrivalsKind = Arrivals.LOG,
    config: Config = None,
    json_file: JsonFile = None,
    page: Page = None,
    processes: Processes = None,
    output: Output = TotalsFormat.TABLE,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Advise whether to defragment by policy, and how often."""
    from simulator.twin.advise import defragmentation

    asked = TwinQuestion(
        source, horizon, seeds, prices, times, arrivals, config, processes, address
    )
    _advise(asked, defragmentation(_durations("--every", every), hosts), json_file, page, output)


@app.command()
def maintenance(
    domains: Annotated[
        list[str], typer.Argument(help="Domains to take out one after the other: zones, racks.")
    ],
    start: Annotated[str, typer.Option("--at", help="When: +1d, or a time.")] = "+1d",
    length: Annotated[str, typer.Option("--for", help="For how long.")] = "8h",
    source: Source = None,
    horizon: Horizon = "7d",
    seeds: Seeds = 5,
    prices: PricesFile = None,
    times: Times = None,
    arrivals: ArrivalsKind = Arrivals.LOG,
    config: Config = None,
    json_file: JsonFile = None,
    page: Page = None,
    processes: Processes = None,
    output: Output = TotalsFormat.TABLE,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Advise which domain to take out for maintenance first, and in which order.

    Each is drained by itself in a run of the twin; the order is that of the work that is done all
    the same.
    """
    from simulator.twin.advise import maintenance

    if len(set(domains)) < len(domains):
        raise InputError(Problem("domains", "a domain is named twice"))
    asked = TwinQuestion(
        source, horizon, seeds, prices, times, arrivals, config, processes, address
    )
    _advise(asked, maintenance(domains, start, length), json_file, page, output)


def _advise(
    asked: TwinQuestion,
    decision: TwinDecision,
    json_file: Path | None,
    page: Path | None,
    output: TotalsFormat,
) -> None:
    from simulator.twin.advise import advised, text

    for path in (json_file, page):
        check_folder(path)
    if not 2 <= len(decision.choices) <= MOST_CHOICES:
        message = f"there must be from 2 to {MOST_CHOICES} choices, not {len(decision.choices)}"
        raise InputError(Problem(decision.key, message))
    advice = advised(decision, asked.answer(decision.scenarios))
    if json_file:
        json_file.write_text(json.dumps(advice, indent=1) + "\n", encoding="utf-8")
    if page:
        from simulator.twin.page import write_advice

        write_advice(page, decision, advice)
    typer.echo(json.dumps(advice) if output is TotalsFormat.JSON else text(decision, advice))


def _parts(option: str, text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts) or len(set(parts)) < len(parts):
        raise InputError(Problem(option, f"must be different values with commas, not {text!r}"))
    return parts


def _numbers(option: str, text: str) -> list[float]:
    try:
        numbers = [float(part) for part in _parts(option, text)]
    except ValueError:
        raise InputError(Problem(option, f"must be numbers with commas, not {text!r}")) from None
    if not all(0.01 <= number <= 1000 for number in numbers):
        raise InputError(Problem(option, "must be from 0.01 to 1000"))
    return numbers


def _durations(option: str, text: str) -> list[str]:
    from placement import BadInput
    from scheduler.files.timeparse import parse_duration

    parts = _parts(option, text)
    for part in parts:
        try:
            parse_duration(part)
        except BadInput as error:
            raise InputError(Problem(option, error.message)) from None
    return parts
