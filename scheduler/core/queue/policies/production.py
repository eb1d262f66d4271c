"""The production policy: priority, fair share, arrival; EASY backfill; preemption and loans.

It is the one policy that knows priorities and takes back what is guaranteed to a tenant.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace

from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.policies.tenants import Aging
from scheduler.core.queue.order import as_queued
from scheduler.core.queue.policies.easy import Easy
from scheduler.core.queue.policy import AllWait, QueueContext, QueuePolicy
from scheduler.core.tenancy.fair_share import FairShares, Key


class FairOrder:
    """Priority, then fair share, then arrival.

    Within a tenant the queue is sorted already; tenants are merged by a heap of the first
    job of each. A start changes what its tenant is due, so the heap is made anew after it.
    Cost: what is looked at where there is one tenant, O(queue log tenants) else.
    """

    is_by_priority = True

    def __init__(self, context: QueueContext) -> None:
        self._state, self._now_ns = context.state, context.now_ns
        self._book = context.quotas.book
        self._has_started = False

    @property
    def is_stable(self) -> bool:
        return len(self._state.tenants.tenants) == 1 and self._state.tenants.aging is None

    def jobs(self, all_wait: AllWait) -> Iterator[Job]:
        if self.is_stable:
            return as_queued(self._state, all_wait)
        jobs = [self._state.jobs[name] for name in self._state.queue]
        if self._state.tenants.aging is not None:
            jobs = aged(jobs, self._state.tenants.aging, self._now_ns)
        queues: dict[str, list[Job]] = {}
        for job in jobs:
            queues.setdefault(job.tenant, []).append(job)
        return self._merged(queues) if len(queues) > 1 else iter(jobs)

    def took(self, job: Job, hosts: int) -> None:
        self._has_started = True
        self._started = (job.tenant, hosts)

    def _merged(self, queues: dict[str, list[Job]]) -> Iterator[Job]:
        shares = FairShares(self._state, self._now_ns, self._book)
        aging = self._state.tenants.aging
        heads = dict.fromkeys(queues, 0)
        keys: dict[str, Key] = {}

        def entry(leaf: str) -> tuple[int, Key, int, str]:
            job = queues[leaf][heads[leaf]]
            return (-priority_of(job, aging, self._now_ns), keys[leaf], job.sequence, leaf)

        def heap_of_heads() -> list[tuple[int, Key, int, str]]:
            keys.update((leaf, shares.key(leaf)) for leaf in queues)
            heap = [entry(leaf) for leaf in queues if heads[leaf] < len(queues[leaf])]
            heapify(heap)
            return heap

        heap = heap_of_heads()
        while heap:
            leaf = heap[0][3]
            job = queues[leaf][heads[leaf]]
            heads[leaf] += 1
            yield job
            if self._has_started:
                self._has_started = False
                shares.took(*self._started)
                heap = heap_of_heads()
            elif heads[leaf] < len(queues[leaf]):
                heapreplace(heap, entry(leaf))
            else:
                heappop(heap)


def aged(jobs: list[Job], aging: Aging, now_ns: int) -> list[Job]:
    """By priority with what waiting has added, then arrival."""
    return sorted(jobs, key=lambda j: (-priority_of(j, aging, now_ns), j.sequence))


def priority_of(job: Job, aging: Aging | None, now_ns: int) -> int:
    """The job's priority, and `by` more for every `every_s` since it was queued."""
    if aging is None:
        return job.priority
    waited_ns = max(0, now_ns - job.state_ns)
    return job.priority + waited_ns // (aging.every_s * SECOND_NS) * aging.by


PRODUCTION = QueuePolicy(
    "production", order=FairOrder, backfill=Easy, may_preempt=True, may_borrow=True
)
