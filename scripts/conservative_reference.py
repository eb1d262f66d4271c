"""Conservative backfill as published, for logs with long queues; written for speed.

The schedule is a step function of free processors over time, into which every job is booked. It
follows the same definition as `backfill_reference.conservative`, which looks at every pair of
reservations for every job and is held to be the plainer of the two: a test compares both. One
thing is used beyond the definition: where no job ended before its estimated end, processors have
only been booked since the last instant, so no reservation can move forward, and only those that
are due and jobs that arrive need a look. Nothing of muster is imported.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np

from scripts.backfill_reference import Job

FOREVER = np.iinfo(np.int64).max


class Profile:
    """Free processors over time: `free[i]` of them from `times[i]` until `times[i + 1]`."""

    def __init__(self, processors: int) -> None:
        self.times = np.array([0, FOREVER], dtype=np.int64)
        self.free = np.array([processors], dtype=np.int64)

    def forget(self, now: int) -> None:
        """Drop what is over."""
        first = int(np.searchsorted(self.times, now, side="right")) - 1
        self.times, self.free = self.times[first:].copy(), self.free[first:]
        self.times[0] = now

    def book(self, start: int, end: int, size: int) -> None:
        """Take `size` processors from `start` to `end`; a negative size gives them back."""
        if start < end:
            first, last = self._cut(start), self._cut(end)
            self.free[first:last] -= size

    def _cut(self, moment: int) -> int:
        """The step that begins at `moment`."""
        at = int(np.searchsorted(self.times, moment))
        if self.times[at] != moment:
            self.times = np.insert(self.times, at, moment)
            self.free = np.insert(self.free, at, self.free[at - 1])
        return at

    def earliest(self, size: int, lasts: int) -> int:
        """The first moment from which `size` processors are free for so long: the first one, or
        one at which too few end, with enough time until too few begin again."""
        (short,) = np.nonzero(self.free < size)
        starts = np.concatenate((self.times[:1], self.times[short + 1]))
        until = np.append(self.times[short], FOREVER)
        return int(starts[np.argmax(until - starts >= lasts)])


class Schedule:
    """Starts and reservations of jobs, as they are at the present instant."""

    def __init__(self, processors: int) -> None:
        self.starts: dict[str, int] = {}
        self.ends: list[tuple[int, str]] = []
        self._profile = Profile(processors)
        self._running: dict[str, tuple[int, int]] = {}  # estimated end, processors
        self._waiting: dict[str, Job] = {}  # in order of arrival
        self._reserved: dict[str, int] = {}

    def advance(self, now: int, arrivals: Sequence[Job]) -> None:
        self._profile.forget(now)
        has_room = False
        while self.ends and self.ends[0][0] == now:
            end, size = self._running.pop(heappop(self.ends)[1])
            self._profile.book(now, end, -size)
            has_room |= now < end
        if has_room:
            self._waiting |= {job.name: job for job in arrivals}
            while self._compress(now):
                pass
        else:
            for job in [j for j in self._waiting.values() if self._reserved[j.name] == now]:
                self._start(job, now)
            for job in arrivals:
                self._waiting[job.name] = job
                self._reserve(job, now)

    def _compress(self, now: int) -> bool:
        """Give every waiting job the earliest time that it can have; whether one moved."""
        has_moved = False
        for job in list(self._waiting.values()):
            if (before := self._reserved.pop(job.name, None)) is not None:
                self._profile.book(before, before + job.estimate, -job.size)
            has_moved |= self._reserve(job, now) != before
        return has_moved

    def _reserve(self, job: Job, now: int) -> int:
        at = self._profile.earliest(job.size, job.estimate)
        self._profile.book(at, at + job.estimate, job.size)
        self._reserved[job.name] = at
        if at == now:
            self._start(job, now)
        return at

    def _start(self, job: Job, now: int) -> None:
        del self._waiting[job.name], self._reserved[job.name]
        self._running[job.name] = now + job.estimate, job.size
        self.starts[job.name] = now
        heappush(self.ends, (now + job.run, job.name))


def schedule(jobs: Sequence[Job], processors: int) -> dict[str, int]:
    """Start time of every job."""
    by_arrival = sorted(jobs, key=lambda job: job.submit)  # stable: ties as given
    plan, at = Schedule(processors), 0
    while at < len(by_arrival) or plan.ends:
        now = min(
            [job.submit for job in by_arrival[at : at + 1]] + [end for end, _ in plan.ends[:1]]
        )
        first = at
        while at < len(by_arrival) and by_arrival[at].submit == now:
            at += 1
        plan.advance(now, by_arrival[first:at])
    return plan.starts
