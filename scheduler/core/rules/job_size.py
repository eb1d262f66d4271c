"""How many replicas, hosts and spares a job takes: as it waits, and after a resize."""

from __future__ import annotations

from muster.structs import replace
from placement import legal_sizes
from placement.fabric import hostset
from placement.fabric.constraints import gpus_wanted
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from placement.objective.check import violations
from placement.workload.replicas import sized
from scheduler.core.model.events import GangResized
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.plan import Resize, Stale, StaleReason, stale_job
from scheduler.core.model.state import State
from scheduler.core.rules import memory_copies
from scheduler.core.rules.calendar import Calendar


def fitted(job: Job, fabric: Fabric) -> Job:
    """A job that waits, with its legal sizes on this fabric, at the smallest of them.

    Raises: IndexError where there is none.
    """
    request = job.spec.request
    sizes = legal_sizes(fabric, request, job.spec.min_dp) if job.spec.min_dp else ()
    dp = sizes[0] if sizes else request.parallelism.dp
    gpus = gpus_wanted(fabric, request.where)
    hosts = sized(request, dp).hosts_needed(gpus)
    return replace(
        job,
        part_gpus=(part := sized(request, dp).part_gpus(gpus)),
        host_gpus=gpus if part else 0,
        gang_hosts=hosts,
        needed=hosts + request.spares.required(hosts),
        sizes=sizes,
        dp=dp,
    )


def misfit(state: State, action: Resize, room: HostSet) -> Stale | None:
    """Why the gang cannot be resized so on hosts of `room`; None when it can."""
    job = state.jobs[action.name]
    if job.hosts != action.left:
        return stale_job(action.name, StaleReason.JOB, "its hosts changed meanwhile")
    request = job.at(action.dp).request
    placed = replace(action.placement, step=None)  # see gang_step.py
    wrong = violations(state.loaded_fabric, room, request, placed)
    return stale_job(action.name, StaleReason.HOSTS, wrong[0]) if wrong else None


def is_needless(state: State, action: Resize) -> bool:
    """Whether a running gang would drop replicas though it has to leave none of its hosts."""
    job = state.jobs.get(action.name)
    if job is None or job.state is not JobState.RUNNING or action.dp >= job.dp:
        return False
    left = job.allocation & ~hostset.of(action.placement.hosts)
    return not left & (state.index.unhealthy | Calendar(state).leaving(job)[0])


def resized(
    state: State, job: Job, action: Resize, now_ns: int, preempted_by: str = ""
) -> GangResized:
    """Return the event of a resize."""
    names, placement = state.loaded_fabric.names, action.placement
    return GangResized(
        now_ns,
        action.name,
        job.attempt + 1,
        action.dp,
        names(placement.hosts),
        names(placement.spares),
        placement.cuts,
        placement.lower_bound,
        placement.notes,
        action.reason,
        action.restart_options,
        memory_copies.placed(state, job.at(action.dp), placement.hosts),
        preempted_by,
        placement.step,
    )
