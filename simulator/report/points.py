"""The points of a sweep as tables: points.csv, points.json, and rows for people."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from simulator.options import Value
from simulator.report.figures import BY_KEY, SeedRange

Table = Mapping[str, Any]


def write(table: Table, folder: Path) -> None:
    """Write points.csv and points.json, with a row or an entry for each point."""
    (folder / "points.json").write_text(json.dumps(table, indent=1) + "\n")
    with (folder / "points.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        parts = list(table["points"][0]["host_s"])
        heads = [*table["axes"], *BY_KEY, *(f"{part}_host_s" for part in parts)]
        writer.writerow([*heads, "seconds", "log_sha256", "digest"])
        for point in table["points"]:
            cells = [*point["at"].values(), *point["figures"].values(), *point["host_s"].values()]
            writer.writerow([*cells, point["seconds"], point["log_sha256"], point["digest"]])


def repeated(table: Table) -> Iterator[tuple[dict[str, Value], dict[str, SeedRange]]]:
    """Group points that differ in their seeds alone: where each group lies, and each figure's
    range."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for point in table["points"]:
        where = {key: value for key, value in point["at"].items() if key != "seed"}
        groups.setdefault(json.dumps(where), []).append(point)
    for where_text, points in groups.items():
        ranges = {key: SeedRange.of([point["figures"][key] for point in points]) for key in BY_KEY}
        yield json.loads(where_text), ranges


SHOWN = ("wait_mean_s", "wait_p95_s", "largest_took_s", "utilization", "goodput", "restarts")


def rows(table: Table) -> list[list[str]]:
    """Return the points for people: what varies, then the main figures, seeds taken together."""
    axes = [key for key in table["axes"] if key != "seed"]
    table_rows = [[*(axes or ["point"]), *(BY_KEY[key].words for key in SHOWN)]]
    for where, ranges in repeated(table):
        at = [plain(where[key]) for key in axes] or ["all"]
        table_rows.append([*at, *(ranges[key].text(BY_KEY[key]) for key in SHOWN)])
    return table_rows


def plain(value: Value) -> str:
    """Return a value of an axis as a reader would write it."""
    return f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)
