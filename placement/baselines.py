"""Placements that other schedulers make, to measure the minimum cut against.

Consecutive: hosts are counted, tier after tier, and the fewest domains taken: the fullest
first, for the last one the smallest that holds the rest; ranks lie there one after the
other. It is what topology-aware schedulers do that count slots (Kueue, Slurm). Random:
hosts anywhere, in any order. Arnold's spread is an objective of `place` itself.

Constraints and spares are as in `place`. Nothing is proved: the bound is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from random import Random

import numpy as np

from placement.fabric import hostset
from placement.fabric.constraints import seen_by_gang
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric, Ints
from placement.notes import request_notes, spare_notes
from placement.objective.cut import cut
from placement.objective.step_time import step_bound
from placement.spares.holding import Holding, hold_spares
from placement.spares.sizing import BY_DEFAULT, Sizing
from placement.tiers.contraction import contract
from placement.tiers.packing import ranked
from placement.tiers.shape import placed_inside
from placement.workload.request import Objective, Placement, Request
from placement.workload.segments import segments_of, usable_for

# (free hosts ascending, how many of them) -> those taken, in block order
Choose = Callable[[Ints, int], Ints]


@seen_by_gang
def chosen(
    fabric: Fabric,
    free: HostSet,
    request: Request,
    choose: Choose,
    most_spares: int,
    sizing: Sizing = BY_DEFAULT,
) -> Placement | None:
    """The gang where `choose` puts it, with its spares; None when it does not fit."""
    gang = request.hosts_needed(fabric.gpus_per_host)
    required = request.spares.required(gang)
    room = usable_for(fabric, request, free, gang + required)
    if room.bit_count() < gang + required:
        return None
    if (segments := segments_of(fabric, request)) is not None:
        small = contract(fabric, room, request, segments)
        placed = chosen(small.fabric, small.free, small.request, choose, 0, sizing)
        if placed is None:
            return None
        taken = tuple(small.expand(placed.hosts).tolist())
        every, at = np.array(hostset.members(room), dtype=np.int64), segments.inner.depth
        most = max(required, min(most_spares, len(every) - gang))
        held = hold_spares(fabric, request, every, taken, most, sizing, at=at)
        is_short = len(held.spares) < required
        return None if is_short else _placement(fabric, request, taken, held)

    def solve(inside: HostSet) -> Placement:
        hosts = np.flatnonzero(hostset.to_mask(inside, fabric.host_count)).astype(np.int64)
        spares = max(required, min(most_spares, len(hosts) - gang))
        taken = tuple(choose(hosts, gang).tolist())
        held = hold_spares(fabric, request, hosts, taken, spares, sizing)
        return _placement(fabric, request, taken, held)

    return placed_inside(fabric, room, request, gang + required, solve)


def _placement(
    fabric: Fabric, request: Request, hosts: tuple[int, ...], held: Holding
) -> Placement:
    cuts = cut(fabric, request, hosts)
    notes = (*request_notes(fabric, request), *spare_notes(fabric, held))
    is_free = not cuts or not cuts[0].bytes_per_step
    step = step_bound(fabric, request, hosts)
    return Placement(
        *(hosts, held.spares, cuts), lower_bound=0, is_optimal=is_free, notes=notes, step=step
    )


def consecutive(fabric: Fabric) -> Choose:
    """The fewest domains of each tier, by the number of free hosts in them."""
    return lambda free, count: _fewest(fabric, free, count, 0)


def _fewest(fabric: Fabric, free: Ints, count: int, depth: int) -> Ints:
    if depth == len(fabric.tiers):
        return free[:count]
    domains, child_of = np.unique(fabric.tiers[depth].domain_by_host[free], return_inverse=True)
    free_by_child = np.bincount(child_of, minlength=len(domains))
    parts = [
        _fewest(fabric, free[child_of == child], hosts, depth + 1)
        for child, hosts in ranked(free_by_child, count)
    ]
    return np.concatenate(parts)


def at_random(seed: str) -> Choose:
    """Hosts drawn without regard to anything. The same `seed` draws the same ones."""
    return lambda free, count: np.array(Random(seed).sample(free.tolist(), count), dtype=np.int64)


@lru_cache(maxsize=4_096)
def by_spread(request: Request) -> Request:
    """The same gang, to be placed by Arnold's measure."""
    return replace(request, objective=Objective.SPREAD)
