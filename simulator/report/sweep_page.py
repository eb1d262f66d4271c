"""The page of a sweep: how the main figures follow each axis of the grid."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from scheduler.console import theme
from simulator.options import FILES
from simulator.report.figures import BY_KEY, Measure, SeedRange
from simulator.report.html import TableCell, write_page
from simulator.report.points import SHOWN, plain, repeated
from simulator.report.run_charts import Chart, percent

Table = Mapping[str, Any]
Group = tuple[dict[str, Any], dict[str, SeedRange]]
MOST_LINES = 12  # more cannot be told apart; then lines are means over the other axes


def write_sweep(folder: Path, table: Table) -> None:
    """Write index.html and its figures as PNG and SVG."""
    axes = [key for key in table["axes"] if key != "seed"]
    write_page(
        folder,
        "sweep.html",
        charts(table),
        title=f"Sweep of {len(table['points']):,} points",
        subtitle="; ".join(
            f"{key}: {', '.join(map(plain, values))}" for key, values in table["axes"].items()
        ),
        table=table,
        head=[*axes, *(BY_KEY[key].words for key in SHOWN)],
        rows=[
            [
                *(TableCell(plain(where[key])) for key in axes),
                *(_cell(ranges, key) for key in SHOWN),
            ]
            for where, ranges in repeated(table)
        ],
    )


def _cell(ranges: Mapping[str, SeedRange], key: str) -> TableCell:
    seed_range, figure = ranges[key], BY_KEY[key]
    return TableCell(figure.text(seed_range.mean), note=seed_range.spread(figure))


def charts(table: Table) -> list[Chart]:
    """Return one chart for each axis that has several values, seeds aside."""
    groups = list(repeated(table))
    axes = [key for key, values in table["axes"].items() if key != "seed" and len(values) > 1]
    return [_along(key, axes, groups, table) for key in axes]


def _along(key: str, axes: Sequence[str], groups: Sequence[Group], table: Table) -> Chart:
    other_axes = [axis for axis in axes if axis != key]
    lines = _lines(key, other_axes, groups)
    is_mean = len(lines) > MOST_LINES
    if is_mean:
        lines = {"mean of all others": list(groups)}
    drawn, same = _differing(groups)
    rows = -(-len(drawn) // 3)
    made, panels = theme.new(0.6 + 2.2 * rows, rows, min(3, len(drawn)))
    for axes_of, name in zip(panels, drawn, strict=False):
        _panel(axes_of, BY_KEY[name], key, table["axes"][key], lines)
    for axes_of in panels[len(drawn) :]:
        axes_of.set_visible(False)
    if len(lines) > 1:
        theme.add_legend(made, panels[0])
    words = "Points are means over the seeds, shades or bars their range; axes begin at 0."
    if is_mean:
        words = (
            "The mean over all other axes; shades or bars are the range of seeds; axes begin at 0."
        )
    if same:
        words += f" The same at all points: {', '.join(same)}."
    return Chart(f"along-{key.replace('_', '-')}", f"By {key.replace('_', ' ')}", words, made)


def _differing(groups: Sequence[Group]) -> tuple[list[str], list[str]]:
    """Return the figures that have a panel, and those that are one value everywhere, in words."""
    one = [key for key in SHOWN if len({ranges[key] for _, ranges in groups}) == 1]
    same = [f"{BY_KEY[key].words} {BY_KEY[key].text(groups[0][1][key].mean)}" for key in one]
    return [key for key in SHOWN if key not in one] or [*SHOWN], same


def _lines(key: str, axes: Sequence[str], groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Groups that differ in `key` alone, by the values of the other axes."""
    lines: dict[str, list[Group]] = {}
    for where, ranges in groups:
        name = ", ".join(f"{axis.replace('_', ' ')} {plain(where[axis])}" for axis in axes)
        lines.setdefault(name, []).append((where, ranges))
    return lines


def _panel(
    axes: Axes, figure: Measure, key: str, values: Sequence[Any], lines: Mapping[str, list[Group]]
) -> None:
    is_number = all(isinstance(value, int | float) or _is_whole(value) for value in values)
    places = [float(value) if is_number else float(i) for i, value in enumerate(values)]
    order = sorted(range(len(values)), key=lambda i: places[i])
    for i, (name, groups) in enumerate(lines.items()):
        ranges = [_joint_range(groups, key, value, figure.key) for value in values]
        style = theme.line_style(i, len(lines))
        means = [ranges[j].mean for j in order]
        least, most = [ranges[j].least for j in order], [ranges[j].most for j in order]
        if is_number:
            at = [places[j] for j in order]
            size = 2.5 + style["linewidth"]
            axes.plot(at, means, marker="o", markersize=size, label=name, **style)
            axes.fill_between(at, least, most, color=style["color"], alpha=0.15, linewidth=0)
        else:  # nothing lies between two names: points side by side, with their ranges
            at = [places[j] + 0.5 * ((i + 0.5) / len(lines) - 0.5) for j in order]
            axes.vlines(at, least, most, color=style["color"], alpha=0.4, linewidth=2)
            axes.plot(at, means, "o", markersize=4, label=name, color=style["color"])
    if not is_number:
        names = [_short(key, value) for value in values]
        is_long = sum(map(len, names)) > 30
        axes.set_xticks(places, names, rotation=25 if is_long else 0)
    elif len(places) <= 8:
        axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.set_xlabel(key.replace("_", " "))
    theme.titled(axes, figure.words)
    if len(lines) == 1:
        _write_values(axes, figure, places, [ranges[j].mean for j in range(len(values))])
    _value_axis(axes, figure)


def _write_values(
    axes: Axes, figure: Measure, places: Sequence[float], means: Sequence[float]
) -> None:
    """Write the first and the last value above their points."""
    style: Any = {"fontsize": theme.SMALL, "color": theme.light("ink")}
    for at, side in ((0, "left"), (len(places) - 1, "right")):
        text, style["ha"] = figure.text(means[at]), side
        axes.annotate(
            text, (places[at], means[at]), xytext=(0, 7), textcoords="offset points", **style
        )


def _value_axis(axes: Axes, figure: Measure) -> None:
    is_share = figure.key in ("utilization", "gpu_utilization", "goodput")
    low, high = axes.set_ylim(0, 1.15 if is_share else 1.15 * (axes.get_ylim()[1] or 1))
    if figure.key.endswith("_s"):
        scale, unit = theme.time_scale(high)
        ticks = MaxNLocator(5).tick_values(max(low, 0) / scale, high / scale)
        shown = [tick for tick in ticks if low <= tick * scale <= high]
        axes.set_yticks([tick * scale for tick in shown], [f"{tick:g}" for tick in shown])
        theme.titled(axes, f"{figure.words}, {unit}")
    elif is_share:
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
        axes.yaxis.set_major_formatter(percent())


def _short(key: str, value: Any) -> str:
    """A file by its stem."""
    return Path(str(value)).stem if key in FILES else plain(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, str) and value.isdecimal()


def _joint_range(groups: Sequence[Group], key: str, value: Any, figure: str) -> SeedRange:
    joined = [
        ranges[figure] for where, ranges in groups if json.dumps(where[key]) == json.dumps(value)
    ]
    return SeedRange(
        sum(each.mean for each in joined) / len(joined),
        min(each.least for each in joined),
        max(each.most for each in joined),
    )
