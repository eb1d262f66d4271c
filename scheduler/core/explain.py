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
from scheduler.core.job import Job, JobSpec
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
    free = state.free.bit_count()
    order = queue_order(state, limits.policy)
    first = state.jobs[order[0]]
    if job.needed > free:
        return _short(state, job, free, now_ns, limits)
    if first.name == name:
        return Reason(
            name, Cause.DUE, f"fits on {job.needed} of {free} free hosts", job.needed, free
        )
    return _behind(job, first, free, limits)


def _short(state: State, job: Job, free: int, now_ns: int, limits: Limits) -> Reason:
    start_ns, _ = earliest_start(state, job.needed, free, [], now_ns, limits)
    needs = f"needs {job.needed:,} hosts; {free:,} are free"
    if start_ns == NEVER_NS:
        out = state.unhealthy.bit_count()
        sentence = f"{needs}; {out:,} hosts out of service must come back first"
        return Reason(job.name, Cause.HOSTS, sentence, job.needed, free)
    waits_for = _enders(state, job.needed, free, start_ns, now_ns, limits)
    ending = _list(waits_for)
    wait_s = max(0, start_ns - now_ns) // 1_000_000_000
    sentence = f"{needs}; would start in {_duration(wait_s)} when {ending} at the latest"
    return Reason(job.name, Cause.HOSTS, sentence, job.needed, free, start_ns, waits_for)


def _enders(
    state: State, needed: int, free: int, start_ns: int, now_ns: int, limits: Limits
) -> tuple[str, ...]:
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
    sentence = f"would fit, but {first.name} ({first.needed:,} hosts) is first in the queue; {rule}"
    return Reason(job.name, Cause.BEHIND, sentence, job.needed, free, None, (first.name,))


def _list(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{shown} {'ends' if len(names) == 1 else 'end'}"


def _duration(seconds: int) -> str:
    hours, minutes = seconds // 3600, seconds % 3600 // 60
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min" if minutes else f"{seconds} s"
