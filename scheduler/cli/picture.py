"""The options `--plot` and `--plot-by`, and what they do once there is an answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placement.request import Answer, Placement
from scheduler.plot.by import By

if TYPE_CHECKING:
    from scheduler.cli.answers import Question

Plot = Annotated[
    Path | None,
    typer.Option("--plot", help="Draw the fabric with the job on it, as .png or .svg."),
]
PlotBy = Annotated[
    By, typer.Option("--plot-by", help="What colours stand for; auto takes the more telling.")
]
Draw = Callable[["Question", Answer], None]


def drawer(path: Path | None, by: By) -> Draw:
    """What draws a placement to `path`; nothing where there is no path.

    Raises: BadInput at once when the path is no name of a picture, before any solving.
    """
    if path is None:
        return lambda asked, answer: None
    from scheduler import plot

    plot.check_path(path)

    def draw(asked: Question, answer: Answer) -> None:
        if not isinstance(answer, Placement):
            typer.echo(f"{path}: not drawn: there is no placement", err=True)
            return
        plot.draw(
            asked.fabric, asked.request, answer, path, free=asked.free, name=asked.name, by=by
        )

    return draw
