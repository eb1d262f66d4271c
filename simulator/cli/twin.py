"""`muster twin`: what a change of a cluster is worth, before it is made."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simulator.cli.twin_question import AnswerFiles, TwinQuestion, asks_twin


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("twin")(twin_command)


@asks_twin()
def twin_command(
    question: TwinQuestion,
    files: AnswerFiles,
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
) -> None:
    """Ask a copy of the cluster what a change is worth: goodput, waits and money.

    The copy goes on from the state of the cluster through the scheduler that serves, with jobs
    and failures like those of its log. The cluster as it is runs beside it on the same seeds.
    Nothing of the cluster is touched. A running server gives its state to operators.
    """
    from simulator.twin.answer import text

    wanted = changes or []
    parts = [[change] for change in wanted] if each and len(wanted) > 1 else []
    answer = question.answer([[], *parts, *([wanted] if wanted else [])])

    def write_page(path: Path) -> None:
        from simulator.twin.page import write_twin

        write_twin(path, answer)

    files.write(answer, lambda: text(answer), write_page)
