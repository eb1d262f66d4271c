"""FIFO, EASY and conservative backfill as published, on a machine of equal processors.

Written from the definitions alone and for reading, not for speed; the scheduler's own
start times are compared with these, job by job. Nothing of muster is imported.

EASY: Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995. Both backfills: Mu'alem and
Feitelson, "Utilization, predictability, workloads, and user runtime estimates in
scheduling the IBM SP2 with backfilling", TPDS 12(6), 2001, section 2.

At one instant, ends come first, then arrivals, then scheduling, until nothing changes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush


@dataclass(frozen=True)
class Job:
    """Times in seconds. `estimate`: what its owner stated; under conservative at least `run`."""

    name: str
    submit: int
    run: int
    estimate: int
    size: int


@dataclass
class Machine:
    """A machine of equal processors. `running`: (estimated end, size) by name; `waiting`: jobs in
    order of arrival."""

    size: int
    now: int = 0
    running: dict[str, tuple[int, int]] = field(default_factory=dict)
    waiting: list[Job] = field(default_factory=list)
    reserved: dict[str, int] = field(default_factory=dict)

    @property
    def free(self) -> int:
        return self.size - sum(size for _, size in self.running.values())


def schedule(
    jobs: Sequence[Job], processors: int, policy: Callable[[Machine], Iterator[Job]]
) -> dict[str, int]:
    """Start time of every job. `policy` yields the jobs to start now."""
    machine, starts = Machine(processors), {}
    arrivals = sorted(jobs, key=lambda job: job.submit)  # stable: ties as given
    ends: list[tuple[int, str]] = []
    at = 0
    while at < len(arrivals) or ends:
        times = [job.submit for job in arrivals[at : at + 1]] + [end for end, _ in ends[:1]]
        machine.now = min(times)
        while ends and ends[0][0] == machine.now:
            del machine.running[heappop(ends)[1]]
        while at < len(arrivals) and arrivals[at].submit == machine.now:
            machine.waiting.append(arrivals[at])
            at += 1
        for job in policy(machine):
            starts[job.name] = machine.now
            heappush(ends, (machine.now + job.run, job.name))
        heapify(ends)
    return starts


def _start(machine: Machine, job: Job) -> Job:
    machine.waiting.remove(job)
    machine.running[job.name] = (machine.now + job.estimate, job.size)
    machine.reserved.pop(job.name, None)
    return job


def fifo(machine: Machine) -> Iterator[Job]:
    """Whoever came first starts first."""
    while machine.waiting and machine.waiting[0].size <= machine.free:
        yield _start(machine, machine.waiting[0])


def easy(machine: Machine) -> Iterator[Job]:
    """Start what fits from the front. For the first that does not, find the shadow time,
    when enough processors will be free, and the extra ones that it leaves then; the rest
    backfills if it ends by the shadow time or uses no more than the extra processors."""
    yield from fifo(machine)
    if not machine.waiting:
        return
    first = machine.waiting[0]
    shadow, free_then = machine.now, machine.free
    ends = [(_expected_end(end, machine.now), size) for end, size in machine.running.values()]
    for end, size in sorted(ends):
        if free_then >= first.size and end > shadow:
            break
        shadow, free_then = end, free_then + size
    extra = free_then - first.size
    for job in machine.waiting[1:]:
        ends_in_time = machine.now + job.estimate <= shadow
        if job.size <= machine.free and (ends_in_time or job.size <= extra):
            if not ends_in_time:
                extra -= job.size
            yield _start(machine, job)


def _expected_end(estimated: int, now: int) -> int:
    """A job that has outrun its estimate is given a minute more, then two, four and so on; the
    definitions do not say what becomes of it."""
    step = 0
    while estimated + step <= now:
        step = 2 * step or 60
    return estimated + step


def conservative(machine: Machine) -> Iterator[Job]:
    """Everybody has a reservation. In order of arrival each gives its own up and takes
    the earliest anchor point that the others' leave; it starts when that is now."""
    has_changed = True
    while has_changed:
        has_changed = False
        for job in list(machine.waiting):
            machine_reserved = machine.reserved.pop(job.name, None)
            anchor = next(t for t in _anchors(machine) if _fits(machine, job, t))
            if anchor == machine.now:
                has_changed = True
                yield _start(machine, job)
            else:
                has_changed |= anchor != machine_reserved
                machine.reserved[job.name] = anchor


def _anchors(machine: Machine) -> list[int]:
    """Moments at which processors become free."""
    by_name = {job.name: job for job in machine.waiting}
    reserved = [start + by_name[name].estimate for name, start in machine.reserved.items()]
    return sorted({machine.now, *(end for end, _ in machine.running.values()), *reserved})


def _fits(machine: Machine, job: Job, start: int) -> bool:
    """Whether `job` has its processors from `start` to its estimated end."""
    spans = [(machine.now, end, size) for end, size in machine.running.values()]
    for other in machine.waiting:
        if (begin := machine.reserved.get(other.name)) is not None:
            spans.append((begin, begin + other.estimate, other.size))
    end = start + job.estimate
    moments = [start, *(begin for begin, _, _ in spans if start < begin < end)]
    return all(
        sum(size for begin, stop, size in spans if begin <= moment < stop) + job.size
        <= machine.size
        for moment in moments
    )
