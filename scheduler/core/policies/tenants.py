"""Who may hold how much: tenants in a tree, priority classes, and how usage fades.

A tenant's *guarantee* is capacity that others may use only as long as it can be had
back; its *limit* is what it never exceeds; what lies between is borrowed, from siblings
first. A guarantee may have a shape: cells, so many hosts in each of so many domains
(HiveD, OSDI 2020). Only the leaves of the tree take jobs.
"""

from __future__ import annotations

import hashlib
from dataclasses import field
from functools import cached_property
from typing import Final

from muster.structs import struct
from scheduler.core.names import DEFAULT_TENANT
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.spares import BY_DEFAULT, SparePolicy

WEEK_S: Final = 7 * 24 * 3600


@struct(frozen=True, slots=True)
class GuaranteedCell:
    """`count` domains of a tier with `hosts` hosts in each.

    0 hosts = whole domains: as many hosts as the smallest domain of the tier has. `labels`: what
    its hosts are labelled with; with those the tier may be "", for the whole fabric.
    """

    tier: str
    count: int
    hosts: int = 0
    labels: tuple[tuple[str, str], ...] = ()


@struct(frozen=True, slots=True)
class KindQuota:
    """Quota on hosts of one kind, which is what they are labelled with, beside that on all hosts.
    `limit_gpus` None: as much as there is."""

    labels: tuple[tuple[str, str], ...]
    guaranteed_gpus: int = 0
    limit_gpus: int | None = None

    @property
    def text(self) -> str:
        """The kind as `gpu=h100`."""
        return ",".join(f"{key}={value}" for key, value in self.labels)


@struct(frozen=True, slots=True)
class Tenant:
    """A tenant of the tenants file, and its quotas. `parent` is empty at the top. `limit_gpus`
    None: as much as there is.

    `guaranteed_gpus` includes what the cells hold. `weight`: share of what is left over that this
    tenant is due, against its siblings. `kinds`: quotas on hosts of some kind.
    """

    name: str
    parent: str = ""
    guaranteed_gpus: int = 0
    limit_gpus: int | None = None
    weight: int = 1
    cells: tuple[GuaranteedCell, ...] = ()
    kinds: tuple[KindQuota, ...] = ()


@struct(frozen=True, slots=True)
class PriorityClass:
    """A name for a priority. Preemptible jobs may use what is guaranteed to others."""

    name: str
    priority: int
    is_preemptible: bool = False


@struct(frozen=True, slots=True)
class Aging:
    """A waiting job gains `by` priority for every `every_s` seconds that it waits."""

    every_s: int
    by: int = 1


@struct(frozen=True, slots=True)
class Preemption:
    """When running jobs may be evicted, and what that is taken to cost.

    `min_run_s`: a gang is left alone for so long after it started. `is_by_usage`: of gangs of the
    same priority those leave first whose tenants have used the most beyond their shares.
    """

    is_on: bool = True
    min_run_s: int = 600
    costs: Costs = field(default_factory=Costs)
    is_by_usage: bool = False


@struct(frozen=True, slots=True)
class Restarts:
    """When a gang that fails again and again is started again (see core/rules/crash_loop.py).

    `attempts`: that may end in a row, by failing hosts, before anything was saved.
    `patience`: from how many on a gang waits before the next, first `backoff_s`, twice as
    long each time, at most `most_backoff_s`. `avoid_s`: how long a gang avoids the host
    that stopped it.
    """

    attempts: int = 10
    patience: int = 3
    backoff_s: int = 30
    most_backoff_s: int = 900
    avoid_s: int = 600


@struct(frozen=True, slots=True)
class Defragmentation:
    """When running gangs are moved so that room lies together.

    `every_s`: at most so often. `hosts`: as many are kept together in one outermost
    domain, 0 = only as many as a job that waits needs. `hosts_per_gpu_hour`: what moves
    gain at least for the work they cost.
    """

    every_s: int
    hosts: int = 0
    hosts_per_gpu_hour: int = 0


@struct(frozen=True)
class Tenants:
    """The content of a tenants file. Order: parents before children, as in the file.

    `default` takes the jobs that name no tenant. `half_life_s`: after this time usage
    counts half.
    """

    tenants: tuple[Tenant, ...] = (Tenant(DEFAULT_TENANT),)
    default: str = DEFAULT_TENANT
    classes: tuple[PriorityClass, ...] = ()
    half_life_s: int = WEEK_S
    aging: Aging | None = None
    preemption: Preemption = Preemption()
    defragmentation: Defragmentation | None = None
    spares: SparePolicy = BY_DEFAULT
    restarts: Restarts = Restarts()

    @cached_property
    def by_name(self) -> dict[str, Tenant]:
        return {tenant.name: tenant for tenant in self.tenants}

    @cached_property
    def place_by_name(self) -> dict[str, int]:
        """Position of each tenant in the file."""
        return {tenant.name: place for place, tenant in enumerate(self.tenants)}

    @cached_property
    def path_by_name(self) -> dict[str, tuple[str, ...]]:
        return {tenant.name: self.path(tenant.name) for tenant in self.tenants}

    @cached_property
    def class_by_name(self) -> dict[str, PriorityClass]:
        return {level.name: level for level in self.classes}

    @cached_property
    def inner(self) -> frozenset[str]:
        """Tenants that have sub-tenants, and hence no jobs of their own."""
        return frozenset(tenant.parent for tenant in self.tenants if tenant.parent)

    @cached_property
    def digest(self) -> str:
        """Text that is equal for equal contents."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def has_preemptible(self) -> bool:
        """Whether any class lets its gangs be evicted."""
        return any(level.is_preemptible for level in self.classes)

    @cached_property
    def has_cells(self) -> bool:
        """Whether a guarantee is one of certain hosts."""
        return any(t.cells or any(k.guaranteed_gpus for k in t.kinds) for t in self.tenants)

    @cached_property
    def has_kind_limits(self) -> bool:
        return any(kind.limit_gpus is not None for t in self.tenants for kind in t.kinds)

    def path(self, name: str) -> tuple[str, ...]:
        """Return the tenant and those above it, the topmost first."""
        names: list[str] = []
        while name:
            names.append(name)
            name = self.by_name[name].parent
        return tuple(reversed(names))


OPEN: Final = Tenants()  # without a tenants file: one tenant, which may do anything
