"""Resizing of a running gang, or of one of its roles, to the replicas that its owner asks for.

The job's file says that number from here on. Replicas that go are the last ones; those that stay
keep their hosts, and new ones take hosts that no waiting job is foreseen to start on. See
rules/job_size.py `keeps_other_roles` for who runs on meanwhile.
"""

from __future__ import annotations

from functools import partial

from muster.structs import replace
from placement import NEW, BadInput, carried, on_hosts
from placement.fabric import hostset
from placement.fabric.constraints import gpus_wanted
from placement.fabric.hostset import HostSet
from placement.workload.replicas import check_batch, sized
from placement.workload.request import GangRole, Placement, Request
from placement.workload.roles import request_of_roles
from scheduler.core.admission.etag import job_of
from scheduler.core.admission.idempotency import earlier
from scheduler.core.capacity.grow import lacking_hosts, place_resized
from scheduler.core.capacity.placer import make_placer
from scheduler.core.commit.commit import Conflict, commit
from scheduler.core.model.commands import ResizeJob
from scheduler.core.model.events import Event, JobUpdated, RequestAnswered
from scheduler.core.model.job import Job, JobSpec
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.plan import Plan, Resize
from scheduler.core.model.rejected import Code, Rejected, invalid, no_job
from scheduler.core.model.scheduling_options import SchedulingOptions, time_limit_ns
from scheduler.core.model.state import State
from scheduler.core.queue.cycle import SchedulingCycle
from scheduler.core.rules.job_size import sized_as
from scheduler.core.tenancy.entitlement import impossible
from scheduler.core.wording import hosts_text


def plan_resize(
    state: State, wanted: ResizeJob, now_ns: int, options: SchedulingOptions
) -> Resize | Rejected:
    """Plan the resize that is asked for, or refuse it. Cost: a decision, and one `place`."""
    job = state.find(wanted.name, wanted.uid)
    if job is None:
        return no_job(wanted.name, wanted.uid)
    if job.state is not JobState.RUNNING:
        text = f"job {job.name} is {job.state}: a gang that runs is resized"
        return Rejected(Code.PRECONDITION, text)
    if wanted.dp < 1:
        return invalid("dp", f"must be at least 1, is {wanted.dp}")
    try:
        before = _part(job.request, wanted.role).parallelism.dp
        spec, dp = _resized_spec(job, wanted)
        if never := impossible(state.loaded_fabric, spec):
            return Rejected(Code.INFEASIBLE, never.reason)
        after = sized_as(state, job, spec, dp)
    except BadInput as error:
        return invalid("dp" if error.field != "role" else "role", error.message)
    if (after.sizes and dp not in after.sizes) or not after.gang_hosts:
        return invalid("dp", f"{dp:,} replicas do not fill whole hosts, or do not suit the batch")
    more = lacking_hosts(after, job)
    end_ns = now_ns + time_limit_ns(after, options)
    hosts, most = _room(state, job, end_ns, now_ns, options) if more else (0, 0)
    if more > most:
        text = f"needs {hosts_text(more)} more, and {most:,} are free that no job waits for"
        return Rejected(Code.INFEASIBLE, f"job {job.name} {text}")
    kept = [*range(min(before, wanted.dp)), *[NEW] * (wanted.dp - before)]
    placement = _placed(state, job, after, kept, hosts, most, options)
    if placement is None:
        text = "fits no hosts that are free, with its constraints"
        return Rejected(Code.INFEASIBLE, f"job {job.name} {text}")
    whose = f"role {wanted.role}: " if wanted.role else ""
    reason = f"{whose}dp {before:,} to {wanted.dp:,} by request"
    resize = Resize(job.name, after.dp, job.hosts, placement, reason, end_ns)
    return replace(resize, spec=spec, request_id=wanted.request_id)


def carried_out(
    planned: Resize | Rejected, wanted: ResizeJob, version: int, state: State, now_ns: int
) -> tuple[Event, ...] | Rejected | Conflict:
    """Return the events of a resize that was planned at `version`; none where the gang already has
    that size, or where this request was answered before."""
    if before := earlier(state, wanted.request_id):
        return before.answer
    job = job_of(state, wanted)
    if isinstance(job, Rejected):
        return job
    if isinstance(planned, Rejected):
        return planned
    assert planned.spec is not None
    if planned.placement.hosts != job.hosts or planned.dp != job.dp:
        return commit(state, Plan(version, (planned,)), now_ns)
    if planned.spec == job.spec:
        purpose = f"resize {job.name}"
        answered = RequestAnswered(now_ns, wanted.request_id, purpose, job.uid)
        return (answered,) if wanted.request_id else ()
    return (JobUpdated(now_ns, job.name, planned.spec, wanted.request_id, job.dependencies),)


def _part(request: Request, role: str) -> Request:
    """Return the shape of a role, or of all. Raises: BadInput where there is none of this name."""
    by_name = {each.name: each.request for each in request.roles} or {"": request}
    if role not in by_name:
        known = f"names a role: {', '.join(by_name)}" if request.roles else "has no roles"
        raise BadInput("role", f"the job {known}, not {role!r}" if role else f"the job {known}")
    return by_name[role]


def _resized_spec(job: Job, wanted: ResizeJob) -> tuple[JobSpec, int]:
    """Return the specification, and the replicas of what may resize by itself. Raises: BadInput."""
    present = job.request
    if not present.roles or present.roles[-1].name == wanted.role:
        spec = replace(job.spec, request=sized(job.spec.request, wanted.dp))
        spec = replace(spec, min_dp=spec.min_dp if spec.min_dp < wanted.dp else 0)
        check_batch(spec.request.resized_part)
        return spec, wanted.dp
    roles = tuple(map(partial(_sized_role, wanted), job.spec.request.roles))
    spec = replace(job.spec, request=request_of_roles(roles, job.spec.request))
    return spec, job.dp


def _sized_role(wanted: ResizeJob, role: GangRole) -> GangRole:
    if role.name != wanted.role:
        return role
    request = sized(role.request, wanted.dp)
    check_batch(request)
    return replace(role, request=request)


def _room(
    state: State, job: Job, end_ns: int, now_ns: int, options: SchedulingOptions
) -> tuple[HostSet, int]:
    """Return the hosts that the gang may take behind all waiting jobs, and how many of them."""
    find = make_placer(state, options, now_ns=now_ns)
    cycle = SchedulingCycle(state, now_ns, options, state.free, find, find)
    for _ in cycle.starts():  # who starts has its hosts first
        pass
    hosts, most = cycle.spare_room(job, end_ns)
    return hosts, min(most, hosts.bit_count())


def _placed(
    state: State,
    job: Job,
    after: Job,
    kept: list[int],
    hosts: HostSet,
    most: int,
    options: SchedulingOptions,
) -> Placement | None:
    fabric, held = state.loaded_fabric, job.allocation & ~state.index.out_of_service
    gpus = gpus_wanted(fabric, job.request.where)
    old = _carried(job, after, gpus, kept)
    if NEW not in old:
        return on_hosts(fabric, after.request, old, held & ~hostset.of(old))
    return place_resized(state, job, after, old, hosts, most, options)


def _carried(job: Job, after: Job, gpus: int, kept: list[int]) -> tuple[int, ...]:
    """Return the old host of each block of the resized gang, role by role."""
    if not job.request.roles:
        return carried(job.request, gpus, job.hosts, kept)
    hosts, first = list[int](), 0
    for role, new in zip(job.request.roles, after.request.roles, strict=True):
        own = job.hosts[first : first + role.request.parallelism.world_size // gpus]
        first += len(own)
        is_resized = role.request != new.request
        hosts += carried(role.request, gpus, own, kept) if is_resized else own
    return tuple(hosts)
