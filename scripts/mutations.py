"""Which published rows notice when muster is wrong: rates and bandwidths, each off by a factor.

    python -m scripts.mutations [--longest SECONDS] [--only MUTATION]... [ROW ...]

Rows of one number are computed again together, in a process of their own in which one thing is
wrong wherever muster computes with it: failures a tenth or ten times as often, network cards at
half their rate, uplinks likewise, recorded jobs that run half as long, no hosts kept for cells, no
segments kept.
A row notices when it fails. Rows that last a thousand failures last a hundred
here: the factors are far outside of what chance does. What has no end within --longest seconds
(gangs that fail before they can complete) is said, and not counted.
Exit code 1 when a quantity is noticed by no row, 2 on an unknown row.
"""

from __future__ import annotations

import argparse
import string
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from scheduler.cli.render.text import columns
from scripts import published


def _rates(factor: float) -> None:
    """Failures `factor` times as often: drawn ones, and the mean between those of formulas."""
    from scripts.published import fleetmix, recovery, reliability, storms
    from simulator.failures import process

    drawn, renewed, mean = process._poisson, process._renewals, recovery.mean_between_s
    days, clean, lemon = storms.fitted()
    reliability.FAILURES = 100
    process._poisson = lambda units, rate, name: drawn(units, rate * factor, name)
    process._renewals = lambda cause, *rest: renewed(
        replace(cause, rate=cause.rate * factor), *rest
    )
    recovery.mean_between_s = lambda hosts, rate: mean(hosts, rate * factor)
    fleetmix.RSC1_RATE *= factor  # of jobs that share a host; larger ones are drawn
    storms.fitted = lambda: (days, clean * factor, lemon * factor)


def _fabric(key: str, factor: float) -> None:
    """A number of every fabric, in all places in which one can be given, `factor` times."""
    from placement.fabric import reader

    positive = reader._positive

    def wrong(value: Any, field: str) -> float:
        right = positive(value, field)
        return right * factor if field.rpartition(".")[2] == key else right

    reader._positive = wrong


def _runs(factor: float) -> None:
    """Jobs of a log run `factor` times as long as it says."""
    from simulator.timing.flat import FlatTiming
    from simulator.timing.modelled import ModelledTiming

    for timing in (FlatTiming, ModelledTiming):
        _prolong(timing, factor)


def _prolong(timing: Any, factor: float) -> None:
    expect = timing.expect
    timing.expect = lambda self, name, run_ns, *rest: expect(
        self, name, round(run_ns * factor), *rest
    )


def _forget_cells() -> None:
    """Cells are counted as a quota, and no hosts are kept for them."""
    from scheduler.core.tenancy import future_quota, quota_check

    for module in (quota_check, future_quota):
        module.__dict__["kept_hosts"] = lambda *_: {}


def _forget_segments() -> None:
    """Jobs in segments get hosts as if they had asked for none."""
    from placement.fabric.constraints import Constraints

    type.__setattr__(Constraints, "has_segments", property(lambda _: False))


FAILED = "FAIL"
MUTATIONS: dict[str, Callable[[], None]] = {
    "failures x 0.1": lambda: _rates(0.1),
    "failures x 10": lambda: _rates(10),
    "bandwidth x 0.5": lambda: _fabric("nic_gbps", 0.5),
    "uplinks x 0.5": lambda: _fabric("oversubscription", 2),
    "runs x 0.5": lambda: _runs(0.5),
    "no cells": _forget_cells,
    "no segments": _forget_segments,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.mutations")
    parser.add_argument("rows", nargs="*", metavar="ROW", help="all if none is named")
    parser.add_argument("--only", action="append", choices=MUTATIONS, help="all if none is named")
    parser.add_argument("--longest", type=float, default=240, metavar="SECONDS")
    parser.add_argument("--within", choices=MUTATIONS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows = {row.number: row for row in published.rows()}
    if unknown := set(options.rows) - set(rows):
        print(f"no row {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    wanted = [rows[number] for number in rows if not options.rows or number in options.rows]
    if options.within:
        MUTATIONS[options.within]()
        for row in wanted:
            outcome = published.check(row)
            print("" if outcome.passed else FAILED, outcome.ours_text, sep="\t", flush=True)
        return 0
    mutations = options.only or list(MUTATIONS)
    lines: list[tuple[str, ...]] = [("row", "ours", *mutations)]
    noticed = dict.fromkeys(mutations, 0)
    for _, group in groupby(wanted, key=_number):
        together = list(group)
        columns_of = [
            _mutated(together, mutation, options.longest, noticed) for mutation in mutations
        ]
        for row, *shown in zip(together, *columns_of, strict=True):
            if any(shown):
                lines.append((row.number, published.check(row).ours_text, *shown))
                print(*lines[-1], sep=" | ", file=sys.stderr, flush=True)
    print(columns(lines))
    print(", ".join(f"{name}: {count} rows notice" for name, count in noticed.items()))
    return 0 if all(noticed.values()) else 1


def _number(row: published.Row) -> str:
    """`34` of `34b`."""
    return row.number.rstrip(string.ascii_lowercase)


def _mutated(
    rows: Sequence[published.Row], mutation: str, longest_s: float, noticed: dict[str, int]
) -> list[str]:
    """The value of each row that fails, "" of others. What cannot be computed any more fails."""
    command = [sys.executable, "-m", "scripts.mutations", "--within", mutation]
    command += [row.number for row in rows]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=longest_s)
    except subprocess.TimeoutExpired:
        return ["no end"] * len(rows)
    values = ["error"] * len(rows)
    for at, line in enumerate(done.stdout.splitlines()):
        verdict, value = line.split("\t")
        values[at] = value if verdict == FAILED else ""
    noticed[mutation] += sum(map(bool, values))
    return values


if __name__ == "__main__":
    sys.exit(main())
