"""Orders in which a decision looks at the queue: by arrival, or as a policy has sorted it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from scheduler.core.collections.name_list import Chunk, NameList
from scheduler.core.model.job import Job
from scheduler.core.model.state import State
from scheduler.core.queue.policy import AllWait, QueueContext, ask_all


class ArrivalOrder:
    """Jobs in the order in which they came, whatever their priority."""

    is_by_priority = False

    def __init__(self, context: QueueContext) -> None:
        self._state = context.state

    def key(self, job: Job) -> tuple[int, ...]:
        return (job.sequence,)

    def jobs(self, all_wait: AllWait) -> Iterator[Job]:
        return by_arrival(self._state, all_wait)

    def record_allocation(self, job: Job, hosts: int) -> None:
        """Do nothing: a start moves no other job."""

    def head(self, started: Collection[str]) -> Job | None:
        return None


class FixedOrder:
    """A fixed order of jobs, for policies that sort the queue once a decision."""

    is_by_priority = False
    key: Callable[[Job], tuple[int, ...]] | None = None

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs = tuple(jobs)

    def jobs(self, all_wait: AllWait) -> Iterator[Job]:
        return iter(self._jobs)

    def record_allocation(self, job: Job, hosts: int) -> None:
        """Do nothing: a start moves no other job."""

    def head(self, started: Collection[str]) -> Job | None:
        return None


def by_arrival(state: State, all_wait: AllWait = ask_all) -> Iterator[Job]:
    """The queued jobs in the order in which they came."""
    ends = [state.index.queue[at] for at in (0, -1)] if state.index.queue else []
    if len({state.jobs[name].priority for name in ends}) <= 1:  # then it is by arrival as well
        return as_queued(state, all_wait)
    return iter(
        sorted(map(state.jobs.__getitem__, state.index.queue), key=lambda job: job.sequence)
    )


def as_queued(state: State, all_wait: AllWait) -> Iterator[Job]:
    """Yield the queued jobs one after the other, for a decision seldom looks at more than the first
    few."""
    if all_wait is ask_all:
        yield from map(state.jobs.__getitem__, state.index.queue)
        return
    walk = QueueWalk(_parts(state.index.queue), state.jobs)
    while not walk.is_over:
        walk.passes(all_wait)
        yield walk.head
        walk.advance()


def _parts(queue: Sequence[str]) -> Sequence[Chunk]:
    if isinstance(queue, NameList):
        return queue.parts
    return (Chunk(queue),) if queue else ()


class QueueWalk:
    """A walk along jobs that stay in this order. Mutable.

    `parts`: neighbours among them; neighbours that are a chunk of the queue may be passed over
    together, as a whole or a block of it. None is empty.
    """

    def __init__(self, parts: Sequence[Sequence[str]], jobs: Mapping[str, Job]) -> None:
        self._parts, self._jobs = parts, jobs
        self._part = self._at = 0
        self._looked = 0  # at so many jobs of this part
        self._passed_from: int | None = None  # of this part, those from here to the present one

    @property
    def is_over(self) -> bool:
        return self._part == len(self._parts)

    @property
    def head(self) -> Job:
        return self._jobs[self._parts[self._part][self._at]]

    def advance(self) -> None:
        self._at, self._looked, self._passed_from = self._at + 1, self._looked + 1, None
        if self._at == len(self._parts[self._part]):
            self._part, self._at, self._looked = self._part + 1, 0, 0

    def passes(self, all_wait: AllWait) -> bool:
        """Pass over all but the last job of this part of the queue, or of a block of it, if all of
        them wait as others do; return whether that was so."""
        part = self._parts[self._part]
        if not isinstance(part, Chunk) or self._at + 1 == len(part):
            return False
        if _is_look(self._looked) and all_wait(part, self.head):
            return self._passed_to(len(part) - 1)
        ends = part.block_ends
        if len(ends) == 1:  # which has been asked
            return False
        block = bisect_right(ends, self._at)
        begin, end = ends[block - 1] if block else 0, ends[block]
        if self._at + 1 == end or not _is_look(self._at - begin):
            return False
        return all_wait(part.blocks[block], self.head) and self._passed_to(end - 1)

    def _passed_to(self, at: int) -> bool:
        if self._passed_from is None:
            self._passed_from = self._at
        self._at = at
        return True

    def go_back(self, started: Any, key: Callable[[Job], Any]) -> None:
        """Go back to the first of the jobs that were passed over, behind the job that has started,
        whose key is equal to that job's."""
        if self._passed_from is not None:
            names = self._parts[self._part]
            low, high = self._passed_from, self._at
            self._at = bisect_left(
                names, started, low, high, key=lambda name: key(self._jobs[name])
            )
            self._passed_from = None


def _is_look(at: int) -> bool:
    """Whether it is worth asking, at this place of neighbours, if all of them wait: at the
    first, and each time twice as many have been looked at, which may have told it."""
    return not at & (at - 1)
