"""What the calls of OR-Tools decide, by leaving them out.

    python -m bench.placement.without_solvers

Each instance of bench.placement.instances that one zone cannot hold is placed with spares, as it is
and with every solver giving up: then there are no prices, so no proofs beyond the sizes of parts,
no layouts out of whole patterns or of single blocks, and no exchange of domains.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from unittest.mock import patch

from bench.placement.instances import Instance, instance
from placement.fabric import hostset
from placement.placer import place
from placement.solver import ColumnLp, IntegerProgram, IntegerSolution
from placement.spares.holding import hold_spares
from placement.spares.sizing import BY_DEFAULT
from placement.tiers.fragmentation import rate_harm
from placement.workload.request import AUTO, Placement

USERS_OF_ASSIGN = ("placement.tiers.fragmentation", "placement.replace.near")


@contextmanager
def no_solver() -> Iterator[None]:
    """Return a context in which every program and assignment ends without a solution."""
    with ExitStack() as stack:
        for name in ("cost", "solve"):
            stack.enter_context(patch.object(ColumnLp, name, lambda self: None))
        gives_up = patch.object(
            IntegerProgram, "solve_with_bound", lambda *_, **__: IntegerSolution(None, None)
        )
        stack.enter_context(gives_up)
        for module in USERS_OF_ASSIGN:
            stack.enter_context(patch(f"{module}.assign", lambda cost: None))
        yield


@dataclass(frozen=True, slots=True)
class SparedPlacement:
    """One placement with spares. `wished`: spares that its zones should have, `lacking`: how many
    they lack; `broken`: domains of all tiers that were wholly free before."""

    cut: int
    is_proved: bool
    wished: int
    lacking: int
    broken: int
    seconds: float


def outcome(inst: Instance) -> SparedPlacement:
    """Place an instance with as many spares as failures ask for."""
    request = replace(inst.request, spares=AUTO)
    began = time.process_time()
    answer = place(inst.fabric, inst.free, request)
    seconds = time.process_time() - began
    assert isinstance(answer, Placement), answer
    free, room = hostset.indices(inst.free), inst.free.bit_count() - inst.gang
    held = hold_spares(inst.fabric, request, free, answer.hosts, room, BY_DEFAULT)
    broken = rate_harm(inst.fabric, free, answer.hosts + answer.spares)[: len(inst.fabric.tiers)]
    return SparedPlacement(
        answer.cut, answer.is_optimal, held.wished, held.lacking, sum(broken), seconds
    )


def report(rows: list[tuple[SparedPlacement, SparedPlacement]]) -> str:
    """Write a Markdown table: with OR-Tools, and without."""
    with_, without = zip(*rows, strict=True)
    larger = [b.cut / a.cut - 1 for a, b in rows if a.cut and b.cut > a.cut]
    smaller = [1 - b.cut / a.cut for a, b in rows if b.cut < a.cut]
    lines = [
        f"| {len(rows)} gangs over several zones | with OR-Tools | without |",
        "|---|---|---|",
        f"| proved optimal | {share(with_)} | {share(without)} |",
        f"| cut larger than the other's (most) | {len(smaller)} ({most(smaller)})"
        f" | {len(larger)} ({most(larger)}) |",
        f"| spares lacking in zones, of {sum(a.wished for a in with_):,}"
        f" | {sum(a.lacking for a in with_):,} | {sum(a.lacking for a in without):,} |",
        f"| wholly free domains broken | {sum(a.broken for a in with_):,}"
        f" | {sum(a.broken for a in without):,} |",
        f"| processor time | 1 |"
        f" {sum(a.seconds for a in without) / sum(a.seconds for a in with_):.2f} |",
    ]
    return "\n".join(lines)


def share(rows: Sequence[SparedPlacement]) -> str:
    return f"{100 * sum(row.is_proved for row in rows) / len(rows):.1f} %"


def most(shares: Sequence[float]) -> str:
    return f"{100 * max(shares, default=0):.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="101,102,103")
    parser.add_argument("--instances", type=int, default=336)
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    rows = []
    for seed in map(int, options.seeds.split(",")):
        for index in range(0, options.instances, options.every):
            inst = instance(index, seed=seed)
            if inst.free_by_domain().max() < inst.gang:
                as_is = outcome(inst)
                with no_solver():
                    rows.append((as_is, outcome(inst)))
    print(report(rows))


if __name__ == "__main__":
    main()
