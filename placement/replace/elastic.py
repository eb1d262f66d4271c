"""Gangs of several sizes: which numbers of replicas are legal, and who stays where.

A job may say that its gang can run with fewer data-parallel replicas than asked for. A
number of replicas (`dp`) is legal when its ranks fill whole hosts, the batch divides over
it, its shard groups are whole, a GPU has the memory that it needs, and the empty fabric
could hold it. All other axes stay as they are, so every legal size is an ordinary request.

Replicas keep their order when a gang is resized: replica j of the new gang is one of the
old, or new. Where the ranks of a host all come from one old host, they stay on it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from math import gcd, isqrt

import numpy as np

from placement.errors import BadInput
from placement.fabric import hostset
from placement.fabric.constraints import broken, usable
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from placement.objective.cut import cut
from placement.place import impossible, place
from placement.replace.near import Hint
from placement.spares.holding import hold_spares
from placement.workload.memory import refuse_too_large
from placement.workload.request import Answer, Insufficient, Limits, Placement, Request
from placement.workload.traffic import axis_traffic

NEW = -1  # stands for the old number of a replica that is new, or for a host to be found


@lru_cache(maxsize=4096)
def sized(request: Request, dp: int) -> Request:
    """The same gang with `dp` replicas; explicit bytes per edge stay as they are."""
    if dp == request.parallelism.dp:
        return request
    return replace(request, parallelism=replace(request.parallelism, dp=dp))


def check_batch(request: Request) -> None:
    """Raises: BadInput when the global batch does not divide over the replicas."""
    if request.batch is None:
        return
    each = request.parallelism.dp * request.parallelism.ep * request.batch.micro_sequences
    if request.batch.global_sequences % each:
        raise BadInput(
            "batch.global_sequences",
            f"{request.batch.global_sequences} sequences do not divide over dp"
            f" {request.parallelism.dp} in micro-batches of {request.batch.micro_sequences}",
        )


def batch_sizes(request: Request, least: int) -> tuple[int, ...]:
    """Numbers of replicas from `least` to the request's over which the batch divides.

    Cost: O(sqrt of the sequences).
    """
    if request.batch is None:
        return ()
    each = request.parallelism.ep * request.batch.micro_sequences
    micro_batches, odd = divmod(request.batch.global_sequences, each)
    if odd:
        return ()
    small = [n for n in range(1, isqrt(micro_batches) + 1) if not micro_batches % n]
    both = {*small, *(micro_batches // n for n in small)}
    return tuple(sorted(n for n in both if least <= n <= request.parallelism.dp))


@lru_cache(maxsize=1024)
def legal_sizes(fabric: Fabric, request: Request, least: int) -> tuple[int, ...]:
    """Legal numbers of replicas from `least` to the request's, ascending; empty when the
    empty fabric could hold none of them.

    Raises: BadInput as `place.impossible` for the request itself, which is the largest.
    """
    impossible(fabric, request)
    sizes = [dp for dp in _of_whole_hosts(fabric, request, least) if _suits(sized(request, dp))]
    fits = bisect_left(
        sizes, True, key=lambda dp: impossible(fabric, sized(request, dp)) is not None
    )
    return tuple(sizes[:fits])


def _of_whole_hosts(fabric: Fabric, request: Request, least: int) -> Sequence[int]:
    """Those whose ranks fill hosts, up to as many as the fabric has, and the batch allows."""
    full, gpus = request.parallelism.dp, fabric.gpus_per_host
    ranks = request.parallelism.world_size // full
    step = gpus // gcd(gpus, ranks)
    most = min(full, fabric.host_count * gpus // ranks)
    if request.batch is not None:
        return [dp for dp in batch_sizes(request, least) if dp <= most and not dp % step]
    return range(-(-least // step) * step, most + 1, step)


def _suits(request: Request) -> bool:
    """Whether the model and its training can be split so. Without a model anything can."""
    if request.model is None:
        return True
    try:
        axis_traffic(request)
        refuse_too_large(request)
    except BadInput:
        return False
    return True


def sizes_text(sizes: Sequence[int]) -> str:
    """`8, 16, 32`, `8 to 128 in steps of 8`, or both ends of a long list."""
    if len(sizes) <= 6:
        return ", ".join(f"{dp:,}" for dp in sizes)
    steps = {after - before for before, after in pairwise(sizes)}
    if len(steps) == 1:
        return f"{sizes[0]:,} to {sizes[-1]:,} in steps of {steps.pop():,}"
    first = ", ".join(f"{dp:,}" for dp in sizes[:4])
    return f"{first}, ... {sizes[-1]:,} ({len(sizes)} sizes)"


def place_largest(
    fabric: Fabric,
    free: HostSet,
    request: Request,
    sizes: Sequence[int],
    limits: Limits | None = None,
) -> tuple[Answer, int]:
    """The answer for the largest of `sizes` that fits what is free, and that size; for the
    smallest when none does. Cost: one `place`; sizes are ruled out by counting."""
    if not sizes:
        return place(fabric, free, request, limits), request.parallelism.dp
    fits = bisect_left(sizes, True, key=lambda dp: not has_room(fabric, free, sized(request, dp)))
    dp = sizes[max(0, fits - 1)]
    answer = place(fabric, free, sized(request, dp), limits)
    full = request.parallelism.dp
    if isinstance(answer, Placement) and dp < full:
        note = f"dp {dp:,} of {full:,}: the largest legal size that fits ({sizes_text(sizes)})"
        return replace(answer, notes=(*answer.notes, note)), dp
    if isinstance(answer, Insufficient):
        return replace(answer, reason=f"at dp {dp:,}, the least of its sizes, {answer.reason}"), dp
    return answer, dp


def has_room(fabric: Fabric, free: HostSet, request: Request) -> bool:
    """Whether there are hosts enough, spares that are required and constraints included."""
    gang = request.hosts_needed(fabric.gpus_per_host)
    needed = gang + request.spares.required(gang)
    if free.bit_count() < needed:
        return False
    return usable(fabric, request.where, free, needed).bit_count() >= needed


def carried(
    request: Request, gpus_per_host: int, hosts: Sequence[int], kept: Sequence[int]
) -> tuple[int, ...]:
    """The old host of each block of a resized gang; NEW where its ranks have no common one.

    `request`: the old gang, which lies on `hosts` in block order. `kept`: for each replica
    of the new gang its number in the old one, or NEW. Cost: O(ranks).
    """
    p = request.parallelism
    stride, ranks = p.stride("dp"), p.world_size // p.dp * len(kept)
    rank = np.arange(ranks)
    replica = np.asarray(kept)[rank // stride % len(kept)]
    outer = rank // (stride * len(kept))
    old_rank = rank % stride + stride * (replica + p.dp * outer)
    old = np.where(replica == NEW, NEW, np.asarray(hosts)[old_rank // gpus_per_host])
    blocks = old.reshape(-1, gpus_per_host)
    whole = np.where((blocks == blocks[:, :1]).all(axis=1), blocks[:, 0], NEW)
    first = np.zeros(len(whole), dtype=bool)
    first[np.unique(whole, return_index=True)[1]] = True  # a host carries one block
    return tuple(np.where(first, whole, NEW).tolist())


def replicas_on(request: Request, gpus_per_host: int, block: int) -> tuple[int, ...]:
    """The replicas that have ranks in this block, ascending."""
    ranks = block * gpus_per_host + np.arange(gpus_per_host)
    p = request.parallelism
    return tuple(np.unique(ranks // p.stride("dp") % p.dp).tolist())


def ranks_inside(
    request: Request, fabric: Fabric, hosts: Sequence[int], within: HostSet
) -> list[int]:
    """For each replica of a gang on `hosts`, in block order, how many of its ranks lie on
    hosts of `within`. Cost: O(ranks)."""
    p, gpus = request.parallelism, fabric.gpus_per_host
    is_inside = hostset.to_mask(within, fabric.host_count)[np.asarray(hosts)]
    rank = np.arange(p.world_size)
    replica = rank // p.stride("dp") % p.dp
    found: list[int] = np.bincount(replica[is_inside[rank // gpus]], minlength=p.dp).tolist()
    return found


STAY = 1e9  # a slack so large that no cut is a reason to move


def widened(request: Request, gpus_per_host: int, hosts: Sequence[int], dp: int) -> Hint:
    """Where a gang of `dp` replicas finds its old ones. They stay, however much less would be
    cut elsewhere; but where nothing at all would be cut, all may go."""
    old = request.parallelism.dp
    kept = [*range(min(old, dp)), *[NEW] * max(0, dp - old)]
    return Hint(carried(request, gpus_per_host, hosts, kept), slack=STAY)


def on_hosts(
    fabric: Fabric, request: Request, hosts: tuple[int, ...], own: HostSet
) -> Placement | None:
    """The gang on these hosts in block order, its spares among `own`; None when it lacks
    spares that are required, or breaks its constraints. Nothing is proved of its cut."""
    room = np.flatnonzero(hostset.to_mask(own, fabric.host_count)).astype(np.int64)
    spares = hold_spares(fabric, request, room, hosts, len(room)).spares
    if len(spares) < request.spares.required(len(hosts)):
        return None
    if broken(fabric, request.where, hostset.of(hosts + spares)):
        return None
    return Placement(hosts, spares, cut(fabric, request, hosts))
