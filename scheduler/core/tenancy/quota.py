"""Quotas in hosts: what each tenant holds, and what that leaves to it and to others.

The *promise* of a tenant is what must still be obtainable for it: its guarantee less
what it holds, or what its sub-tenants are promised where that is more. A job draws on
the promises of its own path first; hosts beyond them are borrowed. Jobs that cannot be
preempted borrow only what is promised to nobody.

A spare that is lent is held by two tenants. Limits count it for both. Guarantees count it for
the one that lends it, who has it back at any moment, and not for the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from copy import copy
from functools import lru_cache
from typing import NamedTuple

from muster.structs import struct
from placement import BadInput
from placement.fabric import hostset
from placement.fabric.constraints import Constraints, labelled
from placement.fabric.constraints import check as check_labels
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric, masks
from scheduler.core.policies.tenants import GuaranteedCell, KindQuota, Tenant, Tenants

UNLIMITED = 1 << 40


@struct(frozen=True, slots=True)
class KindLimit:
    """`limit`: hosts that a tenant may hold of `hosts`, which are of the kind `text`."""

    text: str
    hosts: HostSet
    limit: int


@struct(frozen=True, slots=True)
class QuotaNode:
    """A tenant's quota, in hosts. `path`: itself and those above it, from itself upwards. `kinds`:
    its limits on hosts of some kind."""

    name: str
    guaranteed: int
    limit: int
    path: tuple[str, ...]
    children: tuple[str, ...]
    kinds: tuple[KindLimit, ...] = ()


def count_of_kind(
    by_name: Mapping[str, QuotaNode], held: Mapping[str, HostSet], tenant: str, kind: HostSet
) -> int:
    """Return how many hosts of a kind a tenant holds, with its sub-tenants. `held`: hosts by tenant
    without sub-tenants."""
    leaves = (hosts for leaf, hosts in held.items() if tenant in by_name[leaf].path)
    return sum((hosts & kind).bit_count() for hosts in leaves)


@lru_cache(maxsize=8)
def nodes(tenants: Tenants, fabric: Fabric) -> Mapping[str, QuotaNode]:
    """Return the quotas of all tenants, in hosts. GPUs that fill no whole host do not count."""
    guaranteed = _guarantees(tenants, fabric).hosts
    children: dict[str, list[str]] = {tenant.name: [] for tenant in tenants.tenants}
    for tenant in tenants.tenants:
        if tenant.parent:
            children[tenant.parent].append(tenant.name)
    gpus = fabric.gpus_per_host
    return {
        tenant.name: QuotaNode(
            tenant.name,
            guaranteed[tenant.name],
            UNLIMITED if tenant.limit_gpus is None else tenant.limit_gpus // gpus,
            tuple(reversed(tenants.path(tenant.name))),
            tuple(children[tenant.name]),
            tuple(
                KindLimit(kind.text, of_kind(fabric, kind.labels), kind.limit_gpus // gpus)
                for kind in tenant.kinds
                if kind.limit_gpus is not None
            ),
        )
        for tenant in tenants.tenants
    }


class _Guarantees(NamedTuple):
    """By tenant. `least`: what its cells and its sub-tenants have; `hosts`: as stated, but that at
    least."""

    least: Mapping[str, int]
    hosts: Mapping[str, int]


def _guarantees(tenants: Tenants, fabric: Fabric) -> _Guarantees:
    """Cost: O(tenants)."""
    least: dict[str, int] = {}
    hosts: dict[str, int] = {}
    below = Counter[str]()  # of a tenant's children together
    for tenant in reversed(tenants.tenants):  # children before parents
        cells = sum(cell.count * cell_hosts(fabric, cell) for cell in cells_of(tenant, fabric))
        least[tenant.name] = max(below[tenant.name], cells)
        stated = tenant.guaranteed_gpus // fabric.gpus_per_host
        hosts[tenant.name] = max(stated, least[tenant.name])
        below[tenant.parent] += hosts[tenant.name]
    return _Guarantees(least, hosts)


def cells_of(tenant: Tenant, fabric: Fabric) -> tuple[GuaranteedCell, ...]:
    """Return a tenant's cells; a guarantee of a kind of hosts is a cell of the whole fabric."""
    gpus = fabric.gpus_per_host
    kinds = (
        GuaranteedCell("", 1, kind.guaranteed_gpus // gpus, kind.labels)
        for kind in tenant.kinds
        if kind.guaranteed_gpus >= gpus
    )
    return (*tenant.cells, *kinds)


@lru_cache(maxsize=64)
def cell_hosts(fabric: Fabric, cell: GuaranteedCell) -> int:
    """Return how many hosts one cell has."""
    return cell.hosts or min(mask.bit_count() for mask in cell_masks(fabric, cell))


@lru_cache(maxsize=64)
def cell_masks(fabric: Fabric, cell: GuaranteedCell) -> tuple[HostSet, ...]:
    """Return the hosts of each domain that a cell may lie in."""
    kind = of_kind(fabric, cell.labels)
    return tuple(mask & kind for mask in domain_masks(fabric, cell.tier)) if cell.tier else (kind,)


def of_kind(fabric: Fabric, labels: tuple[tuple[str, str], ...]) -> HostSet:
    """Return the hosts that have these labels."""
    return labelled(fabric, Constraints(labels=labels), hostset.full(fabric.host_count))


def domain_masks(fabric: Fabric, tier_name: str) -> tuple[HostSet, ...]:
    """The hosts of each domain of a tier. Raises: ValueError when there is no such tier."""
    return masks(fabric, [tier.name for tier in fabric.tiers].index(tier_name))


def outer_domains(fabric: Fabric) -> tuple[tuple[str, HostSet], ...]:
    """Return the outermost domains with their hosts, in the order of the fabric; none where it has
    no tiers."""
    return (
        tuple(zip(fabric.tiers[0].domains, masks(fabric, 0), strict=True)) if fabric.tiers else ()
    )


def check(tenants: Tenants, fabric: Fabric) -> None:
    """Refuse guarantees beyond the fabric.

    Raises: BadInput naming the tenant and the key.
    """
    for tenant in tenants.tenants:
        for cell in tenant.cells:
            _check_cell(tenant, cell, fabric)
        for kind in tenant.kinds:
            _check_kind(tenant, kind, fabric)
    guarantees = _guarantees(tenants, fabric)
    for tenant in tenants.tenants:
        _check_tenant(tenant, guarantees.least[tenant.name], fabric)
    total = sum(guarantees.hosts[tenant.name] for tenant in tenants.tenants if not tenant.parent)
    if total > fabric.host_count:
        there = fabric.host_count * fabric.gpus_per_host
        promised = total * fabric.gpus_per_host
        raise BadInput("tenants", f"guarantee {promised:,} GPUs; {fabric.name} has {there:,}")


def _check_cell(tenant: Tenant, cell: GuaranteedCell, fabric: Fabric) -> None:
    field, known = f"tenants.{tenant.name}.cells", [tier.name for tier in fabric.tiers]
    if cell.tier not in known:
        raise BadInput(field, f"no tier {cell.tier!r}; {fabric.name} has {', '.join(known)}")
    sizes = sorted((m.bit_count() for m in domain_masks(fabric, cell.tier)), reverse=True)
    if len(sizes) < cell.count or sizes[cell.count - 1] < cell.hosts:
        size = f"{cell.hosts} hosts" if cell.hosts else "any size"
        raise BadInput(field, f"{fabric.name} has no {cell.count} {cell.tier}s of {size}")


def _check_kind(tenant: Tenant, kind: KindQuota, fabric: Fabric) -> None:
    field = f"tenants.{tenant.name}.kinds"
    try:
        check_labels(fabric, Constraints(labels=kind.labels))
    except BadInput as error:
        raise BadInput(field, error.message) from None
    there = of_kind(fabric, kind.labels).bit_count() * fabric.gpus_per_host
    if kind.guaranteed_gpus > there:
        message = f"guarantee {kind.guaranteed_gpus:,} GPUs of {kind.text}"
        raise BadInput(field, f"{message}; {fabric.name} has {there:,}")
    if kind.limit_gpus is not None and kind.limit_gpus < kind.guaranteed_gpus:
        message = f"{kind.limit_gpus:,} GPUs of {kind.text} is below the guarantee of"
        raise BadInput(field, f"{message} {kind.guaranteed_gpus:,}")


def _check_tenant(tenant: Tenant, least_hosts: int, fabric: Fabric) -> None:
    gpus = fabric.gpus_per_host
    field = f"tenants.{tenant.name}"
    stated, least = tenant.guaranteed_gpus, least_hosts * gpus
    if stated and stated // gpus < least_hosts:
        message = f"{stated:,} GPUs; its cells or its sub-tenants have {least:,}"
        raise BadInput(f"{field}.guaranteed_gpus", message)
    if tenant.limit_gpus is not None and tenant.limit_gpus < max(stated, least):
        message = f"{tenant.limit_gpus:,} GPUs is below the guarantee of {max(stated, least):,}"
        raise BadInput(f"{field}.limit_gpus", message)


class QuotaBook:
    """Hosts that each tenant holds, by count. Mutable: a decision writes its own starts into a
    copy.

    `is_open`: no tenant has a limit or a guarantee. `held`: hosts that limits count; guarantees
    count of these only hosts that are not spares of others.
    """

    def __init__(self, by_name: Mapping[str, QuotaNode], held_by_leaf: Mapping[str, int]) -> None:
        self.nodes = by_name
        self.is_open = not any(
            n.guaranteed or n.limit < UNLIMITED or n.kinds for n in by_name.values()
        )
        self.held = dict.fromkeys(by_name, 0)
        self._own = dict.fromkeys(by_name, 0)
        self._promise = dict.fromkeys(by_name, 0)
        self.promised = 0  # to all tenants together
        self._below = dict.fromkeys(by_name, 0)  # promised to a tenant's children
        for name in reversed(list(by_name)):  # children before parents
            self._settle(name)
        for leaf, hosts in held_by_leaf.items():
            self.take(leaf, hosts)

    def copy(self) -> QuotaBook:
        copied = copy(self)
        copied.held, copied._own = self.held.copy(), self._own.copy()
        copied._promise, copied._below = self._promise.copy(), self._below.copy()
        return copied

    def take(self, leaf: str, hosts: int, borrowed: int = 0) -> None:
        """Record that the tenant `leaf` takes hosts (negative: gives them back), of which so many
        are spares of others. Cost: O(depth)."""
        for name in self.nodes[leaf].path:
            self.held[name] += hosts
            self._own[name] += hosts - borrowed
            self._settle(name)

    def _settle(self, name: str) -> None:
        """Bring the promise of `name` up to date, and what those above count of it."""
        node = self.nodes[name]
        promise = max(node.guaranteed - self._own[name], self._below[name])
        change = promise - self._promise[name]
        self._promise[name] = promise
        if len(node.path) > 1:
            self._below[node.path[1]] += change
        else:
            self.promised += change

    def outstanding(self) -> dict[str, int]:
        """Return the hosts promised to each tenant that has no sub-tenants with promises of their
        own.

        A parent's promise beyond that of its sub-tenants stands under its own name.
        """
        own = {name: self._promise[name] - self._below[name] for name in self.nodes}
        return {name: hosts for name, hosts in own.items() if hosts > 0}

    def limit(self, name: str) -> int:
        """Hosts that the tenant may hold."""
        return self.nodes[name].limit

    def due(self, name: str) -> int:
        """Return how many hosts the tenant lacks of its own guarantee."""
        return max(0, self.nodes[name].guaranteed - self._own[name])

    def headroom(self, leaf: str) -> tuple[int, str]:
        """Return how many hosts limits leave to `leaf`, and the tenant whose limit it is."""
        return min((self.nodes[n].limit - self.held[n], n) for n in self.nodes[leaf].path)

    def headrooms(self, leaf: str) -> tuple[tuple[str, int], ...]:
        """Return each finite limit above `leaf`, with the hosts that it leaves."""
        return tuple(
            (name, node.limit - self.held[name])
            for name in self.nodes[leaf].path
            if (node := self.nodes[name]).limit < UNLIMITED
        )

    def covered(self, leaf: str, hosts: int) -> int:
        """How many of `hosts` more hosts the promises of the tenant's own path cover."""
        drop = 0
        for name in self.nodes[leaf].path:
            node = self.nodes[name]
            after = max(node.guaranteed - self._own[name] - hosts, self._below[name] - drop)
            drop = self._promise[name] - after
        return drop

    def reclaimable(self, preemptible_by_leaf: Mapping[str, int]) -> int:
        """How many of these hosts, which preemptible gangs hold, tenants hold beyond their
        guarantees: others can take them back."""
        lent = dict.fromkeys(("", *self.nodes), 0)
        for name, node in reversed(list(self.nodes.items())) if preemptible_by_leaf else ():
            hosts = lent[name] + preemptible_by_leaf.get(name, 0)
            above = node.path[1] if len(node.path) > 1 else ""
            lent[above] += max(0, min(hosts, self._own[name] - node.guaranteed))
        return lent[""]

    def is_within_guarantee(self, name: str) -> bool:
        return self._own[name] < self.nodes[name].guaranteed

    def is_beyond_guarantee(self, name: str) -> bool:
        return self._own[name] > self.nodes[name].guaranteed

    def leaves_promises(self, leaf: str, hosts: int, free: int) -> bool:
        """Return whether the promises to other tenants stand when `leaf` takes `hosts` of
        `free`."""
        return hosts - self.covered(leaf, hosts) <= max(0, free - self.promised)

    def max_grant(self, leaf: str, free: int) -> int:
        """Return how many hosts of `free` the tenant `leaf` can have while the promises to others
        stand. It is found by bisection, for more hosts are never covered better."""
        low, high = 0, free
        while low < high:
            middle = (low + high + 1) // 2
            if self.leaves_promises(leaf, middle, free):
                low = middle
            else:
                high = middle - 1
        return low


@lru_cache(maxsize=8)
def empty_book(tenants: Tenants, fabric: Fabric) -> QuotaBook:
    """Return the book in which no tenant holds hosts. It is made once, so it must not be written
    into."""
    return QuotaBook(nodes(tenants, fabric), {})
