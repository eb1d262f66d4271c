"""Gangs of several sizes: which numbers of replicas are legal, and whether there is room for one.

A job may say that its gang can run with fewer data-parallel replicas than asked for. A
number of replicas (`dp`) is legal when its ranks fill whole hosts, the batch divides over
it, its shard groups are whole, a GPU has the memory that it needs, and the empty fabric
could hold it. All other axes stay as they are, so every legal size is an ordinary request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from math import gcd

from placement.errors import BadInput
from placement.fabric.constraints import with_gang_view
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from placement.placer import impossible
from placement.workload.memory import refuse_too_large
from placement.workload.replicas import batch_sizes, sized
from placement.workload.request import Request
from placement.workload.segments import segments_of, usable_for
from placement.workload.traffic import axis_traffic


@with_gang_view
@lru_cache(maxsize=1024)
def legal_sizes(fabric: Fabric, request: Request, least: int) -> tuple[int, ...]:
    """Return the legal numbers of replicas from `least` to the request's, ascending; empty when the
    empty fabric could hold none of them, and for a job on a part of a host.

    Raises: BadInput as `placer.impossible` for the request itself, which is the largest.
    """
    impossible(fabric, request)
    sizes = [
        dp for dp in _of_whole_hosts(fabric, request, least) if _suits(fabric, sized(request, dp))
    ]

    def never(dp: int) -> bool:
        return impossible(fabric, sized(request, dp)) is not None

    if request.where.has_segments:  # of fewer replicas they may be larger
        return tuple(dp for dp in sizes if not never(dp))
    return tuple(sizes[: bisect_left(sizes, True, key=never)])


def _of_whole_hosts(fabric: Fabric, request: Request, least: int) -> Sequence[int]:
    """The sizes whose ranks fill hosts, up to as many as the fabric has, and the batch allows."""
    part, gpus = request.resized_part, fabric.gpus_per_host
    ranks = part.parallelism.world_size // request.replicas
    others = request.parallelism.world_size - part.parallelism.world_size
    step = gpus // gcd(gpus, ranks)
    most = min(request.replicas, (fabric.host_count * gpus - others) // ranks)
    if part.batch is not None:
        return [dp for dp in batch_sizes(part, least) if dp <= most and not dp % step]
    return range(-(-least // step) * step, most + 1, step)


def _suits(fabric: Fabric, request: Request) -> bool:
    """Whether the model and its training can be split so. Without a model anything can."""
    if request.resized_part.model is None and not request.where.has_segments:
        return True
    try:
        axis_traffic(request)
        refuse_too_large(request.resized_part)
        segments_of(fabric, request)
    except BadInput:
        return False
    return True


@with_gang_view
def has_room(fabric: Fabric, free: HostSet, request: Request) -> bool:
    """Return whether there are enough hosts, with the spares that are required, under the
    constraints."""
    gang = request.hosts_needed(fabric.gpus_per_host)
    needed = gang + request.spares.required(gang)
    if free.bit_count() < needed:
        return False
    return usable_for(fabric, request, free, needed).bit_count() >= needed
