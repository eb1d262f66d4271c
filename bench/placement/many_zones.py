"""Gangs over very many zones: how far from proved, how long, and how time grows with zones.

python -m bench.placement --mode zones --docs docs/benchmarks.md     # five minutes

A million GPUs are 320 zones like RoCE-24K's, 384 hosts each. Gangs of 131,072 GPUs are placed on
all of them free, and on what is left of zones that others use. Growth is of gangs that use most of
4 to 64 zones, which grow with them: of whole zones, or of zones all unlike. Time is the process's
on all cores, which other processes hardly change; by the clock a solve takes less.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from bench.placement.fabrics import flat_zones
from bench.tables import millis, percent, quantile, table
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from placement.objective.check import violations
from placement.placer import place
from placement.workload.request import Collective, Objective, Placement, Request
from tests.build import request

MILLION = 320  # zones of 3,072 GPUs
ZONES = (4, 8, 16, 32, 64)
TRIES = 3  # gangs of each number of zones
FREE = ("all zones whole", "whole racks", "single hosts")
MOST_GAP, MOST_SECONDS, MOST_GROWTH = 0.05, 20, 16  # targets


def gangs() -> dict[str, Request]:
    """Return gangs of 131,072 GPUs each, by name."""
    bytes_ = {"dp": 300, "pp": 100}
    by_dp = (("dp", Collective.HIERARCHICAL),)
    context = request(tp=8, cp=16, pp=16, dp=64, traffic={**bytes_, "cp": 1000})
    return {
        "dense, dp = pp": request(tp=8, pp=16, dp=1024, traffic={"dp": 300, "pp": 300}),
        "dense, dp = 10 pp": request(tp=8, pp=16, dp=1024, traffic={"dp": 3000, "pp": 300}),
        "hierarchical": replace(request(tp=8, pp=16, dp=1024, traffic=bytes_), collectives=by_dp),
        "context of 16": context,
        "experts of 64": request(ep=64, pp=16, dp=128, traffic={**bytes_, "ep": 100}),
        "tp of two hosts": request(tp=16, pp=16, dp=512, traffic={**bytes_, "tp": 5000}),
        "ragged, pp 13": request(tp=4, pp=13, dp=2520, traffic=bytes_),
    }


@dataclass(frozen=True, slots=True)
class ZonesPlacement:
    """One placement on so many zones. `free`: which hosts were free."""

    gang: str
    free: str
    zones: int
    hosts: int
    cut: int
    gap: float
    seconds: float


def run(seed: int = 1, is_quick: bool = False) -> list[ZonesPlacement]:
    """Place gangs on a million GPUs, then on growing numbers of zones; if `is_quick`, only few."""
    fabric, measured = flat_zones(MILLION), []
    free_by_kind = {kind: _free(fabric, kind, seed) for kind in FREE[: 1 if is_quick else None]}
    some = list(gangs().items())[: 1 if is_quick else None]
    for (kind, free), (name, gang) in product(free_by_kind.items(), some):
        measured.append(_print_progress(_placed(fabric, free, gang, name, kind)))
    for zones, kind, k in product(ZONES, list(free_by_kind)[:2], range(1 if is_quick else TRIES)):
        measured.append(_print_progress(_grown(zones, kind, f"{seed}/{k}")))
    return measured


def _print_progress(measured: ZonesPlacement) -> ZonesPlacement:
    print(measured, file=sys.stderr, flush=True)
    return measured


def _placed(fabric: Fabric, free: HostSet, gang: Request, name: str, kind: str) -> ZonesPlacement:
    """Raises: AssertionError on anything but a valid placement."""
    gang = replace(gang, objective=Objective.CUT)
    began = time.process_time()
    answer = place(fabric, free, gang)
    seconds = time.process_time() - began
    assert isinstance(answer, Placement), answer
    assert not violations(fabric, free, gang, answer)
    zones = len(fabric.tiers[0].domains)
    return ZonesPlacement(name, kind, zones, len(answer.hosts), answer.cut, answer.gap, seconds)


def _free(fabric: Fabric, kind: str, seed: int) -> HostSet:
    """All of a fabric, or a quarter: of each zone another share of its racks, or of all hosts."""
    rng = np.random.default_rng(seed)
    if kind == "all zones whole":
        return hostset.full(fabric.host_count)
    if kind == "single hosts":
        return hostset.from_mask(rng.uniform(size=fabric.host_count) < 0.25)
    zone, rack = (tier.domain_by_host for tier in fabric.tiers)
    share = rng.uniform(0.1, 0.4, int(zone.max()) + 1)
    return hostset.from_mask(rng.uniform(size=int(rack.max()) + 1)[rack] < share[zone])


def _grown(zones: int, kind: str, seed: str) -> ZonesPlacement:
    """A gang of nine tenths of what is free in so many zones, whole or in whole racks."""
    fabric, rng = flat_zones(zones), random.Random(f"growth/{kind}/{seed}")
    free = np.ones(fabric.host_count, dtype=np.bool_)
    if kind != "all zones whole":
        rack = fabric.tiers[1].domain_by_host
        share = np.repeat([rng.uniform(0.5, 1) for _ in range(zones)], fabric.host_count // zones)
        drawn = np.array([rng.random() for _ in range(int(rack.max()) + 1)])
        free = drawn[rack] < share
    traffic = {"dp": 100 * rng.choice((1, 3, 10)), "pp": 300}
    gang = request(tp=8, pp=16, dp=int(free.sum()) * 9 // 160, traffic=traffic)
    return _placed(fabric, hostset.from_mask(free), gang, "dense", kind)


def text(measured: Sequence[ZonesPlacement]) -> str:
    """Write the tables."""
    million = [m for m in measured if m.zones == MILLION]
    grown = [m for m in measured if m.zones != MILLION]
    head = ("gang", "free", "hosts", "cut", "gap", "time")
    rows = [(m.gang, m.free, m.hosts, m.cut, percent(m.gap), millis(m.seconds)) for m in million]
    return "\n\n".join(
        [
            _targets(million, grown),
            table(head, rows),
            "Growth: time is the median of three gangs, and the ratio to that on four zones.",
            table(("free", "zones", "hosts", "time", "ratio", "worst gap"), _growth(grown)),
        ]
    )


def _growth(grown: Sequence[ZonesPlacement]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for kind in dict.fromkeys(m.free for m in grown):
        base = 0.0
        for zones in dict.fromkeys(m.zones for m in grown):
            some = [m for m in grown if (m.free, m.zones) == (kind, zones)]
            time_ = quantile([m.seconds for m in some], 0.5)
            base = base or time_
            hosts = round(quantile([m.hosts for m in some], 0.5))
            worst = percent(max(m.gap for m in some))
            rows.append((kind, zones, hosts, millis(time_), f"{time_ / base:.1f}x", worst))
    return rows


def _targets(million: Sequence[ZonesPlacement], grown: Sequence[ZonesPlacement]) -> str:
    rows: list[tuple[object, ...]] = []
    for kind in dict.fromkeys(m.free for m in million):
        some = [m for m in million if m.free == kind]
        gap, seconds = max(m.gap for m in some), max(m.seconds for m in some)
        what = f"131,072 GPUs of 983,040, {kind}"
        rows.append((f"{what}: largest gap", percent(MOST_GAP), percent(gap)))
        rows.append((f"{what}: longest time", f"{MOST_SECONDS} s", millis(seconds)))
    for kind in dict.fromkeys(m.free for m in grown):
        by_zones = [[m.seconds for m in grown if (m.free, m.zones) == (kind, z)] for z in ZONES]
        growth = quantile(by_zones[-1], 0.5) / quantile(by_zones[0], 0.5)
        rows.append((f"growth from 4 to 64 zones, {kind}", f"{MOST_GROWTH}x", f"{growth:.1f}x"))
    return table(("measure", "target", "measured"), rows)
