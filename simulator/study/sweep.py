"""Every point of a grid, each kept as a file as soon as it is finished."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduler.files.atomic_file import write as write_whole
from scheduler.files.errors import InputError, Problem, unwritable
from simulator.case import run_case
from simulator.conserved import named
from simulator.study.casefile import Grid
from simulator.study.figures import BY_KEY, FIGURES, Range
from simulator.study.options import Options, Value, case_of, digest
from simulator.study.pool import run_all

Table = Mapping[str, Any]


class Store:
    """Finished points below a folder, each a JSON file named by its digest."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "points"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(folder, "--report", error) from None

    def get(self, name: str) -> dict[str, Any] | None:
        """The point, or None when it is not there or is not whole."""
        try:
            found: dict[str, Any] = json.loads((self._folder / f"{name}.json").read_text())
        except (OSError, ValueError):
            return None
        return found if found.get("digest") == name else None

    def put(self, name: str, point: Mapping[str, Any]) -> None:
        """A point appears whole or not at all, whenever the machine stops."""
        text = json.dumps({"digest": name, **point})
        write_whole(self._folder / f"{name}.json", text, "--report")


@dataclass(frozen=True, slots=True)
class Waiting:
    """A point that has to be run. `where`: its values on the axes of the grid."""

    name: str
    options: Options
    where: str


def split(grid: Grid, store: Store) -> tuple[list[Waiting], list[str]]:
    """The points to run, and the digests of those that are there. Raises: InputError."""
    waiting: dict[str, Waiting] = {}
    ready: list[str] = []
    for point in grid.points:
        name = digest(point)
        if store.get(name) is not None:
            ready.append(name)
        else:
            waiting.setdefault(name, Waiting(name, point, _where(grid, point)))
    return list(waiting.values()), ready


def _where(grid: Grid, options: Options) -> str:
    return ", ".join(f"{key} {plain(options[key])}" for key in grid.axes) or "the only point"


def run(
    waiting: Sequence[Waiting],
    store: Store,
    processes: int,
    dask: str | None = None,
    on_done: Callable[[], None] | None = None,
) -> None:
    """Run these points, keeping each as it ends. Raises: InputError; NotConserved
    naming the point: those that ended before it are kept."""
    for number, result in run_all(run_point, waiting, processes, dask):
        store.put(waiting[number].name, result)
        if on_done:
            on_done()


def run_point(point: Waiting) -> dict[str, Any]:
    """One replay, in a process of its own, perhaps on another machine.

    Raises: InputError when the files there are not those that the point was made from.
    """
    if digest(point.options) != point.name:
        message = "differs from the one that the sweep was started with (or muster itself does)"
        raise InputError(Problem("", message, str(point.options["trace"])))
    with named(point.where):
        totals = run_case(case_of(point.options), has_story=True)
    host_s = totals.pop("story")["host_s"]
    return {"options": dict(point.options), "totals": totals, "host_s": host_s}


def collect(grid: Grid, store: Store) -> dict[str, Any]:
    """All points of the grid in its order, with the figures of each."""
    table = {
        "axes": {key: list(values) for key, values in grid.axes.items()},
        "points": [_point(grid, store, point) for point in grid.points],
    }
    return {**table, "notes": [*notes(table)]}


def _point(grid: Grid, store: Store, options: Options) -> dict[str, Any]:
    found = store.get(digest(options))
    if found is None:
        raise InputError(Problem("--report", "a finished point has gone; run again"))
    totals = found["totals"]
    return {
        "digest": found["digest"],
        "at": {key: options[key] for key in grid.axes},
        "figures": {figure.key: figure.of(totals) for figure in FIGURES},
        "host_s": found["host_s"],
        "seconds": totals["seconds"],
        "log_sha256": totals["log_sha256"],
    }


def notes(table: Table) -> Iterator[str]:
    """A sentence for each axis along which nothing happens otherwise."""
    for key, values in table["axes"].items():
        logs: dict[str, set[str]] = {}
        for point in table["points"]:
            others = json.dumps([value for axis, value in point["at"].items() if axis != key])
            logs.setdefault(others, set()).add(point["log_sha256"])
        if len(values) > 1 and all(len(found) == 1 for found in logs.values()):
            yield f"{key} changes nothing here: all its values give the same log"


def write(table: Table, folder: Path) -> None:
    """points.csv and points.json, a row or an entry for each point."""
    (folder / "points.json").write_text(json.dumps(table, indent=1) + "\n")
    with (folder / "points.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        parts = list(table["points"][0]["host_s"])
        heads = [*table["axes"], *BY_KEY, *(f"{part}_host_s" for part in parts)]
        writer.writerow([*heads, "seconds", "log_sha256", "digest"])
        for point in table["points"]:
            cells = [*point["at"].values(), *point["figures"].values(), *point["host_s"].values()]
            writer.writerow([*cells, point["seconds"], point["log_sha256"], point["digest"]])


def repeated(table: Table) -> Iterator[tuple[dict[str, Value], dict[str, Range]]]:
    """Points that differ in their seeds alone, as one: where, and each figure's range."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for point in table["points"]:
        where = {key: value for key, value in point["at"].items() if key != "seed"}
        groups.setdefault(json.dumps(where), []).append(point)
    for where_text, points in groups.items():
        ranges = {key: Range.of([point["figures"][key] for point in points]) for key in BY_KEY}
        yield json.loads(where_text), ranges


SHOWN = ("wait_mean_s", "wait_p95_s", "largest_took_s", "utilization", "goodput", "restarts")


def rows(table: Table) -> list[list[str]]:
    """The points for people: what varies, then the main figures, seeds taken together."""
    axes = [key for key in table["axes"] if key != "seed"]
    found = [[*(axes or ["point"]), *(BY_KEY[key].words for key in SHOWN)]]
    for where, ranges in repeated(table):
        at = [plain(where[key]) for key in axes] or ["all"]
        found.append([*at, *(ranges[key].told(BY_KEY[key]) for key in SHOWN)])
    return found


def plain(value: Value) -> str:
    """A value of an axis as a reader would write it."""
    return f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)
