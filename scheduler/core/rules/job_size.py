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
from scheduler.core.model.job import Job, JobSpec
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.plan import Resize, Stale, StaleReason, stale_job
from scheduler.core.model.state import State
from scheduler.core.policies.job_terms import RoleRestart
from scheduler.core.rules import memory_copies
from scheduler.core.rules.calendar import Calendar


def sized_for_fabric(job: Job, fabric: Fabric) -> Job:
    """Return a waiting job with its legal sizes on this fabric, at the smallest of them.

    Raises: IndexError where there is none.
    """
    request = job.spec.request
    sizes = legal_sizes(fabric, request, job.spec.min_dp) if job.spec.min_dp else ()
    dp = sizes[0] if sizes else request.replicas
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


def job_after(state: State, job: Job, action: Resize) -> Job:
    """Return the job as a resize leaves it, but for its hosts."""
    if action.spec is None:
        return job.at(action.dp)
    return sized_as(state, job, action.spec, action.dp)


def sized_as(state: State, job: Job, spec: JobSpec, dp: int) -> Job:
    """Return the job with another specification, which says other sizes, at one of them."""
    return sized_for_fabric(replace(job, spec=spec), state.loaded_fabric).at(dp)


def may_keep_other_roles(before: Job, after: Job) -> bool:
    """Whether all roles of a gang but the last one can run on when that one is resized."""
    run, others = before.spec.run, before.request.roles[:-1]
    if run is None or not others or run.roles[-1].restart is not RoleRestart.ROLE:
        return False
    if before.state is not JobState.RUNNING or before.present.launched_ns is None:
        return False
    return others == after.request.roles[:-1]


def keeps_other_roles(before: Job, after: Job, hosts: tuple[int, ...]) -> bool:
    """Whether all roles of a gang but the last one run on when that one is resized so that the gang
    lies on `hosts`: they stay where they are, and so does the first host of the last role, by which
    the others know it."""
    stays = before.hosts_at(0) + 1
    return may_keep_other_roles(before, after) and before.hosts[:stays] == hosts[:stays]


def misfit(state: State, action: Resize, room: HostSet) -> Stale | None:
    """Return why the gang cannot be resized to these hosts of `room`; None when it can."""
    job = state.jobs[action.name]
    if job.hosts != action.left:
        return stale_job(action.name, StaleReason.JOB, "its hosts changed meanwhile")
    request = job_after(state, job, action).request
    placed = replace(action.placement, step=None)  # see gang_step.py
    wrong = violations(state.loaded_fabric, room, request, placed)
    return stale_job(action.name, StaleReason.HOSTS, wrong[0]) if wrong else None


def is_needless(state: State, action: Resize) -> bool:
    """Return whether a running gang would drop replicas although it has to leave none of its
    hosts."""
    job = state.jobs.get(action.name)
    if job is None or job.state is not JobState.RUNNING or action.dp >= job.dp or action.spec:
        return False
    left = job.allocation & ~hostset.of(action.placement.hosts)
    return not left & (state.index.unhealthy | Calendar(state).leaving(job)[0])


def resized(
    state: State, job: Job, action: Resize, now_ns: int, preempted_by: str = ""
) -> GangResized:
    """Return the event of a resize."""
    names, placement = state.loaded_fabric.names, action.placement
    after = job_after(state, job, action)
    return GangResized(
        now_ns,
        action.name,
        job.attempt + (0 if keeps_other_roles(job, after, placement.hosts) else 1),
        action.dp,
        names(placement.hosts),
        names(placement.spares),
        placement.cuts,
        placement.lower_bound,
        placement.notes,
        action.reason,
        action.restart_options,
        memory_copies.placed(state, after, placement.hosts),
        preempted_by,
        placement.step,
        action.spec,
        action.request_id,
    )
