"""Orders in which a decision looks at the queue: by arrival, or as a policy has sorted it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import heapify, heappop, heappush, merge
from typing import Any

from scheduler.core.collections.name_list import NameList
from scheduler.core.model.job import Job
from scheduler.core.model.state import State, WaitingSize
from scheduler.core.queue.policy import QueueContext, Startable

Key = Callable[[Job], Any]


class FixedOrder:
    """A fixed order of jobs, for policies that sort the queue once a decision."""

    is_by_priority = False
    key: Callable[[Job], tuple[int, ...]] | None = None

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs = tuple(jobs)

    def jobs(self, startable: Startable) -> Iterator[Job]:
        return iter(self._jobs)

    def record_allocation(self, job: Job, hosts: int) -> None:
        """Do nothing: a start moves no other job."""

    def head(self, started: Collection[str]) -> Job | None:
        return None


class ArrivalOrder:
    """Jobs in the order in which they came, whatever their priority."""

    is_by_priority = False

    def __init__(self, context: QueueContext) -> None:
        self._state = context.state

    @cached_property
    def _walk(self) -> QueueWalk:
        return QueueWalk(self._state.jobs, {None: _by_arrival(self._state)})

    def key(self, job: Job) -> tuple[int, ...]:
        return (job.sequence,)

    def jobs(self, startable: Startable) -> Iterator[Job]:
        return self._walk.jobs(startable, lambda: self.key)

    def record_allocation(self, job: Job, hosts: int) -> None:
        self._walk.has_started = True

    def head(self, started: Collection[str]) -> Job | None:
        return None


def by_arrival(state: State) -> Iterator[Job]:
    """The queued jobs in the order in which they came."""
    return map(state.jobs.__getitem__, _by_arrival(state))


def _by_arrival(state: State) -> Sequence[str]:
    queue, jobs = state.index.queue, state.jobs
    ends = [queue[at] for at in (0, -1)] if queue else []
    if len({jobs[name].priority for name in ends}) <= 1:  # then it is by arrival as well
        return queue
    return sorted(queue, key=lambda name: jobs[name].sequence)


class QueueRun:
    """Names of jobs that stay in this order, and how far a walk has come. Mutable."""

    def __init__(self, names: Sequence[str], jobs: Mapping[str, Job]) -> None:
        self._parts = names.parts if isinstance(names, NameList) else (names,) if names else ()
        self._jobs, self._part, self._at = jobs, 0, 0

    @property
    def is_over(self) -> bool:
        return self._part == len(self._parts)

    @property
    def head(self) -> Job:
        return self._jobs[self._parts[self._part][self._at]]

    def advance(self) -> None:
        self._at += 1
        if self._at == len(self._parts[self._part]):
            self._part, self._at = self._part + 1, 0

    def end(self) -> None:
        self._part = len(self._parts)

    def go_behind(self, place: Any, key: Key) -> None:
        """Go to the first job, of those that are left, whose key is greater than `place`."""
        if self.is_over or key(self.head) > place:
            return
        jobs, parts, part = self._jobs, self._parts, self._part
        self._part = bisect_right(parts, place, part, key=lambda names: key(jobs[names[-1]]))
        self._at = self._at if self._part == part else 0
        if not self.is_over:
            names = parts[self._part]
            self._at = bisect_right(names, place, self._at, key=lambda name: key(jobs[name]))


class QueueWalk:
    """A walk along runs of the queue, merged by a key. Mutable.

    `run_of`: the run of a job; needed where there are several. `is_by_priority`: whether runs are
    in order of priority, then of arrival, or of arrival alone. `has_started`: to be set when the
    job that was yielded last starts, which may change the key.
    """

    def __init__(
        self,
        jobs: Mapping[str, Job],
        runs: Mapping[Any, Sequence[str]],
        *,
        is_by_priority: bool = False,
        run_of: Callable[[Job], Hashable] = lambda _: None,
    ) -> None:
        self.runs = {run: QueueRun(names, jobs) for run, names in runs.items()}
        self._jobs, self._run_of, self._is_by_priority = jobs, run_of, is_by_priority
        self.has_started = False

    def jobs(self, startable: Startable, new_key: Callable[[], Key]) -> Iterator[Job]:
        """Yield the jobs, next one first, or of those that are left only those that may start.
        `new_key`: makes the key anew, at first and after each start. Cost: O(runs) for each start,
        O(log runs) for each job."""
        while heads := [(at, run) for at, run in enumerate(self.runs.values()) if not run.is_over]:
            key, self.has_started = new_key(), False
            heap = [(key(run.head), at, run) for at, run in heads]
            heapify(heap)
            while heap and not self.has_started:
                if (kinds := startable()) is not None:
                    yield from self._few(kinds, key)
                    break
                _, at, run = heappop(heap)
                job = run.head
                run.advance()
                yield job
                if not run.is_over:
                    heappush(heap, (key(run.head), at, run))

    def _few(self, kinds: Iterable[Sequence[WaitingSize]], key: Key) -> Iterator[Job]:
        """Yield those of these jobs that are left, until one starts."""
        for job in merge(*(self._left(sizes, key) for sizes in kinds), key=key):
            yield job
            if self.has_started:
                place = key(job)
                for run in self.runs.values():
                    run.go_behind(place, key)
                return
        for run in self.runs.values():
            run.end()

    def _left(self, sizes: Sequence[WaitingSize], key: Key) -> Iterator[Job]:
        """Yield the jobs of a kind that are left of its run, next one first."""
        jobs, job = self._jobs, self._jobs[sizes[0][-1]]
        run = self.runs[self._run_of(job)]
        if run.is_over:
            return
        head = run.head
        if sizes[0][0][4] or not sizes[0][1]:  # waiting may have changed their order
            ordered = sorted((key(jobs[size[-1]]), size[-1]) for size in sizes)
            yield from (jobs[name] for place, name in ordered if place >= key(head))
            return
        least = head.sequence
        if self._is_by_priority and job.priority != head.priority:
            least = 0 if job.priority < head.priority else 1 << 62
        left = [size[3:] for size in sizes if size[3] >= least]
        heapify(left)
        while left:
            yield jobs[heappop(left)[1]]
