"""The step that a plan claims for a placement, counted again before it is recorded."""

from __future__ import annotations

from placement.objective.check import step_violations
from placement.workload.request import Placement
from scheduler.core.model.job import Job
from scheduler.core.model.plan import Stale, StaleReason, stale_job
from scheduler.core.model.state import State
from scheduler.core.rules.links import fabric_between

# Of smaller gangs the claim is taken: their hosts are a millisecond's work for the writer as
# well, and a decision starts many of them. So a decision adds ten milliseconds at most.
LEAST_HOSTS = 8


def false_step(
    state: State, job: Job, placement: Placement, now_ns: int, end_ns: int
) -> Stale | None:
    """What is wrong with the step or its bound: counted with links as they will be while the gang
    runs until `end_ns`, or, for placers that look at nothing else, as they are now."""
    if placement.step is None or len(placement.hosts) < LEAST_HOSTS:
        return None
    ahead = fabric_between(state, now_ns, max(end_ns, now_ns + 1))
    wrong = step_violations(ahead, job.request, placement)
    if wrong and ahead is not state.loaded_fabric:
        wrong = step_violations(state.loaded_fabric, job.request, placement)
    return stale_job(job.name, StaleReason.STEP, wrong[0]) if wrong else None
