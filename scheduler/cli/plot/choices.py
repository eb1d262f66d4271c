"""Choices of parallelism as a picture: memory across, seconds of a step up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from placement import PlacedChoice, Sweep
from scheduler.console.theme import DPI, SMALL, drawing, legend, light, new, styled, titled

LABELLED = 5
POINTS, LINE = 72, 10  # to an inch; of a line of labels


def draw_choices(result: Sweep, title: str, path: Path) -> None:
    """Draw memory and step of the best parallelisms of a sweep and of the job as given; the sizes
    of their axes (tp, pp, ...) stand beside the first few."""
    figure, (axes,) = new(5.2)
    styled(axes, grid="both")
    gib = [choice.memory.total / 2**30 for choice in result.best]
    steps = [choice.step.seconds for choice in result.best]
    axes.scatter(gib, steps, c=light("blue"), label="placed", zorder=3)
    if result.own:
        at = (result.own.memory.total / 2**30, result.own.step.seconds)
        own: Any = {"c": light("orange"), "marker": "D", "label": "as given", "zorder": 3}
        axes.scatter([at[0]], [at[1]], **own)
    axes.axvline(result.gpu_gb, color=light("bad"), linestyle="--", label="memory of a GPU")
    axes.set(xlabel="memory, GiB", ylabel="step, s")
    axes.margins(x=0.15, y=0.12)
    titled(axes, title + "\n")
    legend(axes)
    axes.get_ylim()  # limits are settled before labels are moved apart
    figure.draw_without_rendering()
    lowest = dict[int, float]()  # by memory
    for choice in result.best[:LABELLED]:
        at = (choice.memory.total / 2**30, choice.step.seconds)
        height = axes.transData.transform(at)[1] * POINTS / figure.dpi
        rise = max(4.0, lowest.get(round(at[0]), 0.0) - height)
        lowest[round(at[0])] = height + rise + LINE
        place: Any = {"xytext": (6, rise), "textcoords": "offset points"}
        axes.annotate(_label(choice), at, fontsize=SMALL, color=light("ink"), **place)
    with drawing():
        figure.savefig(path, dpi=DPI, facecolor=light("card"))


def _label(choice: PlacedChoice) -> str:
    p, batch = choice.request.parallelism, choice.request.batch
    assert batch is not None
    axes = " ".join(
        f"{axis} {p.size(axis)}" for axis in ("tp", "cp", "pp", "ep") if p.size(axis) > 1
    )
    return f"{axes or 'dp alone'}, batch {batch.micro_sequences}"
