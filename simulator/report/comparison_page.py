"""The page that puts several ways to run a trace side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from os.path import relpath
from pathlib import Path
from typing import Any

from matplotlib.ticker import EngFormatter

from scheduler.console import theme
from scheduler.console.theme import light
from scheduler.core.wording import jobs_text
from simulator.report.figures import Measure, SeedRange, shown
from simulator.report.html import TableCell, write_page
from simulator.report.run_charts import Chart, has_waits, note_if_empty, wait_axis, wait_curve

Values = Mapping[str, Any]
NamedReports = Sequence[tuple[str, Values]]


def write_comparison(folder: Path, comparison: Values) -> None:
    """Write index.html, compare.json, and the figures as PNG and SVG.

    Runs under the first seed are drawn; the table has the range over all.
    """
    reports = [
        (
            variant["name"],
            json.loads((Path(variant["runs"][0]["report"]) / "report_data.json").read_text()),
        )
        for variant in comparison["variants"]
    ]
    (folder / "compare.json").write_text(json.dumps(comparison, indent=1) + "\n")
    seeds = comparison["seeds"]
    several = f"{len(seeds)} seeds: {', '.join(map(str, seeds))}" if len(seeds) > 1 else "one seed"
    runs = [run for variant in comparison["variants"] for run in variant["runs"]]
    write_page(
        folder,
        "comparison.html",
        [waits(reports), cuts(reports)],
        title=f"{comparison['trace']['file']}: {len(comparison['variants'])} variants compared",
        subtitle=f"The baseline is {comparison['baseline']}; {several}.",
        comparison=comparison,
        head=["", *(variant["name"] for variant in comparison["variants"])],
        rows=_rows(folder, comparison),
        assumptions=[
            sentence
            for sentence in runs[0]["assumptions"]
            if all(sentence in run["assumptions"] for run in runs)
        ],
    )


def _rows(folder: Path, comparison: Values) -> list[list[TableCell]]:
    """Figures by row, variants by column, better and worse than the first in colour."""
    variants = comparison["variants"]
    rows = []
    for figure in shown([run for variant in variants for run in variant["runs"]]):
        ranges = [_range(variant, figure) for variant in variants]
        rows.append([TableCell(figure.words), *(_cell(r, ranges[0], figure) for r in ranges)])
    links = [TableCell("", "", _links(folder, variant)) for variant in variants]
    rows.append([TableCell("reports"), *links])
    return rows


def _range(variant: Values, figure: Measure) -> SeedRange:
    values = variant["figures"][figure.key]
    return SeedRange(values["mean"], values["min"], values["max"])


def _cell(value: SeedRange, baseline: SeedRange, figure: Measure) -> TableCell:
    change = value.mean - baseline.mean
    notes = [change_text(change, baseline.mean)] if change and baseline.mean else []
    if spread := value.spread(figure):
        notes.append(spread)
    is_better = change * figure.better > 0
    kind = "" if not change * figure.better else "better" if is_better else "worse"
    return TableCell(figure.text(value.mean), kind, note=", ".join(notes))


def change_text(change: float, baseline: float) -> str:
    """Show a change in per cent; from ten times the baseline on, as a multiple of it."""
    ratio = change / abs(baseline)
    return f"{100 * ratio:+.1f} %" if ratio < 9 else f"{ratio + 1:,.0f} x"


def _links(folder: Path, variant: Values) -> tuple[tuple[str, str], ...]:
    return tuple(
        (f"seed {run['seed']}", f"{relpath(run['report'], folder)}/index.html")
        for run in variant["runs"]
    )


def waits(reports: NamedReports) -> Chart:
    """Draw the waits, with a panel for each size class."""
    classes: dict[str, int] = {}
    for _, data in reports:
        for size in data["sizes"]:
            classes[size["class"]] = max(size["jobs"], classes.get(size["class"], 0))
    across = min(3, len(classes))
    down = -(-len(classes) // across)
    made, axes = theme.new(0.6 + 2.1 * down, down, across, sharey=True)
    for each, (name, jobs) in zip(axes, classes.items(), strict=False):
        for i, (variant, data) in enumerate(reports):
            for size in data["sizes"]:
                if size["class"] == name:
                    wait_curve(each, size, variant, theme.line_style(i, len(reports)))
        wait_axis(each)
        alike = (f for _, data in reports for f in data["sizes"] if f["class"] == name)
        note_if_empty(each, has_waits(alike), "every job started within a second")
        theme.titled(each, f"{name} ({jobs_text(jobs)})")
    for each in axes[len(classes) :]:
        each.set_visible(False)
    theme.add_legend(made, axes[0])
    words = "Share of jobs of each size that have started after this wait."
    return Chart("waits", "Waits by size", words, made)


def cuts(reports: NamedReports) -> Chart:
    classes = list(dict.fromkeys(f["class"] for _, s in reports for f in s["sizes"] if f["starts"]))
    made, panels = theme.new(3.0, 1, 3)
    tier = reports[0][1]["outer_tier"] or "domain"
    text: tuple[tuple[str, Callable[[Values], float]], ...] = (
        (f"{tier}s of a gang, mean", lambda f: f["domains"]["mean"]),
        ("bytes a step cut by a gang, mean", lambda f: f["cut_bytes"] / max(f["starts"], 1)),
        ("bounded slowdown, p95", lambda f: f["slowdown"]["p95"]),
    )
    width = 0.8 / len(reports)
    for axes, (title, of) in zip(panels, text, strict=True):
        for i, (name, data) in enumerate(reports):
            by_class = {size["class"]: of(size) for size in data["sizes"]}
            at = [place + (i + 0.5) * width - 0.4 for place in range(len(classes))]
            values = [by_class.get(each, 0) for each in classes]
            colour = light(theme.LINES[i % len(theme.LINES)])
            axes.bar(at, values, width=width, label=name, color=colour)
        axes.set_xticks(
            range(len(classes)), [c.removesuffix(" GPUs") for c in classes], rotation=30
        )
        axes.set_xlabel("GPUs")
        theme.titled(axes, title)
    panels[1].yaxis.set_major_formatter(EngFormatter("B"))
    is_any = any(size["cut_bytes"] for _, data in reports for size in data["sizes"])
    note_if_empty(panels[1], is_any, f"nothing crosses a {tier}")
    theme.add_legend(made, panels[0])
    words = f"By size of gang: the {tier}s that it spans, and the bytes that it cuts there."
    return Chart("cuts", "Cut and slowdown", words, made)
