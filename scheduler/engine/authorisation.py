"""Who may name which job, and what for: the one place that says so.

The interceptor (access.auth_interceptor) turns callers away early, on the state of that moment. A
command then waits for the writer, and a name may have changed hands meanwhile: only what
is checked where it is carried out counts. Servicers ask `refused` before they show what ranks
wrote.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from scheduler.core import Job, JobSpec, Rejected, State, Tenants
from scheduler.core.model.commands import (
    CancelJob,
    Command,
    EndJob,
    HoldJob,
    JobCommand,
    OpenChannel,
    ReleaseJob,
    RequeueJob,
    ResizeJob,
    SubmitJob,
    UpdateJob,
)
from scheduler.core.model.dependency import DependencyTerm
from scheduler.core.model.lifecycle import LIVE
from scheduler.core.model.rejected import Code, invalid, no_job
from scheduler.core.names import stated_tenant
from scheduler.core.tenancy.ownership import tenant_of
from scheduler.identity import Caller, Role


class Act(StrEnum):
    """Act of a caller on a job that it may see."""

    CHANGE = "change"  # cancel, hold or requeue it, or change its specification
    END = "finish"  # report that its gang has ended
    READ_LOGS = "read the logs of"
    RUN = "run commands in"


_ACTS: Final[dict[type, Act]] = {
    CancelJob: Act.CHANGE,
    UpdateJob: Act.CHANGE,
    HoldJob: Act.CHANGE,
    ReleaseJob: Act.CHANGE,
    RequeueJob: Act.CHANGE,
    ResizeJob: Act.CHANGE,
    EndJob: Act.END,
}


def tenant_refusal(tenants: Tenants, who: Caller, tenant: str) -> str:
    """Why `who` may not name this tenant, nor its jobs; "" when they may. The interceptor asks it
    early, and `unauthorised` where it counts."""
    if who.sees(tenants, tenant):
        return ""
    return f"{who.name} belongs to tenant {who.tenant}, not to {tenant}"


def unknown_home(tenants: Tenants, who: Caller, tenant: str) -> str:
    """Return why `who` can do nothing yet in its own tenant; "" where that exists, or where those
    who see every tenant are to hear which there are."""
    is_there = not who.tenant or tenant in tenants.by_name
    return "" if is_there else f"no tenant {tenant!r} in the tenants file"


def refused(tenants: Tenants, who: Caller, job: Job, act: Act) -> Rejected | None:
    """Return why `who` may not do this to the job; None when they may.

    A job of another tenant is answered like one that does not exist (AIP-211). Of its own tenant a
    caller sees every job, and acts on jobs that it submitted; coordinators act on all of the
    tenant, operators on all there are, and a launcher ends the gangs that no agent starts. A job
    whose user is not known is everybody's in its tenant.
    """
    if tenant_refusal(tenants, who, job.tenant):
        return no_job(job.name, job.uid)
    if who.role >= Role.COORDINATOR or job.user in ("", who.name):
        return None
    if act is Act.END and who.role is Role.LAUNCHER and job.spec.run is None:
        return None
    launched = "; agents start it" if act is Act.END and who.role is Role.LAUNCHER else ""
    return Rejected(
        Code.DENIED,
        f"{who.name} may not {act} job {job.name}: it is of user {job.user}{launched}",
    )


def unauthorised(state: State, command: Command | ResizeJob, who: Caller) -> Rejected | None:
    """Return the refusal of a command on a job that `who` may not act on, or one that submits for a
    tenant or a user of hosts that is not `who`'s."""
    if (act := _ACTS.get(type(command))) is not None:
        assert isinstance(command, JobCommand | ResizeJob)
        job = state.find(command.name, command.uid)
        is_again = isinstance(command, RequeueJob) and job is not None and job.state not in LIVE
        if is_again and job is not None and (strange := _strange_user(job.spec, who)):
            return strange
        if job is None or (refusal := refused(state.tenants, who, job, act)) is None:
            return _strange_dependency(state, command, who)
        if refusal.code is Code.NOT_FOUND:
            return no_job(command.name, command.uid)
        # What the caller's own earlier request did is told again, whoever has the name by now.
        return None if state.request(command.request_id) is not None else refusal
    if isinstance(command, OpenChannel):
        job = state.find(command.name, command.uid)
        if job is None:
            return None
        return refused(state.tenants, who, job, Act.RUN) or _strange_user(job.spec, who)
    if isinstance(command, SubmitJob) and (refusal := _strange_user(command.spec, who)):
        return refusal
    if isinstance(command, SubmitJob) and who.tenant:
        tenant = tenant_of(command.spec, state.tenants)
        if message := tenant_refusal(state.tenants, who, tenant):
            return invalid("tenant", message)
        if message := unknown_home(state.tenants, who, tenant):
            return invalid("tenant", message)
        wants = command.spec.affinity
        named = {"near": [wants.near] if wants.near else []}
        named |= {f"avoid.{tier}": list(names) for tier, names in wants.avoid}
        for field, names in named.items():
            for name in names:
                if tenant_refusal(state.tenants, who, stated_tenant(name) or state.tenants.default):
                    message = f"{name!r} is of a tenant whose jobs {who.name} cannot see"
                    return invalid(f"constraints.{field}", message)
        return _strange_dependency(state, command, who)
    return None


def _strange_user(spec: JobSpec, who: Caller) -> Rejected | None:
    """The refusal of a job whose ranks would be somebody on their hosts whom `who` is not."""
    run = spec.run
    if run is None or who.may_run_as(run.user):
        return None
    message = f"{who.name} may not run as {run.user}: no run_as of the auth file says so"
    return invalid("run.user", message)


def _strange_dependency(state: State, command: Command | ResizeJob, who: Caller) -> Rejected | None:
    """The refusal of a command that makes a job wait for one of a tenant that `who` cannot see."""
    terms: tuple[DependencyTerm, ...] = ()
    if isinstance(command, SubmitJob):
        terms = command.spec.dependencies
    elif isinstance(command, UpdateJob):
        terms = command.dependencies
    for place, term in enumerate(terms):
        tenant = stated_tenant(term.job) or state.tenants.default
        if term.job and tenant_refusal(state.tenants, who, tenant):
            message = f"{term.job!r} is of a tenant whose jobs {who.name} cannot see"
            return invalid(f"dependencies[{place}].job", message)
    return None
