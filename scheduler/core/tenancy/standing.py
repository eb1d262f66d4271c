"""How tenants stand: what each may hold, holds, waits for and has used."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from muster.structs import struct
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.records.tenant import hosts_filled
from scheduler.core.model.state import State
from scheduler.core.policies.tenants import Tenant
from scheduler.core.tenancy.ownership import half_life_ns
from scheduler.core.tenancy.quota import nodes, of_kind
from scheduler.core.tenancy.quota_check import Quotas


@struct(frozen=True, slots=True)
class TenantStanding:
    """Sums of one tenant, with its sub-tenants: held, guaranteed and used. `share`: of the
    usage of its siblings and itself.

    `guaranteed_gpus` includes what its cells and sub-tenants are guaranteed. `held_by_kind`: GPUs,
    for each of its `kinds`.
    """

    tenant: Tenant
    guaranteed_gpus: int
    held_gpus: int
    queued_gpus: int
    used_gpu_s: int
    share: float
    kept_hosts: int
    held_by_kind: tuple[int, ...]


def standings(state: State, now_ns: int) -> tuple[TenantStanding, ...]:
    """Return the standing of all tenants, parents before children."""
    tenants, fabric = state.tenants, state.loaded_fabric
    by_name, gpus = nodes(tenants, fabric), fabric.gpus_per_host
    held, queued, used = Counter[str](), Counter[str](), Counter[str]()
    for leaf, account in state.accounts.items():
        whole_hosts = account.held - hosts_filled(account.part_gpus, gpus)
        for name in by_name[leaf].path:
            held[name] += whole_hosts * gpus + account.part_gpus
            used[name] += account.used_at(now_ns, half_life_ns(tenants))
    for job in map(state.jobs.__getitem__, chain(state.index.queue, state.index.deferred)):
        for name in by_name[job.tenant].path:
            queued[name] += job.part_gpus or job.needed * gpus
    siblings = Counter[str]()
    for tenant in tenants.tenants:
        siblings[tenant.parent] += used[tenant.name]
    quotas = Quotas(state)
    kept = quotas.withhold_for_cells(state.free)
    return tuple(
        TenantStanding(
            tenant,
            by_name[tenant.name].guaranteed * gpus,
            held[tenant.name],
            queued[tenant.name],
            used[tenant.name] * gpus // SECOND_NS,
            used[tenant.name] / siblings[tenant.parent] if siblings[tenant.parent] else 0.0,
            kept.get(tenant.name, 0).bit_count(),
            tuple(
                quotas.count_held(tenant.name, of_kind(fabric, kind.labels)) * gpus
                for kind in tenant.kinds
            ),
        )
        for tenant in tenants.tenants
    )
