"""Placements that other schedulers make, to measure the minimum cut against.

Consecutive: hosts are counted, tier after tier, and the fewest domains taken: the fullest
first, for the last one the smallest that holds the rest; ranks lie there one after the
other. It is what topology-aware schedulers do that count slots (Kueue, Slurm). Random:
hosts anywhere, in any order. Arnold's spread is an objective of `place` itself.

Constraints and spares are as in `place`. Nothing is proved: the bound is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from random import Random

import numpy as np

from muster.structs import replace
from placement.fabric import hostset
from placement.fabric.constraints import with_gang_view
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric, Ints
from placement.notes import request_notes, spare_notes
from placement.objective.cut import cut
from placement.objective.step_time import step_bound
from placement.part_of_host import choose_gpus
from placement.spares.holding import Holding, hold_spares
from placement.spares.sizing import BY_DEFAULT, Sizing
from placement.tiers.shape import contract, placed_inside
from placement.workload.request import NO_SPARES, Objective, Placement, Request
from placement.workload.role_domains import place_by_role
from placement.workload.segments import role_rules, segments_of, usable_for

# (free hosts ascending, how many of them) -> those taken, in block order
Choose = Callable[[Ints, int], Ints]


@with_gang_view
def chosen(
    fabric: Fabric,
    free: HostSet,
    request: Request,
    choose: Choose,
    most_spares: int,
    sizing: Sizing = BY_DEFAULT,
) -> Placement | None:
    """Place the gang where the function `choose` puts it, with its spares; None when it does not
    fit."""
    gang = request.hosts_needed(fabric.gpus_per_host)
    required = request.spares.required(gang)
    room = usable_for(fabric, request, free, gang + required)
    if room.bit_count() < gang + required:
        return None
    segments, rules = segments_of(fabric, request), role_rules(fabric, request)

    def choose_role(role: int, inside: HostSet) -> tuple[int, ...]:
        part = replace(request.roles[role].request, spares=NO_SPARES)
        its = chosen(fabric, inside, part, choose, 0, sizing)
        assert its is not None  # for these hosts have room for the role
        return its.hosts

    def solve(inside: HostSet) -> Placement:
        hosts, at = hostset.indices(inside), 0
        if rules is not None:
            by_role = place_by_role(fabric, rules, inside, (), choose_role)
            assert by_role is not None  # for these hosts have room for all roles
            taken = by_role
        elif segments is None:
            taken = tuple(choose(hosts, gang).tolist())
        else:
            small, at = contract(fabric, inside, request, segments), segments.inner.depth
            slots = chosen(small.fabric, small.free, small.request, choose, 0, sizing)
            assert slots is not None  # for these hosts have room for all segments
            taken = tuple(small.expand(slots.hosts).tolist())
        spares = max(required, min(most_spares, len(hosts) - gang))
        held = hold_spares(fabric, request, hosts, taken, spares, sizing, at=at)
        return _placement(fabric, request, taken, held, at)

    return placed_inside(fabric, room, request, gang + required, solve)


def _placement(
    fabric: Fabric, request: Request, hosts: tuple[int, ...], held: Holding, at: int
) -> Placement:
    cuts = cut(fabric, request, hosts)
    notes = (*request_notes(fabric, request), *spare_notes(fabric, held, at))
    is_free = not cuts or not cuts[0].bytes_per_step
    step, part = step_bound(fabric, request, hosts), request.part_gpus(fabric.gpus_per_host)
    gpus = choose_gpus(fabric, hosts[0], (), part) or () if part else ()
    return Placement(
        *(hosts, held.spares, cuts, 0, is_free, notes), inner=None, step=step, gpus=gpus
    )


def consecutive(fabric: Fabric) -> Choose:
    """Return a function that chooses the fewest domains of each tier, by their number of free
    hosts."""
    return lambda free, count: _fewest(fabric, free, count, 0)


def _fewest(fabric: Fabric, free: Ints, count: int, depth: int) -> Ints:
    if depth == len(fabric.tiers):
        return free[:count]
    domains, child_of = np.unique(fabric.tiers[depth].domain_by_host[free], return_inverse=True)
    free_by_child = np.bincount(child_of, minlength=len(domains))
    parts = [
        _fewest(fabric, free[child_of == child], hosts, depth + 1)
        for child, hosts in _ranked(free_by_child, count)
    ]
    return np.concatenate(parts)


def _ranked(free_by_child: Ints, needed: int) -> list[tuple[int, int]]:
    """Children to use for `needed` hosts, as (child, hosts), fullest first, then by number.

    The fewest children do; the last one is the smallest that holds the rest, so that
    what is left free stays in one piece.
    """
    order = np.argsort(-free_by_child, kind="stable")
    fullest = free_by_child[order]
    held = fullest.cumsum()
    used = int(held.searchsorted(needed))
    rest = needed - int(held[used - 1]) if used else needed
    tightest = int(fullest[used:][fullest[used:] >= rest].min())
    last = int(order[used:][fullest[used:] == tightest].min())
    return [*zip(order[:used].tolist(), fullest[:used].tolist(), strict=True), (last, rest)]


def at_random(seed: str) -> Choose:
    """Return a function that draws hosts at random. The same `seed` draws the same hosts."""
    return lambda free, count: np.array(Random(seed).sample(free.tolist(), count), dtype=np.int64)


@lru_cache(maxsize=4_096)
def by_spread(request: Request) -> Request:
    """Return the request of the gang with Arnold's measure as its objective."""
    return replace(request, objective=Objective.SPREAD)
