"""The step of a running gang on links as they are now, not as they were when it started."""

from __future__ import annotations

from functools import lru_cache
from math import isclose, isfinite

from placement.fabric.tree import Fabric
from placement.objective.check import SAME
from placement.objective.step_time import step_time
from placement.workload.request import Request, StepBound
from scheduler.core.collections.evolve import evolve
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.state import State


def present_step(state: State, job: Job) -> StepBound | None:
    """None where nothing says how long it is, and while the gang stands still. A bound is of the
    links at its start: it is kept where they carry no more since, by what the step shows.

    Cost: nothing unless links or the fabric changed since its start; then a step time, once.
    """
    step = job.step
    if step is None or job.state is not JobState.RUNNING or job.start_ns > state.links_ns:
        return step
    seconds = seconds_now(state.loaded_fabric, job.request, job.hosts)
    if not isfinite(seconds):
        return None
    if isclose(seconds, step.seconds, rel_tol=SAME):
        return step
    return StepBound(seconds, step.least_seconds if seconds > step.seconds else 0.0)


def at_present(state: State, job: Job) -> Job:
    """The same job with this step, for those who show it."""
    step = present_step(state, job)
    return job if step is job.step else evolve(job, step=step)


@lru_cache(maxsize=4_096)
def seconds_now(fabric: Fabric, request: Request, hosts: tuple[int, ...]) -> float:
    """Remembered: readers ask for the same gangs again and again."""
    return step_time(fabric, request, hosts).seconds
