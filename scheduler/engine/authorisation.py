"""Whether a caller may carry out a command, on the state that the command is carried out on.

The interceptor (access.auth_interceptor) turns callers away early, on the state of that moment. A
command then waits for the writer, and a name may have changed hands meanwhile: only what
is checked here counts.
"""

from __future__ import annotations

from scheduler.core import Rejected, State, Tenants
from scheduler.core.job_name import stated_tenant
from scheduler.core.model.commands import CancelJob, Command, EndJob, SubmitJob, UpdateJob
from scheduler.core.model.rejected import invalid, no_job
from scheduler.core.tenancy.ownership import tenant_of
from scheduler.identity import Caller


def other_tenants(tenants: Tenants, who: Caller, tenant: str) -> str:
    """Why `who` may not name this tenant, nor its jobs; "" when they may. The one rule: the
    interceptor asks it early, and `unauthorised` where it counts."""
    if who.sees(tenants, tenant):
        return ""
    return f"{who.name} belongs to tenant {who.tenant}, not to {tenant}"


def unauthorised(state: State, command: Command, who: Caller) -> Rejected | None:
    """The refusal of a command that names a job, or submits for a tenant, that is not `who`'s.
    A job of another tenant is answered like one that does not exist (AIP-211)."""
    if not who.tenant:
        return None
    if isinstance(command, CancelJob | UpdateJob | EndJob):
        job = state.find(command.name, command.uid)
        if job is not None and other_tenants(state.tenants, who, job.tenant):
            return no_job(command.name, command.uid)
    elif isinstance(command, SubmitJob):
        tenant = tenant_of(command.spec, state.tenants)
        if message := other_tenants(state.tenants, who, tenant):
            return invalid("tenant", message)
        wants = command.spec.affinity
        named = {"near": [wants.near] if wants.near else []}
        named |= {f"avoid.{tier}": list(names) for tier, names in wants.avoid}
        for field, names in named.items():
            for name in names:
                if other_tenants(state.tenants, who, stated_tenant(name) or state.tenants.default):
                    message = f"{name!r} is of a tenant whose jobs {who.name} cannot see"
                    return invalid(f"constraints.{field}", message)
    return None
