"""The order of the queue: priority, then fair share, then arrival.

Within a tenant the queue is sorted already; tenants are merged by a heap of the first
job of each. A start changes what its tenant is due, so the heap is made anew after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heapreplace

from scheduler.core.collections.name_list import Chunk, NameList
from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.model.policy import Policy, SchedulingOptions
from scheduler.core.model.state import State
from scheduler.core.policies.tenants import Aging
from scheduler.core.tenancy.fair_share import FairShares, Key
from scheduler.core.tenancy.quota import QuotaBook

Waits = Callable[[Chunk], bool]


class QueueOrder:
    """The queued jobs, next one first. Tell it of each start while iterating.

    Cost: what is looked at where there is one tenant, O(queue log tenants) else.
    """

    def __init__(
        self, state: State, now_ns: int, limits: SchedulingOptions, book: QuotaBook
    ) -> None:
        self._state = state
        self._now_ns = now_ns
        self._policy = limits.policy
        self._book = book
        self._has_started = False

    def __iter__(self) -> Iterator[Job]:
        return self.less(lambda _: False)

    def less(self, wait: Waits) -> Iterator[Job]:
        """Of neighbours in the queue that all wait, as `wait` says when it is their turn, the
        last one alone. Asked only where the order is that of the queue."""
        if self._policy is not Policy.PRODUCTION:
            return by_arrival(self._state, wait)
        if len(self._state.tenants.tenants) == 1 and self._state.tenants.aging is None:
            return _as_queued(self._state, wait)
        jobs = [self._state.jobs[name] for name in self._state.queue]
        if self._state.tenants.aging is not None:
            jobs = aged(jobs, self._state.tenants.aging, self._now_ns)
        queues: dict[str, list[Job]] = {}
        for job in jobs:
            queues.setdefault(job.tenant, []).append(job)
        return self._merged(queues) if len(queues) > 1 else iter(jobs)

    def took(self, job: Job, hosts: int) -> None:
        """`job` starts on that many hosts."""
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


def by_arrival(state: State, wait: Waits = lambda _: False) -> Iterator[Job]:
    """The queued jobs in the order in which they came."""
    ends = [state.queue[at] for at in (0, -1)] if state.queue else []
    if len({state.jobs[name].priority for name in ends}) <= 1:  # then it is by arrival as well
        return _as_queued(state, wait)
    return iter(sorted(map(state.jobs.__getitem__, state.queue), key=lambda job: job.sequence))


def _as_queued(state: State, wait: Waits) -> Iterator[Job]:
    """One after the other: a decision seldom looks at more than the first few."""
    queue = state.queue
    for part in queue.parts if isinstance(queue, NameList) else (Chunk(queue),):
        yield from map(state.jobs.__getitem__, part[-1:] if wait(part) else part)


def aged(jobs: list[Job], aging: Aging, now_ns: int) -> list[Job]:
    """By priority with what waiting has added, then arrival."""
    return sorted(jobs, key=lambda j: (-priority_of(j, aging, now_ns), j.sequence))


def priority_of(job: Job, aging: Aging | None, now_ns: int) -> int:
    """The job's priority, and `by` more for every `every_s` since it was queued."""
    if aging is None:
        return job.priority
    waited_ns = max(0, now_ns - job.state_ns)
    return job.priority + waited_ns // (aging.every_s * SECOND_NS) * aging.by
