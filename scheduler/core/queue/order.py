"""Orders in which a decision looks at the queue: by arrival, or as a policy has sorted it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from scheduler.core.collections.name_list import Chunk, NameList
from scheduler.core.model.job import Job
from scheduler.core.model.state import State
from scheduler.core.queue.policy import AllWait, QueueContext


class ArrivalOrder:
    """As they came, whatever their priority."""

    is_by_priority = False
    is_stable = True

    def __init__(self, context: QueueContext) -> None:
        self._state = context.state

    def jobs(self, all_wait: AllWait) -> Iterator[Job]:
        return by_arrival(self._state, all_wait)

    def took(self, job: Job, hosts: int) -> None:
        """Nobody else moves."""

    def head(self, started: Collection[str]) -> Job | None:
        return None


class FixedOrder:
    """These jobs, in this order: for policies that sort the queue once a decision."""

    is_by_priority = False
    is_stable = False

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs = tuple(jobs)

    def jobs(self, all_wait: AllWait) -> Iterator[Job]:
        return iter(self._jobs)

    def took(self, job: Job, hosts: int) -> None:
        """Nobody else moves."""

    def head(self, started: Collection[str]) -> Job | None:
        return None


def by_arrival(state: State, all_wait: AllWait = lambda _: False) -> Iterator[Job]:
    """The queued jobs in the order in which they came."""
    ends = [state.queue[at] for at in (0, -1)] if state.queue else []
    if len({state.jobs[name].priority for name in ends}) <= 1:  # then it is by arrival as well
        return as_queued(state, all_wait)
    return iter(sorted(map(state.jobs.__getitem__, state.queue), key=lambda job: job.sequence))


def as_queued(state: State, all_wait: AllWait) -> Iterator[Job]:
    """One after the other: a decision seldom looks at more than the first few."""
    queue, jobs = state.queue, state.jobs
    for part in queue.parts if isinstance(queue, NameList) else (Chunk(queue),):
        for at, name in enumerate(part):
            if at + 1 < len(part) and is_look(at) and all_wait(part):
                yield jobs[part[-1]]
                break
            yield jobs[name]


def is_look(at: int) -> bool:
    """Whether it is worth asking, at this place of neighbours, if all of them wait: at the
    first, and each time twice as many have been looked at, which may have told it."""
    return not at & (at - 1)
