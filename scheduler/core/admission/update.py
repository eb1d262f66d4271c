"""A job's owner changes their mind: another priority, time limit, begin time, other labels."""

from __future__ import annotations

from typing import Final

from muster.structs import replace
from scheduler.core.admission.dependencies import resolved
from scheduler.core.admission.etag import job_of
from scheduler.core.model.commands import UpdateJob
from scheduler.core.model.events import Event, JobUpdated
from scheduler.core.model.job import MOST_LABELS, Job, JobSpec
from scheduler.core.model.lifecycle import LIVE, Hold, JobState
from scheduler.core.model.rejected import Code, Rejected, invalid
from scheduler.core.model.state import State
from scheduler.core.tenancy.entitlement import beyond_quota, unknown_tenant_or_class

UPDATABLE: Final = (
    "priority",
    "priority_class",
    "time_limit_s",
    "labels",
    "begin_ns",
    "dependencies",
    "cancel_unmet",
    "array",
)


def update(state: State, command: UpdateJob, now_ns: int) -> tuple[Event, ...] | Rejected:
    """Change a job's specification. Labels, the time limit and how many tasks of its array run
    change as long as the job lives; all else only while it waits."""
    job = job_of(state, command)
    if isinstance(job, Rejected):
        return job
    for field in command.fields:
        if field not in UPDATABLE:
            known = ", ".join(name.replace("_ns", "_time") for name in UPDATABLE)
            return invalid(field, f"cannot be changed; {known} can")
    if job.state not in LIVE:
        return Rejected(Code.PRECONDITION, f"job {job.name} is already {job.state}")
    fields = {field: getattr(command, field) for field in command.fields if field != "array"}
    spec = replace(job.spec, **fields)
    if "array" in command.fields:
        if job.spec.array is None:
            return invalid("array", f"job {job.name} is no task of an array")
        array = replace(job.spec.array, most_running=command.most_running)
        spec = replace(spec, array=array)
    if command.label_keys:
        kept = {k: v for k, v in spec.labels if k not in command.label_keys}
        labels = kept | {k: v for k, v in command.labels if k in command.label_keys}
        if len(labels) > MOST_LABELS:
            return invalid("labels", f"would be {len(labels)}, more than {MOST_LABELS}")
        spec = replace(spec, labels=tuple(sorted(labels.items())))
    if spec == job.spec:
        return ()
    if job.state is not JobState.QUEUED and (refusal := _refused(job, spec, command.by)):
        return refusal
    if spec.time_limit_s is not None and spec.time_limit_s < 1:
        return invalid("time_limit_s", "must be at least 1")
    if spec.priority and spec.priority_class:
        message = f"conflicts with priority_class {spec.priority_class}: change both"
        return invalid("priority", message)
    if wrong := unknown_tenant_or_class(spec, state.tenants):
        return invalid(*wrong)
    if beyond := beyond_quota(state, spec):
        return Rejected(Code.INFEASIBLE, beyond.reason)
    awaited = job.dependencies
    if spec.dependencies != job.spec.dependencies:
        answer = resolved(state, spec, job.user, command.long_ended, job, command.by)
        if isinstance(answer, Rejected):
            return answer
        awaited = answer
    return (JobUpdated(now_ns, job.name, spec, command.request_id, awaited),)


def _refused(job: Job, spec: JobSpec, by: Hold) -> Rejected | None:
    """Why a job that has started cannot have that specification. Others wait for the end that its
    limit promises: an owner may bring it forward, an operator may put it off."""
    own = job.spec
    same = replace(spec, labels=own.labels, time_limit_s=own.time_limit_s, array=own.array)
    if same != job.spec:
        only = (
            "only labels, the time limit and the most of its array can change once it has started"
        )
        return Rejected(Code.PRECONDITION, f"job {job.name} is {job.state}: {only}")
    before_s, after_s = job.spec.time_limit_s, spec.time_limit_s
    is_longer = before_s is not None and (after_s is None or after_s > before_s)
    if is_longer and by is Hold.OWNER:
        only = "an operator alone can give it more time"
        return Rejected(Code.PRECONDITION, f"job {job.name} is {job.state}: {only}")
    return None
