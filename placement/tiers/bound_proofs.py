"""The bounds of a placement with what proves them, for a certificate.

The bound on the outermost cut holds over the zones that the gang could have taken, the one on the
first tier that is cut over the domains of any domain outside it that could have taken the gang.
What a certificate says: docs/verify.md. See docs/engine.md, "The proof".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from placement.fabric import hostset
from placement.fabric.constraints import fullest, labelled, with_gang_view
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from placement.grid.block_grid import BlockGrid, group_grid
from placement.proof.written import NOTHING, WrittenProof, written_proof
from placement.tiers.inner_bound import common_room
from placement.workload.request import Limits, Placement, Request


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
