"""`muster advise`: questions of operators and buyers, answered by runs of a twin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scheduler.files.errors import InputError, Problem
from simulator.cli.twin_question import AnswerFiles, TwinQuestion, asks_twin

if TYPE_CHECKING:
    from simulator.twin.advice.choices import TwinDecision
    from simulator.twin.fork import ClusterFork

MOST_SPARES = 100
MOST_CHOICES = 24

app = typer.Typer(
    help="Ask a copy of the cluster for advice: spares, maintenance.",
    no_args_is_help=True,
)


def register(parent: typer.Typer) -> None:
    """Add the commands."""
    parent.add_typer(app, name="advise")


@app.command()
@asks_twin()
def spares(
    question: TwinQuestion,
    files: AnswerFiles,
    most: Annotated[
        int, typer.Option(min=1, max=MOST_SPARES, help="Try 0 to so many spares a zone.")
    ] = 4,
) -> None:
    """Advise how many spares each zone should hold.

    Each number is a run of the twin on the same seeds. The front has the numbers that no other
    beats both in hosts that stand idle and in GPU-hours that gangs lose.
    """
    from simulator.twin.advice.choices import spares

    _advise(question, spares(most), files)


@app.command()
@asks_twin(horizon="7d")
def maintenance(
    question: TwinQuestion,
    files: AnswerFiles,
    domains: Annotated[
        list[str], typer.Argument(help="Domains to take out one after the other: zones, racks.")
    ],
    start: Annotated[str, typer.Option("--at", help="When: +1d, or a time.")] = "+1d",
    length: Annotated[str, typer.Option("--for", help="For how long.")] = "8h",
) -> None:
    """Advise which domain to take out for maintenance first, and in which order.

    Each is drained by itself in a run of the twin; the order is that of the work that is done all
    the same. A max-flow bounds how many hosts of its gangs find a place elsewhere, were it now.
    """
    from simulator.twin.advice.choices import maintenance

    if len(set(domains)) < len(domains):
        raise InputError(Problem("domains", "a domain is named twice"))
    bounds: dict[str, tuple[int, int]] = {}

    def look(fork: ClusterFork) -> None:
        from simulator.twin.advice.evacuation import evacuated

        bounds.update({domain: evacuated(fork.state, domain) for domain in domains})

    _advise(question, maintenance(domains, start, length), files, look, bounds)


def _advise(
    question: TwinQuestion,
    decision: TwinDecision,
    files: AnswerFiles,
    look: Callable[[ClusterFork], None] | None = None,
    bounds: Mapping[str, tuple[int, int]] | None = None,
) -> None:
    from simulator.twin.advice.choices import advised, text, with_evacuation

    if not 2 <= len(decision.choices) <= MOST_CHOICES:
        message = f"there must be from 2 to {MOST_CHOICES} choices, not {len(decision.choices)}"
        raise InputError(Problem(decision.key, message))
    study = question.answer(decision.scenarios, look)
    if bounds:
        decision = with_evacuation(decision, bounds)
    advice = advised(decision, study)
    if bounds:
        advice["evacuation"] = {
            domain: {"hosts_of_gangs": hosts, "find_a_place_at_most": most}
            for domain, (hosts, most) in bounds.items()
        }

    def write_page(path: Path) -> None:
        from simulator.twin.page import write_advice

        write_advice(path, decision, advice)

    files.write(advice, lambda: text(decision, advice), write_page)
