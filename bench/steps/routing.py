"""Llama 3 405B over every switch, how it goes and how fast.

    python -m bench.steps.routing

Three rank orders on both fabrics under each routing, with and without failures. What
the links carry over each tier must be what the referee counts; exit code 1 if not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np

from network.flows import Flows, flows_of
from network.routing import Congestion, parse_routing, route
from network.wiring import links
from placement.fabric import hostset
from placement.fabric.reader import preset
from placement.fabric.tree import Fabric
from placement.objective.cut import cut
from placement.placer import place
from placement.workload.request import NO_SPARES, Placement, Request
from scheduler.cli.render.text import columns, seconds_text
from tests.build import LLAMA3_ROWS

ROUTINGS = ("ecmp", "e-ecmp:4", "e-ecmp:16", "pinned", "adaptive")
FAILED = {
    "roce-24k": ("atsw[00-06]", "z0-ctsw03", "z0-r000-rtsw/z0-ctsw05"),
    "ib-24k": ("core[000-007]", "p00-spine03", "p00-s0-leaf0/p00-spine01/0"),
}


def llama3() -> Request:
    """Return Llama 3 on 16,384 GPUs: row 2 of table 4 of the paper."""
    shape, model, batch = LLAMA3_ROWS[2]
    return Request(shape, model=model, batch=batch, spares=NO_SPARES)


def orders(fabric: Fabric, job: Request) -> Iterator[tuple[str, Sequence[int]]]:
    count = job.hosts_needed(fabric.gpus_per_host)
    placed = place(fabric, hostset.full(fabric.host_count), job)
    assert isinstance(placed, Placement)
    yield "muster", placed.hosts
    yield "consecutive", range(count)
    yield "random", np.random.default_rng(0).permutation(fabric.host_count)[:count].tolist()


def is_the_cut(found: Congestion, fabric: Fabric, job: Request, hosts: Sequence[int]) -> bool:
    """Return whether each layer's uplinks carry what the referee counts on its tier."""
    counted = [tier.bytes_per_step for tier in reversed(cut(fabric, job, hosts))]
    climbed = [load.sum() for load in found.loads.up[1 : len(counted) + 1]]
    return bool(np.allclose(climbed, counted, rtol=1e-9))


def rows(name: str) -> Iterator[tuple[tuple[str, ...], bool]]:
    fabric, job = preset(name), llama3()
    built = links(fabric)
    for order, hosts in orders(fabric, job):
        flows: Flows = flows_of(fabric, job, hosts)
        for text in ROUTINGS:
            for failed in ((), FAILED[name]):
                begin = time.perf_counter()
                found = route(built, flows, parse_routing(text), 1, failed)
                spent = time.perf_counter() - begin
                holds = is_the_cut(found, fabric, job, hosts)
                yield _row(name, order, text, bool(failed), found, spent), holds


def _row(
    name: str, order: str, text: str, failed: bool, found: Congestion, spent: float
) -> tuple[str, ...]:
    fullest = max(found.mmr.values())
    return (
        *(name, order, text, "some" if failed else "none"),
        *(seconds_text(found.seconds), f"{found.slowdown:.2f}", f"{fullest:.2f}"),
        *(found.busiest.name, f"{spent:.2f}"),
    )


def main() -> int:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    head = ("fabric", "order", "routing", "failed", "busiest link", "slowdown", "MMR", "link", "s")
    lines: list[tuple[str, ...]] = [head]
    wrong = 0
    for name in FAILED:
        for row, holds in rows(name):
            lines.append(row)
            wrong += not holds
    print(columns(lines, right={4, 5, 6, 8}))
    print(f"{wrong} of {len(lines) - 1} carry other bytes than the cut says")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
