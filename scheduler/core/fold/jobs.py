"""What the events of jobs make of the state, and what readers of the log see of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import assert_never

from muster.structs import replace
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from placement.workload.request import StepBound
from scheduler.core.collections.persistent_map import with_entry as _with
from scheduler.core.collections.persistent_map import without_entry as _without
from scheduler.core.fold.effects import (
    EventEffect,
    HostsChange,
    JobChangeKind,
    hosts_change,
    job_change,
)
from scheduler.core.fold.goodput import account
from scheduler.core.fold.hosts import begun, empty_hosts
from scheduler.core.fold.index import (
    check_move,
    with_eligibility,
    with_ended,
    with_job,
    with_lineage,
    without,
)
from scheduler.core.model.events import (
    ChannelOpened,
    CheckpointSaved,
    GangHung,
    GangLaunched,
    GangResized,
    GangSwapped,
    JobEligible,
    JobEnded,
    JobEvent,
    JobHeld,
    JobPreempted,
    JobReleased,
    JobRequeued,
    JobsReserved,
    JobStarted,
    JobSubmitted,
    JobUpdated,
    LaunchFailed,
    RankFailed,
    RoleRestarted,
    SparesChanged,
)
from scheduler.core.model.job import Attempt, Job
from scheduler.core.model.job_array import ArrayTurns, JobArray
from scheduler.core.model.lifecycle import (
    Hold,
    JobMove,
    JobState,
    RequeueCause,
)
from scheduler.core.model.records.goodput import Goodput
from scheduler.core.model.state import State
from scheduler.core.policies.job_terms import SavedCheckpoint
from scheduler.core.rules.crash_loop import record_strike, stopped
from scheduler.core.rules.job_size import sized_as, sized_for_fabric
from scheduler.core.tenancy.ownership import owned


def applied(state: State, event: JobEvent) -> State:
    """Return the state after an event of jobs. Raises: KeyError on a job or a move that cannot
    be."""
    match event:
        case JobSubmitted():
            return _submitted(state, event)
        case JobStarted():
            return _started(state, event)
        case JobEnded():
            return _ended(state, event)
        case JobUpdated():
            return _updated(state, event)
        case JobHeld():
            return _hold(state, event)
        case JobReleased() | JobEligible():
            return _make_eligible(state, event)
        case JobsReserved():
            return _reserved(state, event)
        case GangSwapped():
            return _swapped(state, event)
        case GangResized():
            return _resized(state, event)
        case SparesChanged():
            return _spares_changed(state, event)
        case JobRequeued():
            return _requeued(state, event, JobMove.REQUEUE)
        case JobPreempted():
            return _requeued(state, event, JobMove.PREEMPT)
        case GangLaunched():
            job = state.jobs[event.name]
            gang = replace(job.present, launched_ns=event.time_ns)
            return _renewed(state, replace(job, gang=gang))
        case GangHung():
            job = state.jobs[event.name]
            return _renewed(state, replace(job, gang=replace(job.present, hang=event.reason)))
        case RoleRestarted():
            job = state.jobs[event.name]
            counts = dict(job.present.role_restarts)
            counts[event.role] = counts.get(event.role, 0) + 1
            gang = replace(job.present, role_restarts=tuple(sorted(counts.items())))
            return _renewed(state, replace(job, gang=gang, reason=event.text))
        case ChannelOpened():
            return state
        case CheckpointSaved():
            return _record_checkpoint(state, event)
        case LaunchFailed() | RankFailed():
            return _attempt_failed(state, event)
        case _:
            assert_never(event)


def effects(before: State, event: JobEvent, after: State) -> Iterator[EventEffect]:
    """Yield the effects of `event` on its job, and on hosts that its gang took or left."""
    match event:
        case JobSubmitted():
            yield job_change(before, event, after, event.spec.name, JobChangeKind.SUBMITTED)
        case JobStarted():
            yield job_change(before, event, after, event.name, JobChangeKind.STARTED)
            yield from _hosts(before, event, after, before.index.held ^ after.index.held)
        case JobEnded():
            yield job_change(before, event, after, event.name, JobChangeKind.ENDED)
            yield from _hosts(before, event, after, before.index.held ^ after.index.held)
        case JobsReserved() | ChannelOpened():
            return
        case JobUpdated():
            yield job_change(before, event, after, event.name, JobChangeKind.UPDATED)
        case JobHeld():
            yield job_change(before, event, after, event.name, JobChangeKind.HELD)
        case JobReleased():
            yield job_change(before, event, after, event.name, JobChangeKind.RELEASED)
        case JobEligible():
            yield job_change(before, event, after, event.name, JobChangeKind.ELIGIBLE)
        case GangSwapped():
            yield job_change(before, event, after, event.name, JobChangeKind.SWAPPED)
            yield from _hosts(before, event, after, _gang_moved(before, event.name, after))
        case GangResized():
            yield job_change(before, event, after, event.name, JobChangeKind.RESIZED)
            yield from _hosts(before, event, after, _gang_moved(before, event.name, after))
        case SparesChanged():
            yield job_change(before, event, after, event.name, JobChangeKind.SPARES_CHANGED)
            yield from _hosts(before, event, after, before.index.held ^ after.index.held)
        case JobRequeued():
            change = job_change(before, event, after, event.name, JobChangeKind.REQUEUED)
            yield change._replace(cause=event.cause)
            yield from _hosts(before, event, after, before.index.held ^ after.index.held)
        case JobPreempted():
            change = job_change(before, event, after, event.name, JobChangeKind.REQUEUED)
            yield change._replace(cause=RequeueCause.PREEMPTED)
            yield from _hosts(before, event, after, before.index.held ^ after.index.held)
        case GangLaunched():
            yield job_change(before, event, after, event.name, JobChangeKind.LAUNCHED)
        case GangHung():
            yield job_change(before, event, after, event.name, JobChangeKind.HUNG)
        case RoleRestarted():
            yield job_change(before, event, after, event.name, JobChangeKind.ROLE_RESTARTED)
        case CheckpointSaved() if event.uid:
            return
        case CheckpointSaved():
            yield job_change(before, event, after, event.name, JobChangeKind.SAVED)
        case LaunchFailed() | RankFailed():
            yield job_change(before, event, after, event.name, JobChangeKind.INTERRUPTED)
        case _:
            assert_never(event)


def _submitted(state: State, event: JobSubmitted) -> State:
    job = Job(
        spec=event.spec,
        uid=event.uid,
        gang_hosts=0,
        needed=0,
        submit_ns=event.time_ns,
        state_ns=event.time_ns,
        update_ns=event.time_ns,
        sequence=state.version + 1,
        request_id=event.request_id,
        goodput=Goodput(event.time_ns),
        user=event.user,
        hold=Hold.OWNER if event.spec.hold else None,
        dependencies=event.dependencies,
    )
    job = owned(sized_for_fabric(job, state.loaded_fabric), state.tenants)
    state, job = _admit_task(state, job)
    return with_job(state, None, with_eligibility(job, event.time_ns), event.time_ns)


def _admit_task(state: State, job: Job) -> tuple[State, Job]:
    """A new task of an array may run, or awaits its turn."""
    array = job.spec.array
    if array is None:
        return state, job
    turns = state.arrays.get(array.uid, ArrayTurns())
    if array.most_running and turns.let_in >= array.most_running:
        job = replace(job, awaits_turn=True)
        turns = ArrayTurns(turns.let_in, (*turns.waiting, job.name))
    else:
        turns = ArrayTurns(turns.let_in + 1, turns.waiting)
    return replace(state, arrays=_with(state.arrays, array.uid, turns)), job


def _admit_next(state: State, array: JobArray) -> State:
    """The state in which the next task has a turn that is free; the next decision considers it. One
    that is held is passed over."""
    turns = state.arrays[array.uid]
    name = next((name for name in turns.waiting if state.jobs[name].hold is None), None)
    if name is None or (array.most_running and turns.let_in >= array.most_running):
        return state
    job = replace(state.jobs[name], awaits_turn=False)
    turns = ArrayTurns(turns.let_in + 1, without(turns.waiting, name))
    return replace(_renewed(state, job), arrays=_with(state.arrays, array.uid, turns))


def _yield_slot(state: State, name: str) -> State:
    """The state in which a waiting task that is held gives its turn to another."""
    job = state.jobs[name]
    array = job.spec.array
    if job.hold is None or job.awaits_turn or array is None or not array.most_running:
        return state
    turns = state.arrays[array.uid]
    waiting = ArrayTurns(turns.let_in - 1, (name, *turns.waiting))
    state = _renewed(state, replace(job, awaits_turn=True))
    return _admit_next(replace(state, arrays=_with(state.arrays, array.uid, waiting)), array)


def _without_task(state: State, over: Job) -> State:
    """The state in which a task has ended, and its turn is another's."""
    array = over.spec.array
    if array is None:
        return state
    turns = state.arrays[array.uid]
    if over.awaits_turn:
        left = ArrayTurns(turns.let_in, without(turns.waiting, over.name))
    else:
        left = ArrayTurns(turns.let_in - 1, turns.waiting)
    if left == ArrayTurns():
        return replace(state, arrays=_without(state.arrays, array.uid))
    return _admit_next(replace(state, arrays=_with(state.arrays, array.uid, left)), array)


def _updated(state: State, event: JobUpdated) -> State:
    """A waiting job goes to its new place, and what was promised to it as it was is void."""
    job = state.jobs[event.name]
    updated = replace(
        job, spec=event.spec, update_ns=event.time_ns, dependencies=event.dependencies
    )
    if event.spec.min_dp != job.spec.min_dp or event.spec.request != job.spec.request:
        updated = sized_as(state, updated, event.spec, job.dp)  # as its owner had it resized
    updated = owned(updated, state.tenants)
    if (array := event.spec.array) is not None and array != job.spec.array:
        state = _throttled(state, array)
        job = state.jobs[event.name]
        updated = replace(updated, awaits_turn=job.awaits_turn)
    if job.state is not JobState.QUEUED:
        return with_job(state, job, updated, event.time_ns)
    has_moved = replace(updated, spec=job.spec, update_ns=job.update_ns) != job
    if has_moved or event.spec.time_limit_s != job.spec.time_limit_s:
        state = _unreserved(state, job.name)
    updated = with_eligibility(updated, event.time_ns)
    joined = with_job(state, job, updated, event.time_ns, is_last=True)
    return joined if updated.eligible_ns is not None else _unreserved(joined, job.name)


def _throttled(state: State, array: JobArray) -> State:
    """The state in which another number of the tasks of an array may run at a time."""
    for number in array.numbers:
        job = state.jobs.get(f"{array.name}-{number}")
        if job is None or job.spec.array is None or job.spec.array.uid != array.uid:
            continue
        own = replace(job.spec.array, most_running=array.most_running)
        state = _renewed(state, replace(job, spec=replace(job.spec, array=own)))
    while (more := _admit_next(state, array)) is not state:
        state = more
    return state


def _hold(state: State, event: JobHeld) -> State:
    """Put a job on hold; a waiting one loses its reservation."""
    job = state.jobs[event.name]
    held = replace(job, hold=event.hold, update_ns=event.time_ns)
    if job.state is not JobState.QUEUED:
        return _renewed(state, held)
    held = with_eligibility(held, event.time_ns)
    state = _unreserved(state, job.name)
    return _yield_slot(with_job(state, job, held, event.time_ns, is_last=True), job.name)


def _make_eligible(state: State, event: JobReleased | JobEligible) -> State:
    job = state.jobs[event.name]
    if isinstance(event, JobReleased):
        changed = replace(job, hold=None, update_ns=event.time_ns)
        if job.state is not JobState.QUEUED:
            return _renewed(state, changed)
    else:
        changed = job
    changed = with_eligibility(changed, event.time_ns)
    joined = with_job(state, job, changed, event.time_ns, is_last=True)
    array = job.spec.array
    return joined if array is None or not job.awaits_turn else _admit_next(joined, array)


def _reserved(state: State, event: JobsReserved) -> State:
    reserved, shares, slips = state.reserved, state.shares, state.slips
    for name, start_ns in event.starts:
        if start_ns > reserved.get(name, start_ns):
            slips = _with(slips, name, slips.get(name, 0) + 1)
        reserved = _with(reserved, name, start_ns)
        shares = _without(shares, name) if name in shares else shares
    index = state.loaded_fabric.index_by_name
    for name, parts in event.shares:
        shares = _with(shares, name, tuple((index[host], count) for host, count in parts))
    return replace(state, reserved=reserved, shares=shares, slips=slips)


def _started(state: State, event: JobStarted) -> State:
    fabric = state.loaded_fabric
    job = state.jobs[event.name]
    size = job.on(len(event.hosts)).with_power_limit(event.gpu_watts)
    gang = _begun(fabric, event)
    running = replace(
        size,
        attempt=event.attempt,
        gang=replace(gang, start_dp=size.dp, gpus=event.gpus),
        state_ns=event.time_ns,
        reason="",
        goodput=account(state, job, event),
    )
    check_move(job, JobMove.START, running)
    return replace(
        with_job(_unreserved(state, event.name), job, running, event.time_ns),
        records=begun(state.records, running.hosts, event.time_ns),
    )


def _begun(fabric: Fabric, event: JobStarted | GangResized) -> Attempt:
    """The attempt that begins on hosts that were placed for it."""
    return Attempt(
        start_ns=event.time_ns,
        hosts=fabric.indices(event.hosts),
        spares=fabric.indices(event.spares),
        cuts=event.cuts,
        lower_bound=event.lower_bound,
        notes=event.notes,
        copies=event.copies,
        step=event.step,
    )


def _swapped(state: State, event: GangSwapped) -> State:
    fabric = state.loaded_fabric
    job = state.jobs[event.name]
    before = job.present
    joined = {swap.block: fabric.index_by_name[swap.joined] for swap in event.swaps}
    hosts = tuple(joined.get(block, host) for block, host in enumerate(job.hosts))
    # The bounds hold for the hosts that were free at the start: its spares were, but for
    # those that it holds since.
    is_own = set(joined.values()) <= set(job.spares)
    is_bounded = is_own and before.lower_bound <= sum(cut.bytes_per_step for cut in event.cuts[:1])
    step = None if event.step_s is None else StepBound(event.step_s)
    if step and before.step and is_own and before.step.least_seconds <= step.seconds:
        step = StepBound(step.seconds, before.step.least_seconds)
    gang = Attempt(
        start_ns=event.time_ns,
        hosts=hosts,
        spares=tuple(s for s in job.spares if s not in joined.values()),
        lent=before.lent,
        gpus=event.gpus or before.gpus,
        start_dp=before.start_dp,
        cuts=event.cuts,
        lower_bound=before.lower_bound if is_bounded else 0,
        notes=before.notes,
        copies=event.copies or before.copies,
        step=step,
    )
    running = replace(
        job,
        attempt=event.attempt,
        gang=gang,
        state_ns=event.time_ns,
        reason="",
        restart_options=event.restart_options,
        goodput=account(state, job, event),
    )
    check_move(job, JobMove.SWAP, running)
    return empty_hosts(with_job(state, job, running, event.time_ns), job, event.time_ns)


def _resized(state: State, event: GangResized) -> State:
    job = state.jobs[event.name]
    gang, before = _begun(state.loaded_fabric, event), job.present
    size = job.at(event.dp)
    if event.spec is not None:
        size = owned(sized_as(state, job, event.spec, event.dp), state.tenants)
        before = replace(before, start_dp=size.dp)
    if event.attempt == job.attempt:  # other roles run on
        gang = replace(gang, launched_ns=event.time_ns, role_restarts=before.role_restarts)
    running = replace(
        size,
        attempt=event.attempt,
        gang=replace(gang, lent=before.lent, gpus=before.gpus, start_dp=before.start_dp),
        state_ns=event.time_ns,
        reason=event.reason,
        restart_options=event.restart_options,
        goodput=account(state, job, event),
    )
    check_move(job, JobMove.RESIZE, running)
    return empty_hosts(with_job(state, job, running, event.time_ns), job, event.time_ns)


def _spares_changed(state: State, event: SparesChanged) -> State:
    job = state.jobs[event.name]
    indices = state.loaded_fabric.indices
    gang = replace(job.present, spares=indices(event.spares), lent=indices(event.lent))
    changed = replace(job, gang=gang, goodput=account(state, job, event))
    return empty_hosts(with_job(state, job, changed, event.time_ns), job, event.time_ns)


def _requeued(state: State, event: JobRequeued | JobPreempted, move: JobMove) -> State:
    job = state.jobs[event.name]
    queued = replace(
        job.least.with_power_limit(0),
        state_ns=event.time_ns,
        gang=None,
        reason=event.reason,
        restart_options=event.restart_options if isinstance(event, JobRequeued) else (),
        goodput=account(state, job, event),
    )
    check_move(job, move, queued)
    queued = with_eligibility(queued, event.time_ns)
    freed = with_job(state, job, queued, event.time_ns)
    return empty_hosts(_yield_slot(freed, job.name), job, event.time_ns)


def _renewed(state: State, job: Job) -> State:
    """The state with a live job in its place, which holds the same hosts."""
    return with_job(state, state.jobs[job.name], job, 0)


def _record_checkpoint(state: State, event: CheckpointSaved) -> State:
    if not event.where:
        job = state.jobs[event.name]
        gang = replace(job.present, renewed_ns=event.time_ns)
        return _renewed(state, replace(job, gang=gang))
    saved = SavedCheckpoint(event.attempt, event.step, event.where, event.time_ns)
    job = state.ended[event.uid] if event.uid else state.jobs[event.name]
    state = with_lineage(state, job, saved)
    job = replace(job, saved=saved)
    return state.with_ended(job) if event.uid else _renewed(state, job)


def _attempt_failed(state: State, event: LaunchFailed | RankFailed) -> State:
    """The gang stands still and keeps its hosts, until it is decided how it goes on."""
    job, costs = state.jobs[event.name], state.tenants.preemption.costs
    if isinstance(event, RankFailed):
        text = f"rank {event.rank} on {event.host} {event.reason}"
        hit = stopped(job, event.time_ns, costs, event.cause, event.code, event.step)
    else:
        text = f"could not be started on {event.host}: {event.reason}"
        hit = record_strike(
            job, state.loaded_fabric.index_by_name[event.host], event.time_ns, costs
        )
    hit = replace(
        hit,
        state_ns=event.time_ns,
        gang=replace(hit.present, hang=""),
        reason=text,
        goodput=account(state, job, event),
    )
    check_move(job, JobMove.INTERRUPT, hit)
    return with_job(state, job, hit, event.time_ns, is_last=True)


_ENDINGS: Mapping[JobState, JobMove] = {
    JobState.COMPLETED: JobMove.COMPLETE,
    JobState.FAILED: JobMove.FAIL,
    JobState.CANCELLED: JobMove.CANCEL,
}


def _ended(state: State, event: JobEnded) -> State:
    job = state.jobs[event.name]
    over = replace(
        job,
        outcome=event.outcome,
        state_ns=event.time_ns,
        reason=event.reason,
        goodput=account(state, job, event),
    )
    check_move(job, _ENDINGS[event.outcome], over)
    left = _resolve_dependants(_unreserved(state, event.name), over, event.has_started)
    freed = with_ended(with_job(left, job, None, event.time_ns), over)
    freed = replace(freed, spent=state.spent + over.goodput.hosts)
    return empty_hosts(_without_task(freed, over), job, event.time_ns)


def _resolve_dependants(state: State, over: Job, has_started: bool) -> State:
    """The state in which those that depend on a job know how it has ended. They are considered by
    the next decision, each with an event of its own."""
    for name in state.index.dependants.get(over.uid, ()):
        job = state.jobs[name]
        known = (
            replace(each, outcome=over.state, has_started=has_started)
            if each.uid == over.uid
            else each
            for each in job.dependencies
        )
        state = _renewed(state, replace(job, dependencies=tuple(known)))
    return state


def _unreserved(state: State, name: str) -> State:
    """Nothing is promised to that job."""
    if name not in state.reserved:
        return state
    shares = _without(state.shares, name) if name in state.shares else state.shares
    slips = _without(state.slips, name) if name in state.slips else state.slips
    return replace(state, reserved=_without(state.reserved, name), shares=shares, slips=slips)


def _gang_moved(before: State, name: str, after: State) -> HostSet:
    """Hosts that a gang took or left; a block's host may be a spare by now."""
    blocks = hostset.of(before.jobs[name].hosts) ^ hostset.of(after.jobs[name].hosts)
    return before.index.held ^ after.index.held | blocks


def _hosts(before: State, event: JobEvent, after: State, touched: HostSet) -> Iterator[HostsChange]:
    """Host changes for the hosts that a gang took or left and that are out of service."""
    return hosts_change(
        before, event, after, touched & (before.index.unhealthy | after.index.out_of_service)
    )
