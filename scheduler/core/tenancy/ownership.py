"""Tenants in the state: whose job it is, and what its tenant holds and has used."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from muster.structs import replace
from scheduler.core.collections.name_list import NameList
from scheduler.core.collections.persistent_map import PersistentMap
from scheduler.core.model.events import TenantsLoaded
from scheduler.core.model.job import SECOND_NS, Job, JobSpec
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.records.tenant import UsageAccount, hosts_filled, marked
from scheduler.core.model.state import State
from scheduler.core.policies.tenants import PriorityClass, Tenants


def owned(job: Job, tenants: Tenants) -> Job:
    """Return the job with the tenant and the priority that its specification has under
    `tenants`."""
    level = level_of(job.spec, tenants)
    return replace(
        job,
        tenant=tenant_of(job.spec, tenants),
        priority=level.priority,
        is_preemptible=level.is_preemptible,
    )


def tenant_of(spec: JobSpec, tenants: Tenants) -> str:
    return spec.tenant or tenants.default


def level_of(spec: JobSpec, tenants: Tenants) -> PriorityClass:
    """Return the priority class of a job, or a class of its own for a job that gives a number."""
    if spec.priority_class:
        return tenants.class_by_name[spec.priority_class]
    return _own_level(spec.priority)


@lru_cache(maxsize=1024)
def _own_level(priority: int) -> PriorityClass:
    return PriorityClass("", priority)


def charged(
    state: State, tenant: str, more: int, now_ns: int, part_gpus: int = 0
) -> PersistentMap[str, UsageAccount]:
    """Return the accounts after `tenant` took `more` hosts and so many GPUs on parts of hosts
    (negative: gave them back)."""
    accounts = state.accounts
    overlay = accounts if isinstance(accounts, PersistentMap) else PersistentMap(accounts)
    before = state.account(tenant)
    if part_gpus:
        per_host = state.built_fabric.gpus_per_host
        more += hosts_filled(before.part_gpus + part_gpus, per_host)
        more -= hosts_filled(before.part_gpus, per_host)
    elif not more:
        return overlay
    account = before.having(more, now_ns, half_life_ns(state.tenants), part_gpus)
    return overlay.having(tenant, account)


def half_life_ns(tenants: Tenants) -> int:
    return tenants.half_life_s * SECOND_NS


def reloaded(state: State, event: TenantsLoaded) -> State:
    """Return the state under another tenants file: live jobs get their tenant and priority anew,
    and what a tenant has used stays with its name.

    Raises: KeyError when a live job names a tenant or a class that is no longer there.
    """
    jobs = {name: owned(job, event.tenants) for name, job in state.jobs.items()}
    waiting = (j for j in jobs.values() if j.state is JobState.QUEUED)
    queued = sorted(
        (j for j in waiting if j.name not in state.index.deferred), key=lambda j: j.order
    )
    held, parts = Counter[str](), Counter[str]()
    for job in jobs.values():
        event.tenants.by_name[job.tenant]
        if job.part_gpus:
            parts[job.tenant] += len(job.present.gpus)
        else:
            held[job.tenant] += len(job.hosts) + len(job.spares)
    for name, gpus in parts.items():
        held[name] += hosts_filled(gpus, state.built_fabric.gpus_per_host)
    used = {
        name: account.used_at(event.time_ns, half_life_ns(state.tenants))
        for name, account in state.accounts.items()
    }
    names = [t.name for t in event.tenants.tenants if held[t.name] or used.get(t.name)]
    return replace(
        state,
        tenants=event.tenants,
        marks=PersistentMap(marked(state.mark, state.tenants, event.tenants, event.time_ns)),
        jobs=PersistentMap(jobs),
        index=replace(state.index, queue=NameList(job.name for job in queued)),
        accounts=PersistentMap(
            {n: UsageAccount(held[n], used.get(n, 0), event.time_ns, parts[n]) for n in names}
        ),
    )
