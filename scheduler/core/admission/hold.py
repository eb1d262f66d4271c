"""Hold, release and requeue: an owner or an operator keeps a job from running, for now."""

from __future__ import annotations

from scheduler.core.admission.etag import job_etag, stale
from scheduler.core.model.commands import HoldJob, ReleaseJob, RequeueJob
from scheduler.core.model.events import Event, JobHeld, JobReleased, JobRequeued
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import JOB_MOVES, LIVE, Hold, JobMove, RequeueCause
from scheduler.core.model.rejected import Code, Rejected, no_job
from scheduler.core.model.state import State


def hold(state: State, command: HoldJob, now_ns: int) -> tuple[Event, ...] | Rejected:
    """A gang that runs goes on, and its job is held when it waits again. An operator's hold
    replaces an owner's, not the other way round."""
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
    """The gang stops, and its job waits in its old place. One that waits is held, if asked for."""
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
    job = state.find(command.name, command.uid)
    if job is None:
        return no_job(command.name, command.uid)
    if refusal := stale(command.etag, lambda: job_etag(job), f"job {job.name}"):
        return refusal
    if job.state not in LIVE:
        return Rejected(Code.PRECONDITION, f"job {job.name} is already {job.state}")
    return job
