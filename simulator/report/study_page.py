"""The page of a study: its variants side by side, and how the main figures follow each axis."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from os.path import relpath
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from scheduler.console import theme
from scheduler.console.theme import light
from simulator.options import FILES
from simulator.report.html import write_page
from simulator.report.run_charts import Chart, cuts, percent, waits
from simulator.report.study_table import (
    BY_KEY,
    MAIN,
    Measure,
    SeedRange,
    Table,
    cells,
    plain,
    point_name,
    range_of,
    subject,
)

MOST_LINES = 12  # more cannot be told apart; then lines are means over the other axes


def write_study(folder: Path, table: Table) -> None:
    """Write index.html and its figures as PNG and SVG. Of runs that have a report those under the
    first seed are drawn, too."""
    head, *rows = cells(table)
    points = {point["digest"]: point for point in table["points"]}
    reports = []
    for variant in table["variants"]:
        if (report := points[variant["points"][0]]["report"]) is not None:
            data = json.loads((Path(report) / "report_data.json").read_text())
            reports.append((variant["name"], data))
    write_page(
        folder,
        "study.html",
        [*charts(table), *([waits(reports), cuts(reports)] if reports else [])],
        title=f"{len(table['variants']):,} variants compared",
        subtitle=f"{subject(table)}. The baseline is {table['variants'][0]['name']}.",
        table=table,
        head=[cell.text for cell in head],
        rows=rows,
        reports=[
            (
                f"{variant['name']}, seed {points[digest]['totals']['seed']}",
                f"{relpath(points[digest]['report'], folder)}/index.html",
            )
            for variant in (table["variants"] if reports else ())
            for digest in variant["points"]
        ],
    )


def charts(table: Table) -> list[Chart]:
    """Return one chart for each axis that has several values, seeds aside."""
    axes = [key for key, values in table["axes"].items() if key != "seed" and len(values) > 1]
    return [_along(key, axes, table) for key in axes]


def _along(key: str, axes: Sequence[str], table: Table) -> Chart:
    variants = table["variants"]
    lines: dict[str, list[Table]] = {}
    for variant in variants:
        place = {axis: variant["at"][axis] for axis in axes if axis != key}
        lines.setdefault(point_name(place), []).append(variant)
    is_mean = len(lines) > MOST_LINES
    if is_mean:
        lines = {"mean of all others": variants}
    one = [k for k in MAIN if len({range_of(variant, k) for variant in variants}) == 1]
    same = [f"{BY_KEY[k].words} {BY_KEY[k].text(range_of(variants[0], k).mean)}" for k in one]
    drawn = [k for k in MAIN if k not in one] or [*MAIN]
    rows = -(-len(drawn) // 3)
    made, panels = theme.new(0.6 + 2.2 * rows, rows, min(3, len(drawn)))
    for axes_of, name in zip(panels, drawn, strict=False):
        _panel(axes_of, BY_KEY[name], key, table["axes"][key], lines)
    for axes_of in panels[len(drawn) :]:
        axes_of.set_visible(False)
    if len(lines) > 1:
        theme.add_legend(made, panels[0])
    points = "The mean over all other axes" if is_mean else "Points are means over the seeds"
    words = f"{points}; shades or bars are the range of seeds; axes begin at 0."
    if same:
        words += f" The same at all points: {', '.join(same)}."
    return Chart(f"along-{key.replace('_', '-')}", f"By {key.replace('_', ' ')}", words, made)


def _panel(
    axes: Axes, figure: Measure, key: str, values: Sequence[Any], lines: Mapping[str, list[Table]]
) -> None:
    is_number = all(isinstance(value, int | float) or _is_whole(value) for value in values)
    places = [float(value) if is_number else float(i) for i, value in enumerate(values)]
    order = sorted(range(len(values)), key=lambda i: places[i])
    for i, (name, variants) in enumerate(lines.items()):
        ranges = [_joint_range(variants, key, value, figure.key) for value in values]
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
        names = [Path(str(value)).stem if key in FILES else plain(value) for value in values]
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
    style: Any = {"fontsize": theme.SMALL, "color": light("ink")}
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


def _is_whole(value: Any) -> bool:
    return isinstance(value, str) and value.isdecimal()


def _joint_range(variants: Sequence[Table], key: str, value: Any, figure: str) -> SeedRange:
    joined = [
        range_of(each, figure)
        for each in variants
        if json.dumps(each["at"][key]) == json.dumps(value)
    ]
    return SeedRange(
        sum(each.mean for each in joined) / len(joined),
        min(each.least for each in joined),
        max(each.most for each in joined),
    )
