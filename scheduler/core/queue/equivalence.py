"""Who waits as others before it do: long queues are mostly of such jobs.

Jobs of one kind are left the same hosts by a decision, so of these a larger one waits as a
smaller one did, up to a size beyond which another limit may be for it. Where neighbours in the
queue all wait so, they are passed over together: a decision does not look at each of twenty
thousand.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from itertools import chain

from scheduler.core.collections.name_list import Chunk
from scheduler.core.model.job import Job


class EquivalenceCache:
    """What is known of a decision so far, until somebody takes hosts."""

    def __init__(self) -> None:
        self._sizes: dict[Hashable, tuple[int, int]] = {}

    def has(self, job: Job, kind: Hashable) -> bool:
        """Whether `job` waits, as far as is known."""
        least, most = self._sizes.get(kind, (1, 0))
        return least <= job.needed <= most and not job.has_choice

    def add(self, kind: Hashable, least: int, most: int) -> None:
        """Those of `kind` wait that need so many hosts."""
        self._sizes[kind] = (least, most)

    def clear(self) -> None:
        self._sizes.clear()


def outermost(part: Chunk, jobs: Mapping[str, Job]) -> tuple[Job, ...]:
    """Of the jobs that are alike and of one size, the one with the shortest time limit and the
    one with the longest; elastic jobs all. What makes them alike changes only with their place
    in the queue, so it is found once: O(part), then O(1)."""
    if part.cached is None:
        part.cached = _outermost(map(jobs.__getitem__, part))
    in_part: tuple[Job, ...] = part.cached
    return in_part


def _outermost(jobs: Iterable[Job]) -> tuple[Job, ...]:
    ends: dict[Hashable, tuple[Job, Job]] = {}
    for job in jobs:
        limit_ns = job.limit_ns or 0
        key = job.name if job.sizes else (job.likeness, job.needed, job.limit_ns is None)
        shortest, longest = ends.get(key, (job, job))
        if limit_ns < (shortest.limit_ns or 0):
            ends[key] = (job, longest)
        elif limit_ns > (longest.limit_ns or 0) or key not in ends:
            ends[key] = (shortest, job)
    return tuple(chain.from_iterable(ends.values()))
