"""Who waits as others before it do: long queues are mostly of such jobs.

Jobs of one kind are left the same hosts by a decision, so of these a larger one waits as a
smaller one did, up to a size beyond which another limit may be for it. Where neighbours in the
queue all wait so, they are passed over together: a decision does not look at each of twenty
thousand.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain

from scheduler.core.collections.name_list import Chunk, NameList
from scheduler.core.model.job import Job


class EquivalenceCache:
    """Sizes of jobs known to wait in this decision, by kind, until somebody takes hosts."""

    def __init__(self) -> None:
        self._sizes: dict[Hashable, tuple[int, int]] = {}

    def has(self, needed: int, kind: Hashable) -> bool:
        """Whether a job of `kind` that needs so many hosts waits, as far as is known."""
        sizes = self._sizes.get(kind)
        return sizes is not None and sizes[0] <= needed <= sizes[1]

    def add(self, kind: Hashable, least: int, most: int) -> None:
        """Note that jobs of `kind` wait that need so many hosts."""
        self._sizes[kind] = (least, most)

    def clear(self) -> None:
        self._sizes.clear()


def outermost(part: Chunk, jobs: Mapping[str, Job], parted_ns: int | None) -> tuple[Job, ...]:
    """Return the jobs of `part` of which all must wait for all of `part` to wait; elastic jobs all
    belong to them. `parted_ns`: a time limit that parts jobs of two kinds, those with at most this
    limit from the others; None: no such limit is known. The summary of a part is computed once:
    O(part log part), then O(log part)."""
    in_part = _outermost(part, jobs)
    return in_part.all if parted_ns is None else in_part.split_at(parted_ns)


def has_strikes(names: NameList, jobs: Mapping[str, Job]) -> bool:
    """Whether a host has stopped one of them. Found once for a list."""
    if names.cached is None:
        names.cached = any(_outermost(part, jobs).has_strikes for part in names.parts)
    return bool(names.cached)


def _outermost(part: Chunk, jobs: Mapping[str, Job]) -> _Outermost:
    if part.cached is None:
        part.cached = _summarise_chunk(part, jobs)
    in_part: _Outermost = part.cached
    return in_part


def _summarise_chunk(part: Chunk, jobs: Mapping[str, Job]) -> _Outermost:
    """From what is known of its blocks, of which the next version has all but one."""
    if len(part.blocks) == 1:
        return _Outermost(map(jobs.__getitem__, part))
    inner = [_outermost(block, jobs) for block in part.blocks]
    return _Outermost(chain.from_iterable(block.corners for block in inner), inner)


class _Outermost:
    """Extreme jobs among queue neighbours: by likeness, their time limits and sizes. `inner`: the
    same of parts of them, whose corners `jobs` are."""

    def __init__(self, jobs: Iterable[Job], inner: Sequence[_Outermost] = ()) -> None:
        alike: dict[Hashable, list[Job]] = {}
        self._inner = inner
        self._elastic: list[Job] = []
        for job in jobs:
            if job.sizes:
                self._elastic.append(job)
            else:
                alike.setdefault((job.likeness, job.limit_ns is None), []).append(job)
        self._alike = alike
        firsts = (of_kind[0] for of_kind in alike.values())
        self.has_strikes = any(job.strikes for job in (*self._elastic, *firsts))

    @cached_property
    def _steps(self) -> list[_Steps]:
        return [_Steps(of_kind) for of_kind in self._alike.values()]

    @property
    def corners(self) -> Iterator[Job]:
        """The jobs of which `beside` gives some, whatever the time limit."""
        return chain(self._elastic, chain.from_iterable(step.corners for step in self._steps))

    @cached_property
    def all(self) -> tuple[Job, ...]:
        """The jobs with the shortest and with the longest time limit of each size and kind."""
        if self._inner:
            return _Outermost(chain.from_iterable(part.all for part in self._inner)).all
        ends: dict[Hashable, tuple[Job, Job]] = {}
        for kind, jobs in self._alike.items():
            for job in jobs:
                key, limit_ns = (kind, job.needed), job.limit_ns or 0
                shortest, longest = ends.get(key, (job, job))
                if limit_ns < (shortest.limit_ns or 0):
                    ends[key] = (job, longest)
                elif limit_ns > (longest.limit_ns or 0) or key not in ends:
                    ends[key] = (shortest, job)
        return (*self._elastic, *chain.from_iterable(ends.values()))

    def split_at(self, limit_ns: int) -> tuple[Job, ...]:
        """The smallest and the largest of the jobs of each kind whose time limit is at most
        `limit_ns`, and of the others: between them others wait as well."""
        return (*self._elastic, *chain.from_iterable(s.split_at(limit_ns) for s in self._steps))


class _Steps:
    """The smallest and the largest of some jobs up to each time limit, and from each on."""

    def __init__(self, jobs: list[Job]) -> None:
        by_limit = sorted([(job.limit_ns or 0, job.needed, at) for at, job in enumerate(jobs)])
        self._jobs = jobs
        self._up_to = _stairs(by_limit, 1)
        by_limit.reverse()
        self._beyond = _stairs(by_limit, -1)

    @property
    def corners(self) -> list[Job]:
        """Return the corners in queue order."""
        stairs = (*self._up_to, *self._beyond)
        return [self._jobs[at] for at in sorted({at for _, places in stairs for at in places})]

    def split_at(self, limit_ns: int) -> Iterator[Job]:
        for limits, places in self._up_to:
            if count := bisect_right(limits, limit_ns):
                yield self._jobs[places[count - 1]]
        for limits, places in self._beyond:
            if count := bisect_left(limits, -limit_ns):
                yield self._jobs[places[count - 1]]


def _stairs(
    by_limit: Iterable[tuple[int, int, int]], way: int
) -> tuple[tuple[list[int], list[int]], tuple[list[int], list[int]]]:
    """The limits, times `way`, and the places at which a job needs less than all before it, and
    at which one needs more."""
    less_limits, less_places, least = list[int](), list[int](), 1 << 62
    more_limits, more_places, most = list[int](), list[int](), -1
    for limit_ns, needed, place in by_limit:
        if needed < least:
            least = needed
            less_limits.append(way * limit_ns)
            less_places.append(place)
        if needed > most:
            most = needed
            more_limits.append(way * limit_ns)
            more_places.append(place)
    return (less_limits, less_places), (more_limits, more_places)
