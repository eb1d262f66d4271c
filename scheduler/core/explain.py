"""Why a job waits, and what a job would get: answers that change nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from placement.place import place
from placement.request import Answer
from scheduler.core.decide import (
    NEVER_NS,
    Limits,
    Policy,
    earliest_start,
    queue_order,
    time_limit_ns,
)
from scheduler.core.job import SECOND_NS, Job, JobSpec
from scheduler.core.lifecycle import JobState
from scheduler.core.state import State


class Cause(StrEnum):
    """Why a job is not running."""

    NOT_WAITING = "not_waiting"
    DUE = "due"  # fits; starts with the next decision
    HOSTS = "hosts"  # not enough free hosts
    BEHIND = "behind"  # an earlier job holds the promise


@dataclass(frozen=True, slots=True)
class Reason:
    """Why `name` waits: one sentence, and the facts behind it.

    `start_ns`: the earliest start from the running jobs' limits, None when unknown.
    `waits_for`: running jobs whose ends would make the room, in order.
    """

    name: str
    cause: Cause
    sentence: str
    needed: int = 0
    free: int = 0
    start_ns: int | None = None
    waits_for: tuple[str, ...] = ()


def dry_run(state: State, spec: JobSpec, limits: Limits) -> Answer:
    """What `spec` would get if it started now, alone."""
    return place(state.loaded_fabric, state.free, spec.request, limits.place)


def explain(state: State, name: str, now_ns: int, limits: Limits) -> Reason:
    """Why the job waits. Raises: KeyError when no such job is at hand."""
    job = state.find(name)
    if job is None:
        raise KeyError(name)
    if job.state is not JobState.QUEUED:
        return Reason(name, Cause.NOT_WAITING, f"{name} is {job.state}")
    order = queue_order(state, limits.policy)
    ahead = [state.jobs[other] for other in order[: order.index(name)]]
    free = state.free.bit_count()
    if job.needed > free:
        return _short(state, job, len(ahead), now_ns, limits)
    due, blocker = _due(ahead, free)
    if blocker is not None and not _overtakes(state, job, blocker, due, now_ns, limits):
        return _behind(job, blocker, free, limits)
    room = free - sum(other.needed for other in due)
    if job.needed > room:
        sentence = f"would fit, but {_jobs(len(due))} ahead of it and due leave {_hosts(room)}"
        return Reason(name, Cause.BEHIND, sentence, job.needed, free)
    sentence = f"fits on {job.needed:,} of {_hosts(free)} free; starts with the next decision"
    return Reason(name, Cause.DUE, sentence, job.needed, free)


def _due(ahead: list[Job], free: int) -> tuple[list[Job], Job | None]:
    """Those of `ahead` that start with the next decision, and the first that cannot."""
    for i, job in enumerate(ahead):
        if job.needed > free:
            return ahead[:i], job
        free -= job.needed
    return ahead, None


def _overtakes(
    state: State, job: Job, blocker: Job, due: list[Job], now_ns: int, limits: Limits
) -> bool:
    """Whether `job` may start now without delaying `blocker` (see decide)."""
    room = state.free.bit_count() - sum(other.needed for other in due)
    if limits.policy is Policy.FIFO or job.needed > room:
        return False
    ends = [(now_ns + time_limit_ns(other, limits), other.needed) for other in due]
    start_ns, then = earliest_start(state, blocker.needed, room, ends, now_ns, limits)
    is_short = now_ns + time_limit_ns(job, limits) <= start_ns
    return is_short or job.needed <= then - blocker.needed


def _short(state: State, job: Job, ahead: int, now_ns: int, limits: Limits) -> Reason:
    free = state.free.bit_count()
    start_ns, _ = earliest_start(state, job.needed, free, [], now_ns, limits)
    needs = f"needs {_hosts(job.needed)}; {free:,} {'is' if free == 1 else 'are'} free"
    queue = f"; {_jobs(ahead)} ahead of it" if ahead else ""
    if start_ns == NEVER_NS:
        out = state.unhealthy.bit_count()
        sentence = f"{needs}; of {_hosts(out)} out of service some must come back first{queue}"
        return Reason(job.name, Cause.HOSTS, sentence, job.needed, free)
    waits_for = _enders(state, start_ns, now_ns, limits)
    wait_s = max(0, start_ns - now_ns) // SECOND_NS
    is_stated = all(state.jobs[other].spec.time_limit_s is not None for other in waits_for)
    limit = f"by {'stated' if is_stated else 'assumed'} limits"
    sentence = f"{needs}; {_list(waits_for)} in {_duration(wait_s)} {limit}{queue}"
    return Reason(job.name, Cause.HOSTS, sentence, job.needed, free, start_ns, waits_for)


def _enders(state: State, start_ns: int, now_ns: int, limits: Limits) -> tuple[str, ...]:
    """Running jobs that end by `start_ns`, in the order of their ends."""
    ends = sorted(
        (max(j.start_ns + time_limit_ns(j, limits), now_ns + 1), j.name)
        for j in state.in_state(JobState.RUNNING, JobState.INTERRUPTED)
    )
    return tuple(name for end, name in ends if end <= start_ns)


def _behind(job: Job, first: Job, free: int, limits: Limits) -> Reason:
    rule = (
        "nobody overtakes under fifo"
        if limits.policy is Policy.FIFO
        else "starting now would delay it"
    )
    sentence = f"would fit, but {first.name} ({_hosts(first.needed)}) is ahead of it; {rule}"
    return Reason(job.name, Cause.BEHIND, sentence, job.needed, free, None, (first.name,))


def _hosts(count: int) -> str:
    return f"{count:,} host{'' if count == 1 else 's'}"


def _jobs(count: int) -> str:
    return f"{count:,} job{'' if count == 1 else 's'}"


def _list(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{shown} {'ends' if len(names) == 1 else 'end'}"


def _duration(seconds: int) -> str:
    hours, minutes = seconds // 3600, seconds % 3600 // 60
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min" if minutes else f"{seconds} s"
