"""Which published rows notice when muster is wrong: rates and bandwidths, each off by a factor.

    python -m scripts.mutations [ROW ...]

Every row is computed again in a process of its own in which one quantity is wrong wherever
muster computes with it: failures a tenth or ten times as often, network cards at half their
rate. A row notices when it fails. Rows that last a
thousand failures last a hundred here: the factors are far outside of what chance does.
Exit code 1 when a quantity is noticed by no row, 2 on an unknown row.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
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


def _bandwidths(factor: float) -> None:
    """Network cards, and what uplinks have of them, at `factor` of their rate."""
    from placement.fabric import tree

    positive = tree._positive

    def wrong(value: Any, field: str) -> float:
        wrong_value = positive(value, field)
        return wrong_value * factor if field == "nic_gbps" else wrong_value

    tree._positive = wrong


MUTATIONS: dict[str, Callable[[], None]] = {
    "failures x 0.1": lambda: _rates(0.1),
    "failures x 10": lambda: _rates(10),
    "bandwidth x 0.5": lambda: _bandwidths(0.5),
}


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--within"]:
        MUTATIONS[arguments[1]]()
        outcome = published.check(_row(arguments[2]))
        print("pass" if outcome.passed else "FAIL", outcome.ours_text)
        return 0
    unknown = set(arguments) - {row.number for row in published.rows()}
    if unknown:
        print(f"no row {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    lines: list[tuple[str, ...]] = [("row", "ours", *MUTATIONS)]
    noticed = dict.fromkeys(MUTATIONS, 0)
    for row in published.rows():
        if arguments and row.number not in arguments:
            continue
        results = {mutation: _mutated(row.number, mutation) for mutation in MUTATIONS}
        for mutation, text in results.items():
            noticed[mutation] += text.startswith("FAIL")
        if any(text.startswith("FAIL") for text in results.values()):
            shown = [
                text.removeprefix("FAIL ") if "FAIL" in text else "" for text in results.values()
            ]
            lines.append((row.number, published.check(row).ours_text, *shown))
            print(*lines[-1], sep=" | ", file=sys.stderr, flush=True)
    print(columns(lines))
    print(", ".join(f"{name}: {count} rows notice" for name, count in noticed.items()))
    return 0 if all(noticed.values()) else 1


def _row(number: str) -> published.Row:
    return next(row for row in published.rows() if row.number == number)


def _mutated(number: str, mutation: str) -> str:
    """`FAIL` or `pass`, and the value. A row that cannot be computed any more fails."""
    command = [sys.executable, "-m", "scripts.mutations", "--within", mutation, number]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "FAIL error"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
