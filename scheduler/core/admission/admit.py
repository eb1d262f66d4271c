"""Check a command against the state: the facts it makes true, or why not."""

from __future__ import annotations

from typing import assert_never

import msgspec

from muster.structs import replace
from placement import BadInput
from placement.fabric.constraints import gpus_wanted
from placement.fabric.links import checked_share, uplink_of
from placement.workload.request import NO_SPARES
from placement.workload.traffic import axis_traffic
from scheduler.core.admission import dependencies, idempotency
from scheduler.core.admission.etag import host_etag, job_etag, job_of, link_etag, stale, window_etag
from scheduler.core.admission.fabric import change_fabric
from scheduler.core.admission.launch import open_channel
from scheduler.core.admission.report import report
from scheduler.core.admission.update import update
from scheduler.core.capacity.window_hosts import HostsUnavailable, resolved
from scheduler.core.model.commands import (
    CancelJob,
    ChangeFabric,
    Command,
    EndJob,
    HoldJob,
    LoadHealth,
    LoadTenants,
    MoveHost,
    MoveLink,
    OpenChannel,
    ReleaseJob,
    RemoveWindow,
    ReportHost,
    ReportLink,
    RequeueJob,
    SetWindow,
    SubmitJob,
    UpdateJob,
)
from scheduler.core.model.events import (
    Event,
    HealthLoaded,
    HostMoved,
    JobEnded,
    JobHeld,
    JobReleased,
    JobRequeued,
    JobSubmitted,
    LinkMoved,
    LinkReported,
    TenantsLoaded,
    WindowRemoved,
    WindowSet,
)
from scheduler.core.model.job import Job, JobSpec
from scheduler.core.model.job_array import MOST_BYTES
from scheduler.core.model.lifecycle import (
    HOST_MOVES,
    JOB_MOVES,
    LINK_MOVES,
    LIVE,
    Hold,
    HostMove,
    HostState,
    JobMove,
    JobState,
    Mover,
    RequeueCause,
)
from scheduler.core.model.rejected import (
    Code,
    Rejected,
    Violation,
    invalid,
    no_host,
    no_link,
    no_window,
)
from scheduler.core.model.state import State
from scheduler.core.model.window import Booking
from scheduler.core.names import NAME_RULE, full_name, is_name, short_name
from scheduler.core.policies import affinity
from scheduler.core.policies.tenants import Tenants
from scheduler.core.rules.eligibility import UNMET, cancelled
from scheduler.core.rules.peer_copies import refuse_without_peers
from scheduler.core.tenancy import guarantees
from scheduler.core.tenancy.entitlement import (
    beyond_quota,
    impossible,
    least_request,
    unknown_tenant_or_class,
)
from scheduler.core.tenancy.ownership import tenant_of

__all__ = ["Code", "Rejected", "Violation", "admit"]


def admit(state: State, command: Command, now_ns: int) -> tuple[Event, ...] | Rejected:
    """Return the events that `command` causes; none where it was already true, or its request was
    answered before."""
    if isinstance(command, LoadTenants | LoadHealth | OpenChannel) or not command.request_id:
        return _admitted(state, command, now_ns)
    command = idempotency.identified(command)
    if earlier := idempotency.earlier(state, command.request_id):
        return earlier.answer
    answer = _admitted(state, command, now_ns)
    return answer or (idempotency.answered(state, command, now_ns),)


def _admitted(state: State, command: Command, now_ns: int) -> tuple[Event, ...] | Rejected:
    try:
        return _checked(state, command, now_ns)
    except BadInput as error:
        return invalid(error.field, error.message)


def _checked(state: State, command: Command, now_ns: int) -> tuple[Event, ...] | Rejected:
    match command:
        case SubmitJob():
            return _submit(state, command, now_ns)
        case UpdateJob():
            return update(state, command, now_ns)
        case HoldJob():
            return hold(state, command, now_ns)
        case ReleaseJob():
            return release(state, command, now_ns)
        case RequeueJob():
            if (over := _to_submit_again(state, command)) is not None:
                return _submit_again(state, over, command, now_ns)
            return requeue(state, command, now_ns)
        case CancelJob():
            return _cancel(state, command, now_ns)
        case EndJob():
            return _end(state, command, now_ns)
        case OpenChannel():
            return open_channel(state, command, now_ns)
        case MoveHost():
            return _move_host(state, command, now_ns)
        case ReportHost():
            return report(state, command, now_ns)
        case ReportLink():
            return report_link(state, command, now_ns)
        case MoveLink():
            return move_link(state, command, now_ns)
        case LoadHealth():
            is_known = command.policy == state.health
            return () if is_known else (HealthLoaded(now_ns, command.policy),)
        case ChangeFabric():
            return change_fabric(state, command, now_ns)
        case LoadTenants():
            return _load_tenants(state, command.tenants, now_ns)
        case SetWindow():
            return _set_window(state, command, now_ns)
        case RemoveWindow():
            return _remove_window(state, command, now_ns)
    assert_never(command)


def _submit(state: State, command: SubmitJob, now_ns: int) -> tuple[Event, ...] | Rejected:
    """One job, or all tasks of an array; a task by itself is one that was submitted before."""
    array = command.spec.array
    if array is None or array.task is not None:
        return _submit_job(state, command, now_ns)
    if refused := _name_conflict(state, command.spec):
        return refused
    array = replace(array, name=command.spec.name, uid=command.uid)
    run = command.spec.run
    if run is not None and array.most_running == 1 and not (run.lineage or run.new_run):
        # One after the other: a chain, each of whose tasks goes on where the last one ended.
        run = replace(run, lineage=short_name(command.spec.name))
        command = replace(command, spec=replace(command.spec, run=run))
    events: list[Event] = []
    corresponding = dependencies.corresponding_tasks(state, command.spec)
    for number in array.numbers:
        task_of = replace(array, task=number)
        spec = replace(command.spec, name=f"{command.spec.name}-{number}", array=task_of)
        task = replace(command, spec=spec, uid=array.task_uid(number))
        if events:  # what is true of the first is true of all but for their names
            if refused := _name_conflict(state, spec):
                return refused
            first = events[0]
            assert isinstance(first, JobSubmitted)
            awaited = dependencies.paired(corresponding, number, first.dependencies)
            if isinstance(awaited, Rejected):
                return awaited
            made = replace(first, uid=task.uid, spec=spec, request_id="", dependencies=awaited)
            events.append(made)
            continue
        answer = _submit_job(state, task, now_ns)
        if isinstance(answer, Rejected):
            return answer
        events.extend(answer)
        if refused := _too_much(answer, len(array.numbers)):
            return refused
    return tuple(events)


def _too_much(first: tuple[Event, ...], tasks: int) -> Rejected | None:
    """The refusal of an array whose tasks say too much, each of them all over again: what it waits
    for, its environment."""
    size = len(msgspec.json.encode(first))
    if size * tasks <= MOST_BYTES:
        return None
    submitted = first[0]
    assert isinstance(submitted, JobSubmitted)
    waits = len(submitted.dependencies)
    way_out = ": let one job wait for all of them, and the array for that job" if waits > 1 else ""
    message = f"{tasks:,} tasks of {size:,} bytes, with {waits:,} dependencies, are more than"
    return invalid("array", f"{message} {MOST_BYTES:,} bytes{way_out}")


def _name_conflict(state: State, spec: JobSpec) -> Rejected | None:
    """Why it cannot be called so."""
    if not all(map(is_name, spec.name.split("/", 1))):
        return invalid("name", NAME_RULE)
    if same := _namesake(state, spec):
        return Rejected(
            Code.ALREADY_EXISTS, f"a job {short_name(same.name)} is {same.state} already"
        )
    return None


def _submit_job(state: State, command: SubmitJob, now_ns: int) -> tuple[Event, ...] | Rejected:
    spec = command.spec
    if refused := _name_conflict(state, spec):
        return refused
    if spec.time_limit_s is not None and spec.time_limit_s < 1:
        return invalid("time_limit_s", "must be at least 1")
    if wrong := unknown_tenant_or_class(spec, state.tenants):
        return invalid(*wrong)
    axis_traffic(spec.request)
    affinity.check(state.loaded_fabric, spec.affinity)
    if never := impossible(state.loaded_fabric, spec):
        return Rejected(Code.INFEASIBLE, never.reason)
    if spec.checkpoint.peers:
        least = least_request(state.loaded_fabric, spec)
        gpus = gpus_wanted(state.loaded_fabric, least.where)
        refuse_without_peers(least, gpus, spec.checkpoint.peers)
    if beyond := beyond_quota(state, spec):
        return Rejected(Code.INFEASIBLE, beyond.reason)
    awaited = dependencies.resolved(state, spec, command.user, command.long_ended)
    if isinstance(awaited, Rejected):
        return awaited
    if spec.request.part_gpus(gpus_wanted(state.loaded_fabric, spec.request.where)):
        spec = replace(spec, request=replace(spec.request, spares=NO_SPARES))
    submitted = JobSubmitted(
        now_ns, command.uid, spec, command.request_id, command.user, dependencies=awaited
    )
    return (submitted,)


def _namesake(state: State, spec: JobSpec) -> Job | None:
    """The live job of the same tenant that has this name."""
    tenant, name = tenant_of(spec, state.tenants), short_name(spec.name)
    for full in (spec.name, name, full_name(tenant, name)):
        same = state.jobs.get(full)
        if same is not None and (full == spec.name or same.tenant == tenant):
            return same
    return None


def _load_tenants(state: State, tenants: Tenants, now_ns: int) -> tuple[Event, ...] | Rejected:
    if tenants == state.tenants:
        return ()
    guarantees.check(tenants, state.loaded_fabric)
    for job in state.jobs.values():
        if wrong := unknown_tenant_or_class(job.spec, tenants):
            message = f"job {job.name} is {job.state}: {wrong[1]}"
            return Rejected(Code.PRECONDITION, message)
    for name, booking in state.windows.items():
        if booking.window.tenant and booking.window.tenant not in tenants.by_name:
            message = f"window {name} is held for tenant {booking.window.tenant}"
            return Rejected(Code.PRECONDITION, message)
    return (TenantsLoaded(now_ns, tenants.digest, tenants),)


def _set_window(state: State, command: SetWindow, now_ns: int) -> tuple[Event, ...] | Rejected:
    window = command.window
    if not is_name(window.name):
        return invalid("name", NAME_RULE)
    before = state.windows.get(window.name)
    if command.is_change and before is None:
        return no_window(window.name)
    if before is not None and (refusal := _stale_window(command.etag, before)):
        return refusal
    try:
        window_set = resolved(state, window, now_ns)
    except HostsUnavailable as error:
        return Rejected(Code.PRECONDITION, str(error))
    if before is not None and before.window == window_set:
        return ()
    if before is not None and not command.is_change:
        message = f"a window {window.name} is {before.state} already, with other terms"
        return Rejected(Code.ALREADY_EXISTS, message)
    return (WindowSet(now_ns, window_set, command.request_id),)


def _remove_window(
    state: State, command: RemoveWindow, now_ns: int
) -> tuple[Event, ...] | Rejected:
    booking = state.windows.get(command.name)
    if booking is None:
        return no_window(command.name)
    if refusal := _stale_window(command.etag, booking):
        return refusal
    return (WindowRemoved(now_ns, command.name, command.reason, command.request_id),)


def _stale_window(etag: str, booking: Booking) -> Rejected | None:
    return stale(etag, lambda: window_etag(booking), f"window {booking.window.name}")


def _cancel(state: State, command: CancelJob, now_ns: int) -> tuple[Event, ...] | Rejected:
    job = job_of(state, command)
    if isinstance(job, Rejected):
        return job
    if job.state is JobState.CANCELLED:
        return ()
    if job.state not in LIVE:
        return Rejected(Code.PRECONDITION, f"job {job.name} is already {job.state}")
    return (cancelled(job, command.reason, now_ns, command.request_id),)


def _to_submit_again(state: State, command: RequeueJob) -> Job | None:
    """The job of a requeue that has ended without success, and may be submitted once more."""
    job = state.find(command.name, command.uid)
    is_over = job is not None and job.state in (JobState.FAILED, JobState.CANCELLED)
    return job if is_over and command.new_uid else None


def _submit_again(
    state: State, over: Job, command: RequeueJob, now_ns: int
) -> tuple[Event, ...] | Rejected:
    """A new job like one that has ended: of the same user, and a task of the same array. What it
    depended on is as it was; its begin time has passed."""
    if refusal := stale(command.etag, lambda: job_etag(over), f"job {over.name}"):
        return refusal
    if unmet := [each.text for each in over.dependencies if not each.is_met]:
        return Rejected(Code.INFEASIBLE, f"{UNMET}: {', '.join(unmet)}")
    spec = replace(over.spec, begin_ns=0, hold=command.hold, dependencies=())
    again = SubmitJob(spec, command.new_uid, command.request_id, over.user)
    return _submit_job(state, again, now_ns)


_OUTCOMES = {JobState.COMPLETED: JobMove.COMPLETE, JobState.FAILED: JobMove.FAIL}


def _end(state: State, command: EndJob, now_ns: int) -> tuple[Event, ...] | Rejected:
    if command.outcome not in _OUTCOMES:
        return invalid("outcome", "must be completed or failed")
    job = job_of(state, command)
    if isinstance(job, Rejected):
        return job
    if job.state is command.outcome and command.attempt in (0, job.attempt):
        return ()
    if command.attempt not in (0, job.attempt):
        return Rejected(
            Code.PRECONDITION,
            f"job {job.name} is at attempt {job.attempt}, not {command.attempt}",
        )
    if _OUTCOMES[command.outcome] not in JOB_MOVES[job.state]:
        return Rejected(Code.PRECONDITION, f"job {job.name} is {job.state}, not running")
    return (JobEnded(now_ns, job.name, command.outcome, command.reason, command.request_id),)


_REACHED = {
    HostMove.CORDON: (HostState.CORDONED,),
    HostMove.UNCORDON: (HostState.HEALTHY, HostState.GOLDEN),
    HostMove.DRAIN: (HostState.DRAINING,),
}
_BROKEN = (HostState.FAILED, HostState.IN_REPAIR)


def _move_host(state: State, command: MoveHost, now_ns: int) -> tuple[Event, ...] | Rejected:
    host, move = command.host, command.move
    if move not in _REACHED:
        return invalid("move", "must be cordon, uncordon or drain")
    index = state.loaded_fabric.index_by_name.get(host)
    if index is None:
        return no_host(host)

    def current() -> str:
        return host_etag(host, state.host(index), state.holders(index))

    if refusal := stale(command.etag, current, f"host {host}"):
        return refusal

    record = state.host(index)
    now = record.state
    is_drained = now is HostState.CORDONED and not state.runs_gang(index)
    if now in _REACHED[move] or (move is HostMove.DRAIN and is_drained):
        return ()
    if move not in HOST_MOVES[now]:
        hint = "; report it repaired first" if now in _BROKEN else ""
        hint = "; its agent has not come in yet" if record.awaits_agent else hint
        shown = record.shown_state
        return Rejected(Code.PRECONDITION, f"host {host} is {shown}: cannot {move}{hint}")
    events: list[Event] = [HostMoved(now_ns, host, move, command.reason, command.request_id)]
    if move is HostMove.DRAIN and not state.runs_gang(index):
        events.append(HostMoved(now_ns, host, HostMove.EMPTY, cause=Mover.POLICY))
    return tuple(events)


def report_link(state: State, command: ReportLink, now_ns: int) -> tuple[Event, ...] | Rejected:
    """Check a report on an uplink. No events when it was reported so already."""
    if refusal := _unknown(state, command.link):
        return refusal
    share = checked_share(command.share)
    if state.link(command.link).share == share:
        return ()
    return (LinkReported(now_ns, command.link, share, command.detail, command.request_id),)


def move_link(state: State, command: MoveLink, now_ns: int) -> tuple[Event, ...] | Rejected:
    """Check a move of an uplink's use. No events when it was so already."""
    if refusal := _unknown(state, command.link):
        return refusal
    record = state.link(command.link)
    current = f"link {command.link}"
    if refusal := stale(command.etag, lambda: link_etag(command.link, record), current):
        return refusal
    if command.move not in LINK_MOVES[record.use]:
        return ()
    return (LinkMoved(now_ns, command.link, command.move, command.reason, command.request_id),)


def _unknown(state: State, name: str) -> Rejected | None:
    try:
        uplink_of(state.loaded_fabric, name, "name")
    except BadInput:
        if name in state.loaded_fabric.index_by_name:
            raise
        return no_link(name)
    return None


def hold(state: State, command: HoldJob, now_ns: int) -> tuple[Event, ...] | Rejected:
    """Hold a job: a gang that runs goes on, and its job is held when it waits again. An operator's
    hold replaces an owner's, not the other way round."""
    job = _live(state, command)
    if isinstance(job, Rejected):
        return job
    if job.hold in (command.by, Hold.OPERATOR):
        return ()
    return (JobHeld(now_ns, job.name, command.by, command.reason, command.request_id),)


def release(state: State, command: ReleaseJob, now_ns: int) -> tuple[Event, ...] | Rejected:
    job = _live(state, command)
    if isinstance(job, Rejected):
        return job
    if job.hold is None:
        return ()
    if job.hold is Hold.OPERATOR and command.by is Hold.OWNER:
        message = f"job {job.name} is held by an operator, who alone can release it"
        return Rejected(Code.PRECONDITION, message)
    return (JobReleased(now_ns, job.name, command.request_id),)


def requeue(state: State, command: RequeueJob, now_ns: int) -> tuple[Event, ...] | Rejected:
    """Stop a gang, whose job then waits in its old place. One that waits is held, if asked for."""
    job = _live(state, command)
    if isinstance(job, Rejected):
        return job
    is_to_hold = command.hold and job.hold is None
    if JobMove.REQUEUE not in JOB_MOVES[job.state]:  # it waits already
        held = JobHeld(now_ns, job.name, command.by, command.reason, command.request_id)
        return (held,) if is_to_hold else ()
    reason, cause = command.reason or "requeued by request", RequeueCause.REQUESTED
    requeued = JobRequeued(now_ns, job.name, reason, cause, request_id=command.request_id)
    held = JobHeld(now_ns, job.name, command.by, command.reason)
    return (held, requeued) if is_to_hold else (requeued,)


def _live(state: State, command: HoldJob | ReleaseJob | RequeueJob) -> Job | Rejected:
    """The job of a command that is about a live one."""
    job = job_of(state, command)
    if isinstance(job, Rejected):
        return job
    if job.state not in LIVE:
        return Rejected(Code.PRECONDITION, f"job {job.name} is already {job.state}")
    return job
