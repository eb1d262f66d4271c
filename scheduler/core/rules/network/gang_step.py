"""The step of a gang: what a plan claims is counted again before it is recorded, and what was
recorded follows the links as they change."""

from __future__ import annotations

from functools import lru_cache
from math import isclose, isfinite

from muster.structs import replace, struct
from placement.fabric.tree import Fabric
from placement.objective.check import SAME, step_violations
from placement.objective.step_time import step_time
from placement.workload.request import Placement, Request, StepBound
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.plan import Stale, StaleReason, stale_job
from scheduler.core.model.state import State
from scheduler.core.rules.network.links import fabric_between

# Of smaller gangs the claim is taken: their hosts are a millisecond's work for the writer as
# well, and a decision starts many of them. So a decision adds ten milliseconds at most.
LEAST_HOSTS = 8


def false_step(
    state: State, job: Job, placement: Placement, now_ns: int, end_ns: int
) -> Stale | None:
    """Refuse a wrong step or bound: counted with links as they will be while the gang runs until
    `end_ns`, or, for placers that look at nothing else, as they are now."""
    if placement.step is None or len(placement.hosts) < LEAST_HOSTS:
        return None
    ahead = fabric_between(state, now_ns, max(end_ns, now_ns + 1))
    wrong = step_violations(ahead, job.request, placement)
    if wrong and ahead is not state.loaded_fabric:
        wrong = step_violations(state.loaded_fabric, job.request, placement)
    return stale_job(job.name, StaleReason.STEP, wrong[0]) if wrong else None


def present_step(state: State, job: Job) -> StepBound | None:
    """Return the step of a gang at present links; None where nothing says how long it is, and while
    the gang stands still. A bound is of the links at its start: it is kept where they carry no more
    since, by what the step shows.

    Cost: nothing unless links or the fabric changed since its start; then a step time, once.
    """
    step = job.present.step
    if step is None or job.state is not JobState.RUNNING or job.present.start_ns > state.links_ns:
        return step
    seconds = seconds_now(state.loaded_fabric, job.request, job.hosts)
    if not isfinite(seconds):
        return None
    if isclose(seconds, step.seconds, rel_tol=SAME):
        return step
    return StepBound(seconds, step.least_seconds if seconds > step.seconds else 0.0)


@struct(frozen=True, slots=True)
class LikelyStep:
    """Seconds of a step by the model, and what 8 of 10 such runs take at least and at most."""

    seconds: float
    low_s: float
    high_s: float


def likely_step(state: State, job: Job) -> LikelyStep | None:
    """Return the likely step; None where the gang does not run, or has no model and batch."""
    if job.state is not JobState.RUNNING:
        return None
    return _likely_now(state.loaded_fabric, job.request, job.hosts)


@lru_cache(maxsize=512)
def _likely_now(fabric: Fabric, request: Request, hosts: tuple[int, ...]) -> LikelyStep | None:
    step = step_time(fabric, request, hosts)
    if step.likely_s is None or not isfinite(step.seconds):
        return None
    return LikelyStep(step.seconds, *step.likely_s)


def at_present(state: State, job: Job) -> Job:
    """Return the job with its step at present links, to show it."""
    step = present_step(state, job)
    return job if step is job.present.step else replace(job, gang=replace(job.present, step=step))


@lru_cache(maxsize=512)
def seconds_now(fabric: Fabric, request: Request, hosts: tuple[int, ...]) -> float:
    """Return seconds of a step, from a cache of as many gangs as run at once; each entry keeps its
    fabric."""
    return step_time(fabric, request, hosts).seconds
