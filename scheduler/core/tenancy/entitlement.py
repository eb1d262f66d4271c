"""What a specification may name, and what its tenant can ever have."""

from __future__ import annotations

from placement import BadInput, legal_sizes
from placement import impossible as too_large
from placement.fabric import hostset
from placement.fabric.constraints import gpus_wanted, labelled
from placement.fabric.gpus import LEAST_POWER_SHARE
from placement.fabric.hostset import HostSet
from placement.fabric.power import Power
from placement.fabric.storage import Storage, find_store
from placement.fabric.tree import Fabric
from placement.workload.replicas import check_batch, sized
from placement.workload.request import Infeasible, Request
from scheduler.core.model.job import JobSpec
from scheduler.core.model.state import State
from scheduler.core.policies.storage_use import (
    dataset_store,
    most_read_gb_per_s,
    within_paths,
)
from scheduler.core.policies.tenants import Tenants
from scheduler.core.tenancy.ownership import level_of, tenant_of
from scheduler.core.tenancy.quota import empty_book
from scheduler.core.wording import hosts_text


def unknown_tenant_or_class(spec: JobSpec, tenants: Tenants) -> tuple[str, str] | None:
    """Return the field that names a tenant or a priority class that does not exist, and what is
    wrong with it."""
    tenant = tenant_of(spec, tenants)
    if tenant not in tenants.by_name:
        return "tenant", f"no tenant {tenant!r}; there are {', '.join(_leaves(tenants))}"
    if tenant in tenants.inner:
        below = [name for name in _leaves(tenants) if tenant in tenants.path(name)]
        return "tenant", f"{tenant} has sub-tenants: name one of {', '.join(below)}"
    if spec.priority_class and spec.priority_class not in tenants.class_by_name:
        known = ", ".join(tenants.class_by_name) or "none"
        return "priority_class", f"no class {spec.priority_class!r}; there are {known}"
    return None


def _leaves(tenants: Tenants) -> list[str]:
    return [t.name for t in tenants.tenants if t.name not in tenants.inner]


def least_request(fabric: Fabric, spec: JobSpec) -> Request:
    """The gang at its smallest legal size. Raises: IndexError when `impossible` says why."""
    if not spec.min_dp:
        return spec.request
    return sized(spec.request, legal_sizes(fabric, spec.request, spec.min_dp)[0])


def _least_hosts(fabric: Fabric, spec: JobSpec) -> tuple[int, int, HostSet]:
    """Return the hosts of the gang at its smallest legal size, those that it needs with its
    required spares, and all that its constraints leave of the fabric."""
    where = spec.request.where
    gang = least_request(fabric, spec).hosts_needed(gpus_wanted(fabric, where))
    fit = labelled(fabric, where, hostset.full(fabric.host_count))
    return gang, gang + spec.request.spares.required(gang), fit


def impossible(fabric: Fabric, spec: JobSpec) -> Infeasible | None:
    """Return why the empty fabric could hold the gang at none of its sizes; None when it could.

    Raises: BadInput as `placement.impossible`, when the batch does not suit its replicas, or where
    the fabric has no store of a name that the job states.
    """
    find_store(fabric.stores, spec.checkpoint.store, "checkpoint.store")
    source = dataset_store(fabric, spec.dataset)
    for gpu in fabric.by_host.kinds if spec.power_cap_w else ():
        least_watts = LEAST_POWER_SHARE * gpu.watts
        if not least_watts <= spec.power_cap_w < gpu.watts:
            message = f"must be at least {least_watts:g} and below {gpu.watts:g} for {gpu.name}"
            raise BadInput("power_cap_w", f"{message}, not {spec.power_cap_w}")
    never = too_large(fabric, spec.request)
    if never is None and fabric.power is not None:
        never = _beyond_power(fabric, fabric.power, spec)
    if never is None and source.hold_jobs:
        never = _beyond_reads(fabric, source, spec)
    if not spec.min_dp:
        return never
    if spec.request.part_gpus(gpus_wanted(fabric, spec.request.where)):
        raise BadInput("min_dp", "a job on a part of a host has one size")
    check_batch(spec.request.resized_part)
    if never is None or legal_sizes(fabric, spec.request, spec.min_dp):
        return None
    return Infeasible(f"{never.reason}, and no room for a legal size from dp {spec.min_dp:,}")


def _beyond_power(fabric: Fabric, power: Power, spec: JobSpec) -> Infeasible | None:
    """Return why the power caps let too few hosts run for the least gang; None when enough."""
    _, needed, fit = _least_hosts(fabric, spec)
    gpus, watts, idle = fabric.by_host.gpus, spec.power_cap_w, {}
    part_gpus = spec.request.part_gpus(gpus_wanted(fabric, spec.request.where))
    for host in hostset.members(fit) if part_gpus or watts else ():
        used = part_gpus or int(gpus[host])
        idle[host] = int(gpus[host]) - used + used * power.spared_part(host, watts)
    may = power.within(fit, 0, idle)
    if needed <= may.bit_count():
        return None
    return Infeasible(
        f"needs {hosts_text(needed)}; the power caps of {fabric.name} let {may.bit_count():,} run"
    )


def _beyond_reads(fabric: Fabric, store: Storage, spec: JobSpec) -> Infeasible | None:
    """Return why the store can never serve the job's dataset; None when it can."""
    rate = most_read_gb_per_s(fabric, spec.request, spec.dataset)
    limit, most = store.dataset_limit
    reads = f"reads {rate:.3g} GB/s of its dataset"
    if rate > most:
        return Infeasible(f"{reads}; {limit} of {fabric.name} reads {most:.3g}")
    gang, needed, fit = _least_hosts(fabric, spec)
    may = within_paths(fabric, store, fit, rate / gang, {})
    if may == fit or needed <= may.bit_count():
        return None
    paths = f"paths to {store.text} of {fabric.name} let {may.bit_count():,} hosts read as much"
    return Infeasible(f"{reads}, {rate / gang:.3g} on each of {hosts_text(needed)}; the {paths}")


def beyond_quota(state: State, spec: JobSpec) -> Infeasible | None:
    """Why the job could not start on a cluster that is otherwise empty; None when it could."""
    fabric, tenants = state.loaded_fabric, state.tenants
    _, needed, _ = _least_hosts(fabric, spec)
    tenant = tenant_of(spec, tenants)
    empty = empty_book(tenants, fabric)
    most, owner = empty.headroom(tenant)
    if needed > most:
        limit = f"the limit of tenant {owner} is {hosts_text(most)}"
        return Infeasible(f"needs {hosts_text(needed)}; {limit}")
    if tenants.has_kind_limits and (never := _beyond_kind(fabric, tenants, spec, needed)):
        return never
    if level_of(spec, tenants).is_preemptible:
        return None
    if needed <= fabric.host_count and empty.leaves_promises(tenant, needed, fabric.host_count):
        return None
    return Infeasible(
        f"needs {needed:,} hosts; tenant {tenant} can have"
        f" {empty.max_grant(tenant, fabric.host_count):,},"
        " the rest is guaranteed to others (preemptible jobs may use it)"
    )


def _beyond_kind(fabric: Fabric, tenants: Tenants, spec: JobSpec, needed: int) -> Infeasible | None:
    """Return why limits on hosts of some kind leave fewer than `needed`; None where they do not."""
    _, _, usable = _least_hosts(fabric, spec)
    by_name = empty_book(tenants, fabric).nodes
    for name in tenants.path(tenant_of(spec, tenants)):
        for kind in by_name[name].kinds:
            of_kind = usable & kind.hosts
            if of_kind and needed > (usable & ~kind.hosts).bit_count() + kind.limit:
                limit = f"the limit of tenant {name} is {hosts_text(kind.limit)} of {kind.text}"
                return Infeasible(f"needs {hosts_text(needed)}; {limit}")
    return None
