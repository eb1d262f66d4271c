"""What a specification may name, and what its tenant can ever have."""

from __future__ import annotations

from scheduler.core.job import JobSpec
from scheduler.core.ledger import level_of, tenant_of
from scheduler.core.quota import Book, nodes
from scheduler.core.state import State
from scheduler.core.tenants import Tenants


def misnamed(spec: JobSpec, tenants: Tenants) -> tuple[str, str] | None:
    """The field that names a tenant or a class that is not there, and what is wrong."""
    tenant = tenant_of(spec, tenants)
    leaves = [t.name for t in tenants.tenants if t.name not in tenants.inner]
    if tenant not in tenants.by_name:
        return "tenant", f"no tenant {tenant!r}; there are {', '.join(leaves)}"
    if tenant in tenants.inner:
        below = [name for name in leaves if tenant in tenants.path(name)]
        return "tenant", f"{tenant} has sub-tenants: name one of {', '.join(below)}"
    if spec.priority_class and spec.priority_class not in tenants.class_by_name:
        known = ", ".join(tenants.class_by_name) or "none"
        return "priority_class", f"no class {spec.priority_class!r}; there are {known}"
    return None


def beyond_quota(state: State, spec: JobSpec) -> str | None:
    """Why the job could not start on a cluster that is otherwise empty."""
    fabric, tenants = state.loaded_fabric, state.tenants
    gang = spec.request.hosts_needed(fabric.gpus_per_host)
    needed = gang + spec.request.spares.required(gang)
    tenant = tenant_of(spec, tenants)
    empty = Book(nodes(tenants, fabric), {})
    most, whose = empty.headroom(tenant)
    if needed > most:
        return f"needs {needed:,} hosts; the limit of tenant {whose} is {most:,}"
    if level_of(spec, tenants).is_preemptible:
        return None
    most = empty.most(tenant, fabric.host_count)
    if needed > most:
        return (
            f"needs {needed:,} hosts; tenant {tenant} can have {most:,},"
            " the rest is guaranteed to others (preemptible jobs may use it)"
        )
    return None
