"""The production policy: priority, fair share, arrival; EASY backfill; preemption and loans.

It is the one policy that knows priorities and takes back what is guaranteed to a tenant.

The queue is kept by tenant in order of priority and arrival, so an order is made by merging
a few sorted runs of jobs: one a tenant, and with aging one for each of its priorities, for
of jobs that age at one pace the first stays first. Neighbours that all wait as others
did are passed over together, until a start changes what their tenants are due: then the
jobs behind it are looked at again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import heapify, heappop, heapreplace
from operator import attrgetter
from typing import NamedTuple

from scheduler.core.collections.name_list import Chunk
from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.model.state import State
from scheduler.core.policies.tenants import Tenants
from scheduler.core.queue.order import QueueWalk, as_queued
from scheduler.core.queue.policies.easy import Easy
from scheduler.core.queue.policy import AllWait, QueueContext, QueuePolicy
from scheduler.core.tenancy.fair_share import FairShares, Rank

Key = tuple[int, Rank, int]  # of a job: priority, its tenant's rank, arrival


class FairOrder:
    """Priority, then fair share, then arrival.

    A start changes what its tenant is due, so the heap of runs is made anew after it.
    Cost: O(chunks of names) for an order, O(log runs) for each job that is looked at.
    """

    is_by_priority = True

    def __init__(self, context: QueueContext) -> None:
        self._state, self._now_ns = context.state, context.now_ns
        self._quotas = context.quotas
        self._started: tuple[str, int] | None = None
        self._hosts = Counter[str]()  # of those that start in this decision, by tenant

    @property
    def key(self) -> Callable[[Job], tuple[int, ...]] | None:
        is_stable = len(self._state.tenants.tenants) == 1 and self._state.tenants.aging is None
        return attrgetter("order") if is_stable else None

    def jobs(self, all_wait: AllWait) -> Iterator[Job]:
        if self.key:
            return as_queued(self._state, all_wait)
        return self._merged(_runs(self._state, self._now_ns), all_wait)

    def record_allocation(self, job: Job, hosts: int) -> None:
        self._started = (job.tenant, hosts)
        self._hosts[job.tenant] += hosts

    def head(self, started: Collection[str]) -> Job | None:
        """Return the job that the next decision looks at first. Cost: as that of the first job of a
        decision."""
        runs = _runs(self._state, self._now_ns)
        for run in runs:
            while not run.is_over and run.head.name in started:
                run.advance()
        shares = self._shares.holding(self._hosts)
        rank_by_leaf = shares.ranks(_needed_by_leaf(runs, self._state.tenants, self._now_ns))
        heads = (run.head for run in runs if not run.is_over)
        return min(heads, key=lambda job: self._key(job, rank_by_leaf), default=None)

    @cached_property
    def _shares(self) -> FairShares:
        return FairShares(self._state, self._now_ns, self._quotas.book)

    def _key(self, job: Job, rank_by_leaf: Mapping[str, Rank]) -> Key:
        priority = priority_of(job, self._state.tenants, self._now_ns)
        return -priority, rank_by_leaf[job.tenant], job.sequence

    def _merged(self, runs: list[QueueWalk], all_wait: AllWait) -> Iterator[Job]:
        shares = self._shares
        rank_by_leaf: Mapping[str, Rank] = {}

        def key(job: Job) -> Key:
            return self._key(job, rank_by_leaf)

        def entry(at: int) -> tuple[Key, int, Job]:
            head = runs[at].head
            return key(head), at, head

        def heap_of_heads() -> list[tuple[Key, int, Job]]:
            nonlocal rank_by_leaf
            rank_by_leaf = shares.ranks(_needed_by_leaf(runs, self._state.tenants, self._now_ns))
            heap = [entry(at) for at, run in enumerate(runs) if not run.is_over]
            heapify(heap)
            return heap

        heap = heap_of_heads()
        while heap:
            started_key, at, job = heap[0]
            run = runs[at]
            if run.passes(all_wait):
                heapreplace(heap, entry(at))
                continue
            run.advance()
            yield job
            if self._started is not None:
                for each in runs:
                    each.go_back(started_key, key)
                shares.record_allocation(*self._started)
                self._started = None
                heap = heap_of_heads()
            elif run.is_over:
                heappop(heap)
            else:
                heapreplace(heap, entry(at))


class _Sorted(NamedTuple):
    """Names of a chunk in the order of one run. `first_ns`, `last_ns`: since when its first and
    its last wait."""

    names: Sequence[str]
    first_ns: int
    last_ns: int


class _ChunkRuns(NamedTuple):
    """A chunk by priority, and by whether waiting counts. `others`: those that wait for less
    long than one that came after them, for they were requeued."""

    by_kind: Mapping[tuple[int, bool], _Sorted]
    others: Sequence[str]


class _TenantRuns(NamedTuple):
    """The queue of one tenant: each run in its parts, and the jobs that are in none."""

    by_kind: Sequence[Sequence[Sequence[str]]]
    others: Sequence[str]


def _runs(state: State, now_ns: int) -> list[QueueWalk]:
    jobs, tenants = state.jobs, state.tenants
    by_tenant = state.index.queue.by_group(lambda name: jobs[name].tenant)
    if tenants.aging is None:
        return [QueueWalk(names.parts, jobs) for names in by_tenant.values()]
    walks: list[QueueWalk] = []
    for names in by_tenant.values():
        if names.runs is None:
            names.runs = _aging_runs(names.parts, jobs, tenants)
        runs: _TenantRuns = names.runs
        walks += (QueueWalk(parts, jobs) for parts in runs.by_kind)
        if runs.others:
            others = map(jobs.__getitem__, runs.others)
            by_age = sorted(others, key=lambda job: _within(job, tenants, now_ns))
            walks.append(QueueWalk([tuple(job.name for job in by_age)], jobs))
    return walks


def _aging_runs(chunks: Iterable[Chunk], jobs: Mapping[str, Job], tenants: Tenants) -> _TenantRuns:
    """The runs of one tenant's jobs. Who waits for less long than another that came later is in a
    run of those alone, which is sorted: they are few."""
    parts: dict[tuple[int, bool], list[Sequence[str]]] = {}
    since_ns: dict[tuple[int, bool], int] = {}
    others: list[str] = []
    for chunk in chunks:
        runs = _sorted_runs(chunk, jobs, tenants)
        others += runs.others
        for kind, run in runs.by_kind.items():
            if run.first_ns < since_ns.get(kind, run.first_ns):
                others += run.names
                continue
            since_ns[kind] = run.last_ns
            parts.setdefault(kind, []).append(run.names)
    return _TenantRuns(tuple(parts.values()), others)


def _sorted_runs(chunk: Chunk, jobs: Mapping[str, Job], tenants: Tenants) -> _ChunkRuns:
    """Found once: from its blocks, of which the next version has all but one."""
    if chunk.runs is None:
        if len(chunk.blocks) == 1:
            pieces = [_run_of(jobs[name], tenants) for name in chunk]
        else:
            pieces = [_sorted_runs(block, jobs, tenants) for block in chunk.blocks]
        chunk.runs = _join_pieces(chunk, pieces)
    runs: _ChunkRuns = chunk.runs
    return runs


def _run_of(job: Job, tenants: Tenants) -> _ChunkRuns:
    ages = _ages(job, tenants)
    if ages and job.attempt:
        return _ChunkRuns({}, (job.name,))
    since_ns = job.state_ns if ages else 0
    return _ChunkRuns({(job.priority, ages): _Sorted((job.name,), since_ns, since_ns)}, ())


def _join_pieces(chunk: Chunk, pieces: Iterable[_ChunkRuns]) -> _ChunkRuns:
    """The runs of a chunk, of which these are the pieces."""
    names: dict[tuple[int, bool], list[str]] = {}
    ends: dict[tuple[int, bool], tuple[int, int]] = {}
    others: list[str] = []
    for piece in pieces:
        others += piece.others
        for kind, run in piece.by_kind.items():
            first_ns, last_ns = ends.get(kind, (run.first_ns, run.first_ns))
            if run.first_ns < last_ns:
                others += run.names
            else:
                names.setdefault(kind, []).extend(run.names)
                ends[kind] = (first_ns, run.last_ns)
    runs = {
        kind: _Sorted(chunk if len(part) == len(chunk) else Chunk(part), *ends[kind])
        for kind, part in names.items()
    }
    return _ChunkRuns(runs, others)


def _needed_by_leaf(runs: Iterable[QueueWalk], tenants: Tenants, now_ns: int) -> dict[str, int]:
    """How many hosts the next job of each tenant needs."""
    heads: dict[str, Job] = {}
    for run in runs:
        if not run.is_over:
            job = run.head
            first = heads.setdefault(job.tenant, job)
            if first is job:
                continue
            if _within(job, tenants, now_ns) < _within(first, tenants, now_ns):
                heads[job.tenant] = job
    return {leaf: job.needed for leaf, job in heads.items()}


def _within(job: Job, tenants: Tenants, now_ns: int) -> tuple[int, int]:
    """Its place within its tenant."""
    return -priority_of(job, tenants, now_ns), job.sequence


def _ages(job: Job, tenants: Tenants) -> bool:
    return not (job.is_preemptible and tenants.preemption.is_on)


def priority_of(job: Job, tenants: Tenants, now_ns: int) -> int:
    """Return the job's priority, aged by `by` for every `every_s` seconds since it was queued.

    Waiting puts a job that can be preempted before nobody: whoever has a higher priority would
    evict it, or another in its place, in the second in which it starts.
    """
    aging = tenants.aging
    waited_ns = now_ns - job.state_ns
    if aging is None or waited_ns <= 0 or not _ages(job, tenants):
        return job.priority
    return job.priority + waited_ns // (aging.every_s * SECOND_NS) * aging.by


PRODUCTION = QueuePolicy(
    "production", order=FairOrder, backfill=Easy, may_preempt=True, may_borrow=True
)
