"""The options `--plot` and `--plot-by`, and what they do once there is an answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from scheduler.cli.plot.colour_by import ColourBy
from scheduler.files.errors import InputError, Problem

if TYPE_CHECKING:
    from network.routing import Congestion
    from placement.workload.request import Answer
    from scheduler.cli.render.place.question import Question

Plot = Annotated[
    Path | None,
    typer.Option("--plot", help="Draw the placement to this file, .png or .svg."),
]
PlotBy = Annotated[
    ColourBy | None,
    typer.Option(
        "--plot-by",
        help="With --plot: the meaning of colours. (default: auto)",
    ),
]


class Draw(Protocol):
    """Draws an answer where a picture was asked for."""

    def __call__(
        self, question: Question, answer: Answer, congestion: Congestion | None = None
    ) -> None: ...


def drawer(path: Path | None, by: ColourBy | None) -> Draw:
    """Return a function that draws a placement to `path`; it does nothing without a path.

    Raises: BadInput at once when the path is no name of a picture, before any solving;
    InputError when colours are chosen for no picture.
    """
    from placement.workload.request import Placement
    from scheduler.cli import plot

    if path is not None:
        plot.check_path(path)
    elif by is not None:
        raise InputError(Problem("--plot-by", "needs --plot, the picture that it colours"))

    def draw(question: Question, answer: Answer, congestion: Congestion | None = None) -> None:
        if path is None:
            return
        if not isinstance(answer, Placement):
            typer.echo(f"{path}: not drawn: there is no placement", err=True)
            return
        plot.draw(
            question.fabric,
            question.request,
            answer,
            path,
            free=question.free,
            name=question.name,
            by=by or ColourBy.AUTO,
            congestion=congestion,
        )

    return draw


def drawers(path: Path | None, by: ColourBy | None, fabrics: Sequence[str]) -> list[Draw]:
    """Return a function that draws, for each fabric; with several fabrics each file has the
    fabric's name before the suffix: a-ib-24k.png."""
    if path is None or len(fabrics) == 1:
        return [drawer(path, by) for _ in fabrics]
    return [drawer(path.with_stem(f"{path.stem}-{Path(name).stem}"), by) for name in fabrics]
