"""`make fuzz`: a million wrong inputs, counted target by target.

Each target has a process and a seed of its own. What breaks one is kept in build/fuzz/
and printed; the rest goes on.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time

from drills.fuzz import calls
from drills.fuzz.targets import targets
from drills.fuzz.work import Count, work

CALL_WEIGHT = 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="targets whose name contains this")
    chosen = parser.parse_args()
    plan = _plan(chosen.inputs, chosen.seed, chosen.only)
    began = time.monotonic()
    total, faults = 0, 0
    print(f"{'target':28}{'inputs':>10}{'taken':>8}{'a second':>10}{'slowest':>10}  faults")
    with multiprocessing.get_context("spawn").Pool(chosen.jobs, maxtasksperchild=1) as pool:
        for count in pool.imap_unordered(work, plan):
            total, faults = total + count.inputs, faults + len(count.faults)
            _show(count)
    print(f"{total:,} inputs, {faults} faults, {time.monotonic() - began:,.0f} s")
    return 1 if faults else 0


def _plan(inputs: int, seed: int, only: str) -> list[tuple[str, int, int]]:
    """(target, inputs, seed), the long ones first."""
    weights = {f"call {name}": CALL_WEIGHT for name in calls.METHODS}
    weights |= {target.name: target.weight for target in targets()}
    weights = {name: weight for name, weight in weights.items() if only in name}
    share = inputs / sum(weights.values())
    return [(name, -int(-weight * share // 1), seed) for name, weight in weights.items()]


def _show(count: Count) -> None:
    rate = count.inputs / max(count.seconds, 1e-9)
    share = count.taken / max(count.inputs, 1)
    print(
        f"{count.name:28}{count.inputs:>10,}{f'{100 * share:.0f} %':>8}{rate:>10,.0f}"
        f"{count.slowest_s * 1_000:>7,.0f} ms  {len(count.faults)}",
        flush=True,
    )
    for fault in count.faults:
        print(fault, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
