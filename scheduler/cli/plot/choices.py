"""Choices of parallelism as a picture: memory across, seconds of a step up."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from placement import PlacedChoice, Sweep
from scheduler.cli.plot.figure import DPI, MARK, PALE
from scheduler.cli.plot.figure import INK as BEST

LABELLED = 5
POINTS, LINE = 72, 9  # to an inch; of a line of labels


def draw_choices(result: Sweep, title: str, path: Path) -> None:
    """Draw the best choices and the job as given; the first few have their axes beside them."""
    figure = Figure(figsize=(9, 6), dpi=DPI)
    axes = figure.add_subplot()
    gib = [choice.memory.total / 2**30 for choice in result.best]
    axes.scatter(gib, [choice.step.seconds for choice in result.best], c=BEST, label="placed")
    if result.own:
        at = (result.own.memory.total / 2**30, result.own.step.seconds)
        axes.scatter([at[0]], [at[1]], c=MARK, marker="D", label="as given")
    axes.axvline(result.gpu_gb, color=PALE, linestyle="--", label="memory of a GPU")
    axes.set(title=title, xlabel="memory, GiB", ylabel="step, s")
    axes.legend(fontsize=8)
    axes.get_ylim()  # limits are settled before labels are moved apart
    lowest = dict[int, float]()  # by memory
    for choice in result.best[:LABELLED]:
        at = (choice.memory.total / 2**30, choice.step.seconds)
        height = axes.transData.transform(at)[1] * POINTS / DPI
        rise = max(4.0, lowest.get(round(at[0]), 0.0) - height)
        lowest[round(at[0])] = height + rise + LINE
        axes.annotate(_label(choice), at, xytext=(5, rise), textcoords="offset points", fontsize=7)
    figure.savefig(path)


def _label(choice: PlacedChoice) -> str:
    p, batch = choice.request.parallelism, choice.request.batch
    assert batch is not None
    axes = " ".join(
        f"{axis} {p.size(axis)}" for axis in ("tp", "cp", "pp", "ep") if p.size(axis) > 1
    )
    return f"{axes or 'dp alone'}, batch {batch.micro_sequences}"
