"""The bounds of a placement on each tier, with what proves them, for a certificate.

The bound on the outermost cut holds over the zones that the gang could have taken, the one on the
first tier that is cut over the domains of any domain outside it that could have taken the gang.
What a certificate says: docs/verify.md.

Where one domain of the tier outside holds the gang, nothing is cut on the tiers outside, and the
question is the outermost one again: blocks of a grid on domains of given capacities. The bound
holds for every domain that could take the whole gang, not only for the one that does.
See docs/engine.md, "The proof".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import zip_longest
from math import ceil
from typing import NamedTuple

import numpy as np

from placement.bound.size_relaxation import is_priceable, size_bound
from placement.fabric import hostset
from placement.fabric.constraints import fullest, labelled, with_gang_view
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric, Ints, above
from placement.grid.block_grid import BlockGrid, group_grid
from placement.proof.branch_and_price import Prover
from placement.proof.written import NOTHING, WrittenProof, written_proof
from placement.workload.request import Limits, Placement, Request, TierBound, TierCut

ONE_NODE = 1  # of the prover's tree: more nodes hardly prove more on many small domains


def inner_bound(
    fabric: Fabric, free: Ints, grid: BlockGrid, cuts: Sequence[TierCut]
) -> TierBound | None:
    """Bound the bytes that the outermost tier with a cut cannot go below while tiers outside have
    none. None where that is the outermost tier of all, or nothing is cut, or blocks that send each
    other nothing could be in different domains outside, or domains are too large."""
    depth = next((k for k, cut in enumerate(cuts) if cut.bytes_per_step), 0)
    if not depth or not _is_connected(grid):
        return None
    cost = int(cuts[depth].bytes_per_step * 2 / grid.unit)
    room = common_room(fabric, free, depth, grid.size)
    least = size_bound(grid).least_cut(grid.everywhere, room)
    if least < cost:
        least = max(least, proved(grid, room, cost))
    if least <= 0:
        return None
    bound = min(cuts[depth].bytes_per_step, ceil(grid.to_bytes(least)))
    return TierBound(cuts[depth].tier, bound)


def common_room(fabric: Fabric, free: Ints, depth: int, gang: int) -> tuple[int, ...]:
    """Return free hosts by domain of tier `depth`, largest first, at least as many as in any domain
    outside it that could take the gang."""
    tier, outer = fabric.tiers[depth], above(fabric, depth)[depth - 1]
    count = tier.count(free)
    fitting = np.flatnonzero(np.bincount(outer, weights=count) >= gang)
    rooms = [sorted(count[(outer == d) & (count > 0)].tolist(), reverse=True) for d in fitting]
    return tuple(map(max, zip_longest(*rooms, fillvalue=0)))


def _is_connected(grid: BlockGrid) -> bool:
    return (grid.rows == 1 or grid.row_weight > 0) and all(a.weight for a in grid.slice_axes)


def proved(grid: BlockGrid, room: Sequence[int], cost: int) -> int:
    """Prove a doubled cut that no layout of the grid on these domains beats, at most `cost`, that
    of a good layout."""
    if not is_priceable(grid, max(room)):
        return 0
    known = _bound_cell(grid, tuple(sorted((n for n in room if n), reverse=True)))
    if not known:
        known.append(Prover(grid, room, []).prove(cost + 1, ONE_NODE, is_last=True))
    return min(cost, known[0])


@lru_cache(maxsize=32)
def _bound_cell(grid: BlockGrid, room: tuple[int, ...]) -> list[int]:
    """Mutable cell per grid and room: the bound proved earlier in the search, reused by the
    certificate."""
    return []


class BoundProof(NamedTuple):
    """Proof of a bound. `claimed`: the engine's bytes as a bound on the cut of `tier`."""

    tier: str
    claimed: int
    proof: WrittenProof


@with_gang_view
def bound_proofs(
    fabric: Fabric,
    free: HostSet,
    request: Request,
    placement: Placement,
    limits: Limits | None = None,
) -> list[BoundProof]:
    """Prove the bound of the outermost tier, then of the first that is cut in one domain of the
    tier outside it. `free`: hosts that the gang could have taken. Cost: about that of the
    placement."""
    limits = limits or Limits()
    if not fabric.tiers:
        return []
    free = labelled(fabric, request.where, free)
    grid, inner = group_grid(request, fabric.gpus_per_host), placement.inner
    proof = NOTHING
    if placement.lower_bound and grid is not None:
        zones = request.where.max_zones
        few = fullest(fabric, free, zones) if zones else free
        room = fabric.tiers[0].count(hostset.indices(few)).tolist()
        proof = _proved(fabric, placement, grid, 0, room, placement.lower_bound, limits)
    proofs = [BoundProof(fabric.tiers[0].name, placement.lower_bound, proof)]
    if inner is not None and grid is not None:
        depth = next(i for i, tier in enumerate(fabric.tiers) if tier.name == inner.tier)
        shared = common_room(fabric, hostset.indices(free), depth, grid.size)
        proof = _proved(fabric, placement, grid, depth, shared, inner.bytes_per_step, limits)
        proofs.append(BoundProof(inner.tier, inner.bytes_per_step, proof))
    return proofs


def _proved(
    fabric: Fabric,
    placement: Placement,
    grid: BlockGrid,
    depth: int,
    room: Sequence[int],
    claimed: int,
    limits: Limits,
) -> WrittenProof:
    """`room`: for blocks in the domains of the tier at `depth`."""
    domains = fabric.tiers[depth].domain_by_host[list(placement.hosts)][grid.block]
    if depth:  # any domains with such room, not those that are taken
        domains = np.unique(domains, return_inverse=True)[1].reshape(domains.shape)
    return written_proof(grid, room, domains, claimed, limits.rounds)
