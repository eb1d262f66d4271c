"""A job's owner changes their mind: another priority, time limit, other labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from scheduler.core.admission.etag import job_etag, stale
from scheduler.core.model.commands import UpdateJob
from scheduler.core.model.events import Event, JobUpdated
from scheduler.core.model.job import MOST_LABELS
from scheduler.core.model.lifecycle import LIVE, JobState
from scheduler.core.model.rejected import Code, Rejected, invalid, no_job
from scheduler.core.model.state import State
from scheduler.core.tenancy.entitlement import beyond_quota, misnamed

UPDATABLE: Final = ("priority", "priority_class", "time_limit_s", "labels")


def update(state: State, command: UpdateJob, now_ns: int) -> tuple[Event, ...] | Rejected:
    """Labels change as long as the job lives; what orders the queue while it waits."""
    job = state.find(command.name, command.uid)
    if job is None:
        return no_job(command.name, command.uid)
    if refusal := stale(command.etag, lambda: job_etag(job), f"job {job.name}"):
        return refusal
    for field in command.fields:
        if field not in UPDATABLE:
            return invalid(field, f"cannot be changed; {', '.join(UPDATABLE)} can")
    if job.state not in LIVE:
        return Rejected(Code.PRECONDITION, f"job {job.name} is already {job.state}")
    spec = replace(job.spec, **{field: getattr(command, field) for field in command.fields})
    if command.label_keys:
        kept = {k: v for k, v in spec.labels if k not in command.label_keys}
        labels = kept | {k: v for k, v in command.labels if k in command.label_keys}
        if len(labels) > MOST_LABELS:
            return invalid("labels", f"would be {len(labels)}, more than {MOST_LABELS}")
        spec = replace(spec, labels=tuple(sorted(labels.items())))
    if spec == job.spec:
        return ()
    if replace(spec, labels=job.spec.labels) != job.spec and job.state is not JobState.QUEUED:
        message = f"job {job.name} is {job.state}: only labels can change once it has started"
        return Rejected(Code.PRECONDITION, message)
    if spec.time_limit_s is not None and spec.time_limit_s < 1:
        return invalid("time_limit_s", "must be at least 1")
    if spec.priority and spec.priority_class:
        message = f"conflicts with priority_class {spec.priority_class}: change both"
        return invalid("priority", message)
    if wrong := misnamed(spec, state.tenants):
        return invalid(*wrong)
    if beyond := beyond_quota(state, spec):
        return Rejected(Code.INFEASIBLE, beyond.reason)
    return (JobUpdated(now_ns, job.name, spec, command.request_id),)
