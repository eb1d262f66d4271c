"""What runs are compared by, and the table that puts the variants of a study side by side."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from muster.structs import struct
from simulator.report.text import TableCell, columns, duration

Table = Mapping[str, Any]  # as simulator.study.collect returns it


@struct(frozen=True, slots=True)
class Measure:
    """A figure of a run. `better`: 1 where more is better, -1 where less is, 0 where neither.
    `path`: which leads to it in the totals, "" for the key. `is_always`: shown where it is 0 in all
    runs, too."""

    key: str
    words: str
    better: int
    text: Callable[[float], str]
    path: str = ""
    is_always: bool = False

    def of(self, totals: Mapping[str, Any]) -> float:
        value: Any = totals
        for step in (self.path or self.key).split("."):
            value = value[step] if value else 0
        number: float = value
        return number


def count_text(value: float) -> str:
    """Write a number of things, or of hours of them."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == round(value) else f"{value:,.1f}"


def share_text(value: float) -> str:
    """Write a share in per cent."""
    return f"{100 * value:.2f} %"


FIGURES = (
    Measure("completed", "completed", 1, count_text, is_always=True),
    Measure("rejected", "rejected", -1, count_text),
    Measure("unfinished", "unfinished", -1, count_text),
    Measure("makespan_s", "makespan", -1, duration, is_always=True),
    Measure("wait_mean_s", "wait, mean", -1, duration, "wait_s.mean", is_always=True),
    Measure("wait_p50_s", "wait, p50", -1, duration, "wait_s.p50"),
    Measure("wait_p95_s", "wait, p95", -1, duration, "wait_s.p95"),
    Measure("wait_p99_s", "wait, p99", -1, duration, "wait_s.p99"),
    Measure("slowdown", "bounded slowdown", -1, "{:,.2f}".format, "bounded_slowdown.mean"),
    Measure("utilization", "utilization of hosts", 1, share_text, is_always=True),
    Measure("gpu_utilization", "utilization of GPUs", 1, share_text, is_always=True),
    Measure("goodput", "goodput", 1, share_text, is_always=True),
    Measure("ettr", "ETTR", 1, share_text),
    Measure(
        "largest_took_s", "largest job, first start to end", -1, duration, "largest_job.took_s"
    ),
    Measure("largest_wait_s", "largest job, wait", -1, duration, "largest_job.wait_s"),
    Measure("host_failures", "host failures", 0, count_text),
    Measure("restarts", "restarts", -1, count_text),
    Measure("preemptions", "preemptions", 0, count_text),
)
BY_KEY = {figure.key: figure for figure in FIGURES}
MAIN = ("wait_mean_s", "wait_p95_s", "largest_took_s", "utilization", "goodput", "restarts")
MOST_COLUMNS = 8  # variants beyond are rows, with the main figures alone


@struct(frozen=True, slots=True)
class SeedRange:
    """One figure over several seeds."""

    mean: float
    least: float
    most: float

    @staticmethod
    def of(values: Sequence[float]) -> SeedRange:
        return SeedRange(sum(values) / len(values), min(values), max(values))

    def data(self) -> dict[str, float]:
        return {"mean": self.mean, "min": self.least, "max": self.most}

    def spread(self, measure: Measure) -> str:
        """Write the least and the most value; "" where they read alike."""
        least, most = measure.text(self.least), measure.text(self.most)
        return "" if least == most else f"{least} to {most}"


def plain(value: Any) -> str:
    """Return a value of an axis as a reader would write it."""
    return f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)


def point_name(place: Mapping[str, Any]) -> str:
    """Name a point by its values on the axes."""
    return ", ".join(_named(key, value) for key, value in place.items())


def _named(key: str, value: Any) -> str:
    if key in ("policy", "placement", "fabric"):
        return Path(str(value)).stem if key == "fabric" else str(value)
    if key == "failures":
        return str(value) if value is not None else "no failures"
    words = key.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"no {words}"
    return f"{words} {plain(value)}"


def range_of(variant: Table, figure: str) -> SeedRange:
    """Return a figure of a variant over its seeds."""
    values = variant["figures"][figure]
    return SeedRange(values["mean"], values["min"], values["max"])


def cells(table: Table) -> list[list[TableCell]]:
    """Return the table of a study, its head as the first row: figures by row and variants by
    column, or the other way where there are many variants. The first variant is the baseline."""
    variants = table["variants"]
    is_wide = len(variants) > MOST_COLUMNS
    figures = [BY_KEY[key] for key in MAIN] if is_wide else list(_shown(table))
    rows = [[TableCell(""), *(TableCell(variant["name"]) for variant in variants)]]
    for figure in figures:
        ranges = [range_of(variant, figure.key) for variant in variants]
        rows.append([TableCell(figure.words), *(_cell(r, ranges[0], figure) for r in ranges)])
    return [list(row) for row in zip(*rows, strict=True)] if is_wide else rows


def _shown(table: Table) -> Iterator[Measure]:
    """Return the figures that are not 0 everywhere."""
    for figure in FIGURES:
        if figure.is_always or any(point["figures"][figure.key] for point in table["points"]):
            yield figure


def _cell(value: SeedRange, baseline: SeedRange, figure: Measure) -> TableCell:
    change = value.mean - baseline.mean
    text = change_text(change, baseline.mean) if change and baseline.mean else ""
    is_better = change * figure.better > 0
    kind = "" if not change * figure.better else "better" if is_better else "worse"
    return TableCell(figure.text(value.mean), text, kind, note=value.spread(figure))


def change_text(change: float, baseline: float) -> str:
    """Show a change in per cent; from ten times the baseline on, as a multiple of it."""
    ratio = change / abs(baseline)
    return f"{100 * ratio:+.1f} %" if ratio < 9 else f"{ratio + 1:,.0f} x"


def subject(table: Table) -> str:
    """Say what was replayed, under which seeds."""
    traces = dict.fromkeys(point["totals"]["trace"]["file"] for point in table["points"])
    seeds = dict.fromkeys(point["totals"]["seed"] for point in table["points"])
    several = "; mean (least to most) over them" if len(seeds) > 1 else ""
    listed = ", ".join(map(str, seeds))
    return f"{', '.join(traces)}, seed{'s' if several else ''} {listed}{several}"


def text(table: Table) -> str:
    """Write the table of a study for a terminal."""
    rows = [
        [cell.text + (f" ({cell.note})" if cell.note else "") for cell in row]
        for row in cells(table)
    ]
    notes = [f"note: {sentence}" for sentence in (*table["notes"], *table["assumptions"])]
    return "\n".join([subject(table), "", columns(rows), "", *notes])


def csv_text(table: Table) -> str:
    """Write a row for each point."""
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    parts = list(table["points"][0]["host_s"])
    heads = [*table["axes"], *BY_KEY, *(f"{part}_host_s" for part in parts)]
    writer.writerow([*heads, "seconds", "log_sha256", "digest"])
    for point in table["points"]:
        values = [*point["at"].values(), *point["figures"].values(), *point["host_s"].values()]
        totals = point["totals"]
        writer.writerow([*values, totals["seconds"], totals["log_sha256"], point["digest"]])
    return file.getvalue()


def write(table: Table, folder: Path) -> None:
    """Write points.csv and points.json, with a row or an entry for each point."""
    (folder / "points.json").write_text(json.dumps(table, indent=1) + "\n")
    (folder / "points.csv").write_text(csv_text(table), newline="")
