"""Admission by quota: how many hosts a job may take now, and which.

Limits bound what a tenant holds. Promises to other tenants bound what it borrows, by
number and, where a guarantee has a shape, by place.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from copy import copy
from functools import cached_property

from muster.structs import replace, struct
from placement.fabric import hostset
from placement.fabric.constraints import labelled
from placement.fabric.hostset import HostSet
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.records.tenant import hosts_filled
from scheduler.core.model.state import State
from scheduler.core.tenancy.future_quota import FutureQuota
from scheduler.core.tenancy.guarantees import highest, withhold_for_cells
from scheduler.core.tenancy.quota import UNLIMITED, KindLimit, QuotaBook, count_of_kind, empty_book
from scheduler.core.tenancy.spare_loans import SpareLoans


@struct(frozen=True, slots=True)
class Allowance:
    """Hosts that a job's tenant may take at this moment.

    `limit`: hosts that limits leave, `whose` limit it is, and of which `kind` of hosts, "" of all.
    `reach`: free hosts that are not kept for others. `own`: those among them kept for this tenant.
    `pool`: hosts of `reach` at most, while the promises to others stand. `beyond`: the kind of
    hosts of which some are not in `reach`, for a limit on them leaves fewer; "" for none.
    """

    limit: int
    whose: str
    reach: HostSet
    own: HostSet
    pool: int
    kind: str = ""
    beyond: str = ""

    @property
    def limit_key(self) -> str:
        """The key of `Quotas.limits_on` for the limit that counts."""
        return limit_key(self.whose, self.kind)

    def on(self, hosts: HostSet) -> Allowance:
        """Return the allowance on no other hosts than these."""
        if hosts == self.reach:
            return self
        pool = min(self.pool, hosts.bit_count())
        return replace(self, reach=hosts, own=self.own & hosts, pool=pool)

    def capped(self, count: int) -> Allowance:
        """Return the allowance with `count` hosts at most."""
        return self if self.pool <= count else replace(self, pool=max(0, count))


def limit_key(tenant: str, kind: str) -> str:
    """Return a key for the limit of a tenant on a kind of hosts; `kind` "": on all hosts."""
    return f"{tenant} {kind}" if kind else tenant


class Quotas:
    """The quotas while one decision is made. Mutable: each start is entered.

    `can_take_back`: hosts lent to preemptible gangs count as obtainable, as they are under
    a policy that preempts. Without it a promise is kept by free hosts alone.
    """

    def __init__(self, state: State, can_take_back: bool = True) -> None:
        self._tenants, self._fabric = state.tenants, state.loaded_fabric
        self._empty, self._accounts = empty_book(state.tenants, self._fabric), state.accounts
        self._by_name, self.is_open = self._empty.nodes, self._empty.is_open
        accounts = state.accounts.items() if state.index.shared else ()
        self._part_gpus = {name: account.part_gpus for name, account in accounts}  # by tenant
        self._borrowed: dict[str, HostSet] = {}  # others' spares, by the tenant that uses them
        loans = SpareLoans(state)
        for job in state.holding if loans.hosts else ():
            self._take(job.tenant, job.lent_hosts.bit_count())  # it still holds them
            self._borrow(job, loans.borrowed(job))
        self._knows_hosts = state.tenants.has_cells or state.tenants.has_kind_limits
        self._held = _hosts_by_leaf(state) if self._knows_hosts else {}
        self._unhealthy = state.index.unhealthy | loans.hosts
        is_lending = can_take_back and state.tenants.preemption.is_on and not self.is_open
        self._lent = _preemptible_by_leaf(state) if is_lending else None
        self._kept: dict[str, HostSet] | None = None
        self._memo: dict[Hashable, Allowance] = {}

    @cached_property
    def book(self) -> QuotaBook:
        """Number of hosts that each tenant holds; of none where nobody is promised or denied
        anything, for then nothing depends on it."""
        if self.is_open:
            return self._empty
        book = self._empty.copy()
        for name, account in self._accounts.items():
            book.take(name, account.held)
        return book

    def _take(self, leaf: str, hosts: int, borrowed: int = 0) -> None:
        """`leaf` takes hosts, see `QuotaBook.take`."""
        if not self.is_open:
            self.book.take(leaf, hosts, borrowed)

    def allowance(self, job: Job, free: HostSet) -> Allowance:
        """Return what hosts the tenant of `job` may take of `free`. Answers are remembered until
        the next start."""
        key = (self.allowance_key(job), job.part_gpus)
        if key not in self._memo:
            self._memo[key] = self._allowance(job, free)
        return self._memo[key]

    def allowance_key(self, job: Job) -> Hashable:
        """Return a key that is equal for jobs of whole hosts to which quotas leave the same."""
        where = job.request.where if self._tenants.has_kind_limits else None
        return job.tenant, job.is_preemptible, where

    def limits_on(self, job: Job) -> Iterator[str]:
        """Yield a key for each limit that counts all hosts of `job`."""
        for name in self.path(job.tenant):
            yield name
            yield from (limit_key(name, kind.text) for kind in self.kinds_of(job, name))

    def kinds_of(self, job: Job, tenant: str) -> list[KindLimit]:
        """Return the limits of a tenant on kinds of hosts, of those that count all of `job`."""
        return [kind for kind in self._by_name[tenant].kinds if self._is_of(job, kind)]

    def _is_of(self, job: Job, kind: KindLimit) -> bool:
        """Whether `job` takes no other hosts."""
        everything = hostset.full(self._fabric.host_count)
        return not labelled(self._fabric, job.request.where, everything) & ~kind.hosts

    def count_held(self, tenant: str, kind: HostSet) -> int:
        """Return how many hosts of a kind the tenant holds, with its sub-tenants."""
        return count_of_kind(self._by_name, self._held, tenant, kind)

    def kind_limit(self, tenant: str, kind: str) -> KindLimit:
        """Return the limit of a tenant on hosts of the kind of this text."""
        return next(each for each in self._by_name[tenant].kinds if each.text == kind)

    def _below_kind_limits(self, job: Job, allowed: Allowance) -> Allowance:
        """Return the allowance with no more hosts of each kind than limits on it leave."""
        for name in self.path(job.tenant):
            for kind in self._by_name[name].kinds:
                room = kind.limit - self.count_held(name, kind.hosts)
                own = allowed.reach & kind.hosts
                if self._is_of(job, kind):
                    if room < allowed.limit:
                        allowed = replace(allowed, limit=room, whose=name, kind=kind.text)
                elif room < own.bit_count():
                    reach = allowed.reach & ~own | highest(own, max(0, room))
                    allowed = replace(allowed.on(reach), beyond=kind.text)
        return allowed

    def _allowance(self, job: Job, free: HostSet) -> Allowance:
        if self.is_open:
            return Allowance(UNLIMITED, "", free, 0, free.bit_count())
        limit, owner = self.book.headroom(job.tenant)
        limit += job.part_gpus > 0 and not self.counted(job, 1)  # a host that does not count
        own, withheld = self._cells(job, free)
        reach = free & ~withheld
        pool = reach.bit_count()
        if not job.is_preemptible:
            obtainable = free.bit_count() + self.book.reclaimable(self._lent or {})
            pool = min(pool, self.book.max_grant(job.tenant, obtainable))
        return self._below_kind_limits(job, Allowance(limit, owner, reach, own, pool))

    def _cells(self, job: Job, free: HostSet) -> tuple[HostSet, HostSet]:
        """Free hosts kept for the job's tenant, and those that it has to leave alone."""
        own, withheld = 0, 0
        for name, hosts in self.withhold_for_cells(free).items():
            if name in self._by_name[job.tenant].path:
                own |= hosts
            elif not job.is_preemptible:
                withheld |= hosts
        return own, withheld

    def withhold_for_cells(self, free: HostSet) -> dict[str, HostSet]:
        """Return the free hosts kept for each tenant with cells."""
        if self._kept is None:
            self._kept = withhold_for_cells(
                self._tenants, self._fabric, self._by_name, self._held, free
            )
        return self._kept

    def _borrow(self, job: Job, hosts: HostSet) -> None:
        """Count `hosts` as borrowed by the job's tenant."""
        self._take(job.tenant, 0, hosts.bit_count())
        self._borrowed[job.tenant] = self._borrowed.get(job.tenant, 0) | hosts

    def record_allocation(self, job: Job, hosts: HostSet, borrowed: HostSet = 0) -> None:
        """Record that `job` starts on these hosts, some of them `borrowed` from the spares of
        others."""
        own = hosts & ~borrowed
        self._take(job.tenant, self.counted(job, hosts.bit_count()))
        if job.part_gpus:
            self._part_gpus[job.tenant] = self._part_gpus.get(job.tenant, 0) + job.part_gpus
        if borrowed:
            self._borrow(job, borrowed)
        self._lend(job, own.bit_count())
        if self._knows_hosts:
            self._held[job.tenant] = self._held.get(job.tenant, 0) | own
        self._kept = None
        self._memo.clear()

    def counted(self, job: Job, hosts: int) -> int:
        """Return by how many hosts the holding of the tenant of `job` grows when the job takes so
        many. Parts of hosts of one tenant count together as the hosts that they would fill."""
        if not job.part_gpus:
            return hosts
        before, per_host = self._part_gpus.get(job.tenant, 0), self._fabric.gpus_per_host
        return hosts_filled(before + job.part_gpus, per_host) - hosts_filled(before, per_host)

    def release_hosts(self, job: Job, hosts: HostSet) -> None:
        """Release hosts of `job`; spares that it had lent are now their borrowers' own."""
        borrowed = hosts & job.allocation & self._borrowed.get(job.tenant, 0)
        if borrowed:
            self._return(job.tenant, borrowed)
        self._take(job.tenant, -hosts.bit_count())
        self._lend(job, -(hosts & ~self._unhealthy).bit_count())
        if self._knows_hosts:
            self._held[job.tenant] &= ~hosts
        if lent := hosts & job.lent_hosts:
            self._pass_over(lent)
        self._kept = None
        self._memo.clear()

    def _pass_over(self, lent: HostSet) -> None:
        for tenant, borrowed in self._borrowed.items():
            if now_own := borrowed & lent:
                self._return(tenant, now_own)
                if self._knows_hosts:
                    self._held[tenant] = self._held.get(tenant, 0) | now_own

    def _return(self, tenant: str, borrowed: HostSet) -> None:
        """Count these hosts of the tenant as borrowed no longer."""
        self._take(tenant, 0, -borrowed.bit_count())
        self._borrowed[tenant] &= ~borrowed

    def _lend(self, job: Job, hosts: int) -> None:
        if job.is_preemptible and self._lent is not None:
            self._lent[job.tenant] = self._lent.get(job.tenant, 0) + hosts

    def later(self) -> FutureQuota:
        """Return a copy of the quotas that changes as gangs end."""
        tenants, fabric = self._tenants, self._fabric
        if self.is_open:
            return FutureQuota(tenants, fabric, self._by_name, self._empty, {}, {})
        held, part_gpus = self._held.copy(), self._part_gpus.copy()
        return FutureQuota(tenants, fabric, self._by_name, self.book.copy(), held, part_gpus)

    @property
    def has_cells(self) -> bool:
        """Whether a guarantee has a shape."""
        return self._tenants.has_cells

    def copy(self) -> Quotas:
        """Return a copy, to try something out."""
        copied = copy(self)
        if not self.is_open:
            copied.book = self.book.copy()
        copied._held, copied._borrowed = self._held.copy(), self._borrowed.copy()
        copied._part_gpus = self._part_gpus.copy()
        copied._lent = None if self._lent is None else self._lent.copy()
        copied._kept, copied._memo = None, {}
        return copied

    def is_lent(self, tenant: str, owner: str) -> bool:
        """Return whether each tenant above `tenant` that is not above `owner` holds more than its
        guarantee, so that part of it may be lent by `owner`."""
        apart = set(self.path(tenant)) - set(self.path(owner))
        return bool(apart) and all(self.book.is_beyond_guarantee(name) for name in apart)

    def path(self, tenant: str) -> tuple[str, ...]:
        """Return the tenant and those above it."""
        return self._by_name[tenant].path

    def borrowed(self, job: Job, hosts: int, book: QuotaBook | None = None) -> int:
        """How many of `hosts` more hosts the job would borrow and not give back."""
        return 0 if job.is_preemptible else self.uncovered(job, hosts, book)

    def uncovered(self, job: Job, hosts: int, book: QuotaBook | None = None) -> int:
        """How many of `hosts` more hosts no promise to the job's own tenants covers."""
        return 0 if self.is_open else hosts - (book or self.book).covered(job.tenant, hosts)


def _preemptible_by_leaf(state: State) -> dict[str, int]:
    """Healthy hosts of each tenant's gangs that can be evicted."""
    by_leaf: dict[str, int] = {}
    elsewhere = state.index.unhealthy | SpareLoans(state).hosts
    for job in state.in_state(JobState.RUNNING):
        if job.is_preemptible:
            hosts = (job.allocation & ~elsewhere).bit_count()
            by_leaf[job.tenant] = by_leaf.get(job.tenant, 0) + hosts
    return by_leaf


def _hosts_by_leaf(state: State) -> dict[str, HostSet]:
    held: dict[str, HostSet] = {}
    loans = SpareLoans(state)
    for job in state.in_state(JobState.RUNNING, JobState.INTERRUPTED):
        held[job.tenant] = held.get(job.tenant, 0) | loans.owned(job)
    return held
