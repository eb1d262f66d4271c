"""Limits, guarantees and shapes of a tree of tenants.

The promise of each tenant is computed here a second time, from the definition in
docs/scheduling.md, on nothing but who holds which hosts.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from scheduler.core import Job, JobState, State
from scheduler.core.policies.tenants import Aging, GuaranteedCell, PriorityClass, Tenant, Tenants

GPUS = 8
RACKS = (0b11, 0b1100, 0b110000, 0b11000000)  # of a fabric of 2 zones of 2 racks of 2 hosts
CLASSES = (PriorityClass("spot", -5, is_preemptible=True), PriorityClass("urgent", 5))

# research guarantees 4 hosts, of which vision has 1 and language a rack of 2.
PLAIN = Tenants(
    (
        Tenant("research", guaranteed_gpus=4 * GPUS, limit_gpus=6 * GPUS),
        Tenant("vision", "research", guaranteed_gpus=1 * GPUS, limit_gpus=4 * GPUS),
        Tenant("language", "research", guaranteed_gpus=2 * GPUS, weight=2),
        Tenant("product", guaranteed_gpus=2 * GPUS, limit_gpus=5 * GPUS),
        Tenant("default"),
    ),
    classes=CLASSES,
    half_life_s=100,
    aging=Aging(50, 1),
)
SHAPED = Tenants(
    (
        Tenant("research", limit_gpus=6 * GPUS),
        Tenant("vision", "research", guaranteed_gpus=1 * GPUS),
        Tenant("language", "research", cells=(GuaranteedCell("rack", 1),)),
        Tenant("product", cells=(GuaranteedCell("zone", 1, 2),)),
        Tenant("default", limit_gpus=6 * GPUS),
    ),
    classes=CLASSES,
)


def holding(state: State, name: str) -> HostSet:
    """Hosts of the tenant and those below it."""
    hosts = 0
    for job in state.jobs.values():
        if name in state.tenants.path(job.tenant):
            hosts |= job.allocation
    return hosts


def own(state: State, name: str) -> HostSet:
    """Those of them that nobody has back at will, and those that they have back from others."""
    hosts = holding(state, name) & ~state.index.lent
    for job in state.jobs.values():
        if name in state.tenants.path(job.tenant):
            hosts |= hostset.of(job.present.lent)
    return hosts


def guarantee(tenants: Tenants, tenant: Tenant) -> int:
    """In hosts."""
    below = sum(guarantee(tenants, t) for t in tenants.tenants if t.parent == tenant.name)
    cells = sum(cell.count * (cell.hosts or 2) for cell in tenant.cells)
    return max(tenant.guaranteed_gpus // GPUS, below, cells)


def promise(state: State, parent: str = "") -> int:
    """Hosts that must still be obtainable for the tenants below `parent` together."""
    tenants = [t for t in state.tenants.tenants if t.parent == parent]
    return sum(
        max(
            guarantee(state.tenants, t) - own(state, t.name).bit_count(),
            promise(state, t.name),
        )
        for t in tenants
    )


def check_state(state: State) -> None:
    for tenant in state.tenants.tenants:
        held = holding(state, tenant.name).bit_count()
        if tenant.name not in state.tenants.inner:
            assert state.account(tenant.name).held == held


def lent(state: State, name: str = "") -> int:
    """Hosts of preemptible gangs that `name` holds beyond its guarantee, or all together."""
    gangs = [j for j in state.jobs.values() if j.tenant == name and j.is_preemptible]
    lent_out = state.index.unhealthy | state.index.lent
    hosts = sum(
        (j.allocation & ~lent_out).bit_count() for j in gangs if j.state is JobState.RUNNING
    )
    hosts += sum(lent(state, t.name) for t in state.tenants.tenants if t.parent == name)
    if not name:
        return hosts
    due = guarantee(state.tenants, state.tenants.by_name[name])
    return max(0, min(hosts, own(state, name).bit_count() - due))


def check_start(before: State, after: State, job: Job, can_take_back: bool = True) -> None:
    """Limits hold; what is not preemptible leaves the promises to others whole: as many
    hosts are free, or lent to those who can be evicted."""
    tenants = before.tenants
    for name in tenants.path(job.tenant):
        limit = tenants.by_name[name].limit_gpus
        held = (holding(after, name) | own(after, name)).bit_count()
        assert limit is None or held * GPUS <= limit
    if job.is_preemptible:
        return
    taken = (before.free & ~after.free).bit_count()
    is_covered = promise(before) - promise(after) == taken
    back = lent(after) if can_take_back else 0
    assert is_covered or after.free.bit_count() + back >= promise(after)
    shaped = [tenant for tenant in tenants.tenants if tenant.cells]
    cells = [cell for tenant in shaped for cell in tenant.cells]
    others = [c for t in shaped if t.name not in tenants.path(job.tenant) for c in t.cells]
    # Failures and preemptible work may have left one domain for two cells.
    is_whole = not any(own(before, t.name) for t in shaped) and can_have(before.free, cells)
    assert not is_whole or can_have(after.free, others)


def can_have(free: HostSet, cells: Sequence[GuaranteedCell]) -> bool:
    """Whether all these cells can be had at once."""
    if not cells:
        return True
    return any(can_have(free & ~hosts, cells[1:]) for hosts in choices(free, cells[0]))


def choices(free: HostSet, cell: GuaranteedCell) -> Iterator[HostSet]:
    for domain in RACKS if cell.tier == "rack" else (0b1111, 0b11110000):
        yield from map(hostset.of, combinations(hostset.members(free & domain), cell.hosts or 2))
