"""Several ways to run one trace, side by side, under the same seeds."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from muster.structs import struct
from simulator.collectors.invariants import named
from simulator.experiment import experiment_of
from simulator.options import Options, Value, conflicts
from simulator.pool import run_all
from simulator.report.figures import FIGURES, SeedRange
from simulator.report.folder import ReportFolder
from simulator.run import run

MOST = 48  # variants; beyond, a sweep is the better tool


@struct(frozen=True, slots=True)
class Variant:
    """One column of the comparison. `name`: the values in which it differs."""

    name: str
    options: Options

    @property
    def folder(self) -> str:
        return re.sub(r"[^A-Za-z0-9.=_-]+", "-", self.name).strip("-.")[:80] or "run"


@struct(frozen=True, slots=True)
class _Piece:
    """One replay: a variant under a seed."""

    name: str
    options: Options
    folder: Path | None


def variants(base: Options, axes: Mapping[str, Sequence[Value]]) -> list[Variant]:
    """Return every combination of the axes, the last one fastest."""
    varied = [key for key, values in axes.items() if len(values) > 1]
    combined = []
    for combination in product(*axes.values()):
        chosen = dict(zip(axes, combination, strict=True))
        name = ", ".join(_named(key, chosen[key]) for key in varied) or "run"
        combined.append(Variant(name, {**base, **chosen}))
    return combined


def ineffective(variants: Sequence[Variant]) -> list[tuple[str, str]]:
    """Return (key, message) of options that would have no effect."""
    return [fault for variant in variants for fault in conflicts(variant.options)]


def _named(key: str, value: Value) -> str:
    if key in ("policy", "placement", "fabric"):
        return Path(str(value)).stem if key == "fabric" else str(value)
    if key == "failures":
        return str(value) if value is not None else "no failures"
    words = key.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"no {words}"
    return f"{words} {value}"


def compare(
    variants: Sequence[Variant],
    seeds: Sequence[int],
    processes: int,
    folder: Path | None = None,
    on_done: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Replay each variant under each seed, and put the figures together.

    `folder`: gets the report of every run below runs/. Raises: InputError;
    InvariantViolated naming the run.
    """
    pieces = [
        _Piece(
            f"{variant.name}, seed {seed}",
            {**variant.options, "seed": seed},
            _place(folder, i, variant, seed),
        )
        for i, variant in enumerate(variants)
        for seed in seeds
    ]
    runs: list[dict[str, Any]] = [{} for _ in pieces]
    for number, totals in run_all(_run, pieces, processes):
        runs[number] = totals
        if on_done:
            on_done()
    each = [runs[i : i + len(seeds)] for i in range(0, len(runs), len(seeds))]
    logs = {
        variant.name: [run["log_sha256"] for run in of]
        for variant, of in zip(variants, each, strict=True)
    }
    return {
        "trace": runs[0]["trace"],
        "seeds": list(seeds),
        "baseline": variants[0].name,
        "variants": [_variant_row(variant, of) for variant, of in zip(variants, each, strict=True)],
        "notes": [*_alike(logs), *_warnings(variants, each)],
    }


def _alike(logs: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """A sentence for each variant whose log is that of an earlier one."""
    names = list(logs)
    for i, name in enumerate(names):
        if same := next((earlier for earlier in names[:i] if logs[earlier] == logs[name]), None):
            yield f"{name} gives the same log as {same}"


def _warnings(
    variants: Sequence[Variant], runs: Sequence[Sequence[Mapping[str, Any]]]
) -> Iterator[str]:
    """The warnings of runs, each once, with the first variant that has it."""
    seen: set[str] = set()
    for variant, of in zip(variants, runs, strict=True):
        for sentence in (text for totals in of for text in totals["warnings"]):
            if sentence not in seen:
                seen.add(sentence)
                yield f"{variant.name}: {sentence}"


def _place(folder: Path | None, at: int, variant: Variant, seed: int) -> Path | None:
    if folder is None:
        return None
    return folder / "runs" / f"{at + 1:02d}-{variant.folder}" / f"seed-{seed}"


def _run(piece: _Piece) -> dict[str, Any]:
    """In a process of its own."""
    experiment = experiment_of(piece.options)
    with named(piece.name):
        if piece.folder is None:
            return run(experiment)
        totals = run(experiment, ReportFolder(piece.folder))
    return {**totals, "report": os.fspath(piece.folder)}


def _variant_row(variant: Variant, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    figures = {}
    for figure in FIGURES:
        seed_range = SeedRange.of([figure.of(run) for run in runs])
        figures[figure.key] = {
            "mean": seed_range.mean,
            "min": seed_range.least,
            "max": seed_range.most,
        }
    return {
        "name": variant.name,
        "options": dict(variant.options),
        "figures": figures,
        "runs": list(runs),
    }
