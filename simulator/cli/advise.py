"""`muster advise`: questions of operators and buyers, answered by runs of a twin."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from scheduler.cli.calls import DEFAULT_ADDRESS, Address
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

MOST_SPARES = 100

app = typer.Typer(help="Advice from a twin of the cluster.", no_args_is_help=True)


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
    from simulator.twin.advise import spares_advice, spares_scenarios, text

    for path in (json_file, page):
        check_folder(path)
    question = TwinQuestion(
        source, horizon, seeds, prices, times, arrivals, config, processes, address
    )
    advice = spares_advice(question.answer(spares_scenarios(most)))
    if json_file:
        json_file.write_text(json.dumps(advice, indent=1) + "\n", encoding="utf-8")
    if page:
        from simulator.twin.page import write_advice

        write_advice(page, advice)
    typer.echo(json.dumps(advice) if output is TotalsFormat.JSON else text(advice))
