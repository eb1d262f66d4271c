"""Gangs of several sizes: the same request with other numbers of data-parallel replicas."""

from __future__ import annotations

from functools import lru_cache
from math import isqrt

from muster.structs import replace
from placement.errors import BadInput
from placement.workload.request import Request
from placement.workload.roles import request_of_roles


@lru_cache(maxsize=4096)
def sized(request: Request, dp: int) -> Request:
    """Return the request with `dp` replicas; explicit bytes per edge stay as they are. Its batch is
    the same, so that fewer replicas compute longer. Of several roles the last one has these
    replicas, and all together send what they sent."""
    if dp == request.replicas:
        return request
    if request.roles:
        *others, last = request.roles
        last = replace(last, request=sized(last.request, dp))
        return request_of_roles((*others, last), request)
    compute_s = request.compute_s
    if compute_s is not None:
        compute_s *= request.parallelism.dp / dp
    parallelism = replace(request.parallelism, dp=dp)
    return replace(request, parallelism=parallelism, compute_s=compute_s)


def check_batch(request: Request) -> None:
    """Refuse a global batch that does not divide over the replicas. Raises: BadInput."""
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
    """Return the numbers of replicas, from `least` to the request's, over which the batch divides.
    Cost: O(sqrt of the sequences)."""
    if request.batch is None:
        return ()
    each = request.parallelism.ep * request.batch.micro_sequences
    micro_batches, odd = divmod(request.batch.global_sequences, each)
    if odd:
        return ()
    small = [n for n in range(1, isqrt(micro_batches) + 1) if not micro_batches % n]
    both = {*small, *(micro_batches // n for n in small)}
    return tuple(sorted(n for n in both if least <= n <= request.parallelism.dp))
