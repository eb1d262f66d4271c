"""Gangs that are resized: who stays where.

Replicas keep their order when a gang is resized: replica j of the new gang is one of the
old, or new. Where the ranks of a host all come from one old host, they stay on it.
See docs/engine.md, "Near an old placement".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placement.fabric import hostset
from placement.fabric.constraints import broken, gpus_wanted, with_gang_view
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from placement.objective.cut import cut
from placement.objective.step_time import step_bound
from placement.spares.holding import hold_spares
from placement.workload.request import Placement, Request
from placement.workload.segments import parted

NEW = -1  # stands for the old number of a replica that is new, or for a host to be found


def carried(
    request: Request, gpus_per_host: int, hosts: Sequence[int], kept: Sequence[int]
) -> tuple[int, ...]:
    """Return the old host of each block of a resized gang; NEW where its ranks have no common one.

    `request`: the old gang, which lies on `hosts` in block order. `kept`: for each replica of the
    new gang its number in the old one, or NEW. Other roles stay. Cost: O(ranks).
    """
    p, first = request.resized_part.parallelism, _first_block(request, gpus_per_host)
    hosts, others = hosts[first:], tuple(hosts[:first])
    stride, ranks = p.stride("dp"), p.world_size // p.dp * len(kept)
    rank = np.arange(ranks)
    replica = np.asarray(kept)[rank // stride % len(kept)]
    outer = rank // (stride * len(kept))
    old_rank = rank % stride + stride * (replica + p.dp * outer)
    old = np.where(replica == NEW, NEW, np.asarray(hosts)[old_rank // gpus_per_host])
    blocks = old.reshape(-1, gpus_per_host)
    whole = np.where((blocks == blocks[:, :1]).all(axis=1), blocks[:, 0], NEW)
    is_first = np.zeros(len(whole), dtype=bool)
    is_first[np.unique(whole, return_index=True)[1]] = True  # a host carries one block
    return (*others, *np.where(is_first, whole, NEW).tolist())


def _first_block(request: Request, gpus_per_host: int) -> int:
    """Return the number of blocks before those of the part that is resized."""
    part = request.resized_part.parallelism.world_size
    return (request.parallelism.world_size - part) // gpus_per_host


def replicas_on(request: Request, gpus_per_host: int, block: int) -> tuple[int, ...]:
    """Return the replicas that have ranks in this block, ascending; none for a block of another
    role."""
    block -= _first_block(request, gpus_per_host)
    if block < 0:
        return ()
    ranks = block * gpus_per_host + np.arange(gpus_per_host)
    p = request.resized_part.parallelism
    return tuple(np.unique(ranks // p.stride("dp") % p.dp).tolist())


def ranks_inside(
    request: Request, fabric: Fabric, hosts: Sequence[int], within: HostSet
) -> list[int]:
    """Count for each replica of a gang on `hosts`, in block order, its ranks on hosts of `within`.
    Cost: O(ranks)."""
    p, gpus = request.resized_part.parallelism, gpus_wanted(fabric, request.where)
    own = np.asarray(hosts)[_first_block(request, gpus) :]
    is_inside = hostset.to_mask(within, fabric.host_count)[own]
    rank = np.arange(p.world_size)
    replica = rank // p.stride("dp") % p.dp
    inside: list[int] = np.bincount(replica[is_inside[rank // gpus]], minlength=p.dp).tolist()
    return inside


@with_gang_view
def on_hosts(
    fabric: Fabric, request: Request, hosts: tuple[int, ...], own: HostSet
) -> Placement | None:
    """Return the gang as placed on these hosts in block order, its spares among `own`; None when it
    lacks spares that are required, or breaks its constraints. Nothing is proved of its cut."""
    room = hostset.indices(own)
    spares = hold_spares(fabric, request, room, hosts, len(room)).spares
    if len(spares) < request.spares.required(len(hosts)):
        return None
    is_kept = not broken(fabric, request.where, hostset.of(hosts + spares))
    if not is_kept or parted(fabric, request, hosts):
        return None
    cuts, step = cut(fabric, request, hosts), step_bound(fabric, request, hosts)
    return Placement(hosts, spares, cuts, step=step)
