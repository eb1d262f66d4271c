"""The production policy: priority, fair share, arrival; EASY backfill; preemption and loans.

It is the one policy that knows priorities and takes back what is guaranteed to a tenant.

The queue is kept by tenant in order of priority and arrival, so an order is made by merging
a few sorted runs of jobs: one a tenant, and with aging one for each of its priorities, for
of jobs that age at one pace the first stays first. A start changes what tenants are due: then the
jobs behind it are looked at again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.policies.tenants import Tenants
from scheduler.core.queue.order import QueueRun, QueueWalk
from scheduler.core.queue.policies.easy import Easy
from scheduler.core.queue.policy import QueueContext, QueuePolicy, Startable
from scheduler.core.tenancy.fair_share import FairShares, Rank
from scheduler.core.tenancy.ownership import QueueRunKey, ages, queue_run, queue_runs

Key = tuple[int, Rank, int]  # of a job: priority, its tenant's rank, arrival


class FairOrder:
    """Priority, then fair share, then arrival.

    A start changes what its tenant is due, so runs are merged anew after it.
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

    def jobs(self, startable: Startable) -> Iterator[Job]:
        return self._walk.jobs(startable, self._new_key)

    def _new_key(self) -> Callable[[Job], Any]:
        if self.key:
            return self.key
        if self._started is not None:
            self._shares.record_allocation(*self._started)
            self._started = None
        return self._key_now(self._walk, self._shares)

    def _key_now(self, walk: QueueWalk, shares: FairShares) -> Callable[[Job], Key]:
        """Return the key by what tenants are due with these shares."""
        needed = _needed_by_leaf(walk.runs.values(), self._state.tenants, self._now_ns)
        return partial(self._key, rank_by_leaf=shares.ranks(needed))

    def record_allocation(self, job: Job, hosts: int) -> None:
        self._started, self._walk.has_started = (job.tenant, hosts), True
        self._hosts[job.tenant] += hosts

    def head(self, started: Collection[str]) -> Job | None:
        """Return the job that the next decision looks at first. Cost: as that of the first job of a
        decision."""
        walk = self._new_walk()
        for run in walk.runs.values():
            while not run.is_over and run.head.name in started:
                run.advance()
        heads = (run.head for run in walk.runs.values() if not run.is_over)
        return min(heads, key=self._key_now(walk, self._shares.holding(self._hosts)), default=None)

    @cached_property
    def _walk(self) -> QueueWalk:
        return self._new_walk()

    def _new_walk(self) -> QueueWalk:
        state, tenants, jobs = self._state, self._state.tenants, self._state.jobs
        if self.key:
            return QueueWalk(jobs, {None: state.index.queue}, is_by_priority=True)
        runs: dict[QueueRunKey, Sequence[str]] = dict(queue_runs(state).items())
        for run in [run for run in runs if run.is_unsorted]:
            runs[run] = sorted(
                runs[run], key=lambda name: _within(jobs[name], tenants, self._now_ns)
            )
        return QueueWalk(
            jobs, runs, is_by_priority=True, run_of=partial(queue_run, tenants=tenants)
        )

    @cached_property
    def _shares(self) -> FairShares:
        return FairShares(self._state, self._now_ns, self._quotas.book)

    def _key(self, job: Job, rank_by_leaf: Mapping[str, Rank]) -> Key:
        priority = priority_of(job, self._state.tenants, self._now_ns)
        return -priority, rank_by_leaf[job.tenant], job.sequence


def _needed_by_leaf(runs: Iterable[QueueRun], tenants: Tenants, now_ns: int) -> dict[str, int]:
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


def priority_of(job: Job, tenants: Tenants, now_ns: int) -> int:
    """Return the job's priority, aged by `by` for every `every_s` seconds since it was queued.

    Waiting puts a job that can be preempted before nobody: whoever has a higher priority would
    evict it, or another in its place, in the second in which it starts.
    """
    aging = tenants.aging
    waited_ns = now_ns - job.state_ns
    if aging is None or waited_ns <= 0 or not ages(job, tenants):
        return job.priority
    return job.priority + waited_ns // (aging.every_s * SECOND_NS) * aging.by


PRODUCTION = QueuePolicy(
    "production", order=FairOrder, backfill=Easy, may_preempt=True, may_borrow=True
)
