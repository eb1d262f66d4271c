"""Which gangs may be evicted for which job, or made smaller, in which order, and at what loss.

Only a gang that its class makes preemptible, and that has had its minimum run time, is
ever evicted: by a job of higher priority, or by one that cannot be preempted itself
and takes back what its own tenant is guaranteed, from a tenant that holds more than its
guarantee. Either way no two jobs can evict each other in turn.

An elastic gang drops replicas instead, by the same rights, where that is enough. What it
has grown beyond its size at the start it gives back to any job of no less priority.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.structs import struct
from placement.fabric.hostset import HostSet
from scheduler.core.capacity.shrink import ShrunkGang
from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.state import State
from scheduler.core.policies.costs import Costs
from scheduler.core.rules.affinity_index import AffinityIndex
from scheduler.core.tenancy.quota_check import Quotas
from scheduler.core.tenancy.spare_loans import SpareLoans


@struct(frozen=True, slots=True)
class Victim:
    """A gang that may be evicted, or made smaller. `hosts`: healthy hosts that it leaves;
    `held`: how many it gives up. `cost_ns`: host-time that has to be spent again, which is
    the same for a gang that is made smaller: it stops as well. `ripe_ns`: when its minimum
    run time is over. `least_dp`: the fewest replicas it is left with, 0 = it may be
    evicted. `smaller`: what is left of it, None: it is evicted; `end_ns`: when that is taken
    to end."""

    job: Job
    hosts: HostSet
    held: int
    cost_ns: int
    ripe_ns: int
    least_dp: int = 0
    smaller: ShrunkGang | None = None
    end_ns: int = 0

    @property
    def name(self) -> str:
        return self.job.name

    @property
    def dp(self) -> int:
        """Number of replicas left, 0 once evicted."""
        return self.smaller.job.dp if self.smaller else 0

    @property
    def retained(self) -> HostSet:
        """Hosts that it still holds, or has lent, once it is smaller."""
        return (self.smaller.hosts if self.smaller else 0) | self.job.lent_hosts

    @property
    def freed(self) -> HostSet:
        """All the hosts that it gives up."""
        if self.smaller:
            return self.job.allocation & ~self.smaller.hosts
        return self.job.owned


def candidates(state: State, now_ns: int, below: int | None = None) -> tuple[Victim, ...]:
    """List the gangs that run and are preemptible, or have grown, in order of start; of the
    preemptible ones with `below` only those of a lower priority. Jobs on parts of hosts, which
    leave none whole, are not among them."""
    if not state.tenants.preemption.is_on:
        return ()
    # Where no class is preemptible, only an elastic gang can be, and those are few.
    names = state.index.running if state.tenants.has_preemptible else state.index.special
    return tuple(
        victim(state, job, now_ns)
        for job in map(state.jobs.__getitem__, names)
        if job.state is JobState.RUNNING
        and not job.part_gpus
        and ((job.is_preemptible and (below is None or job.priority < below)) or job.has_grown)
    )


def victim(state: State, job: Job, now_ns: int) -> Victim:
    """Return this running gang as a victim: what its eviction now would free, and cost."""
    terms = state.tenants.preemption
    held = job.allocation
    ripe_ns = job.present.start_ns + terms.min_run_s * SECOND_NS
    return Victim(
        job,
        held
        & ~(state.index.out_of_service | SpareLoans(state).hosts),  # what it borrowed goes home
        held.bit_count(),
        cost_ns(job, now_ns, terms.costs),
        ripe_ns,
    )


def cost_ns(job: Job, now_ns: int, costs: Costs) -> int:
    """Host-time lost when the gang is stopped: work since its last checkpoint, a restart."""
    return job.loss_ns(now_ns, costs) * _size(job)


def _size(job: Job) -> int:
    return len(job.hosts) + len(job.spares)


def is_taken_back(job: Job, held_by: Victim, quotas: Quotas) -> bool:
    """Whether `job` takes back, from this gang, what its own tenant is guaranteed."""
    return (
        not job.is_preemptible
        and not quotas.is_open
        and quotas.is_lent(held_by.job.tenant, job.tenant)
    )


def may_be_evicted(job: Job, held_by: Victim, is_owed: bool, quotas: Quotas) -> bool:
    """Whether `job` may evict this gang. `is_owed`: promises cover all it needs."""
    if not held_by.job.is_preemptible:
        return False
    if held_by.job.priority < job.priority:
        return True
    return is_owed and is_taken_back(job, held_by, quotas)


def may_be_shrunk(job: Job, held_by: Victim) -> bool:
    """Whether this gang gives back to `job` what it has grown."""
    return held_by.job.has_grown and held_by.job.priority <= job.priority


def is_owed(job: Job, quotas: Quotas, hosts: int | None = None) -> bool:
    """Return whether the promises to the job's own tenants cover `hosts` more hosts; without
    `hosts`, all that the job needs."""
    needed = job.needed if hosts is None else hosts
    return not quotas.is_open and quotas.uncovered(job, needed) == 0


def fits(job: Job, free: HostSet, quotas: Quotas, barred: HostSet = 0) -> bool:
    """Return whether hosts, limits and promises leave room for `job` outside the `barred` hosts."""
    allowed = quotas.allowance(job, free)
    allowed = allowed.on(allowed.reach & ~barred)
    return job.needed <= min(allowed.limit, allowed.pool)


def unneeded(job: Job, victims: Sequence[Victim], free: HostSet, quotas: Quotas) -> Victim | None:
    """Return one of these victims that is not needed, for `job` has room without it; None where all
    are."""
    left_over = (free | freed(victims)).bit_count() - job.needed
    for gang in victims:
        if (gang.hosts & ~free).bit_count() > left_over:
            continue
        rest = [victim for victim in victims if victim is not gang]
        if fits(job, free | freed(rest), without_victims(quotas, rest)):
            return gang
    return None


def unneeded_to_swap(count: int, victims: Sequence[Victim], free: HostSet) -> Victim | None:
    """Return one of these victims that is not needed, for without it there are as many hosts to
    swap in; None where all are. `free`: with the spares of the gang that swaps."""
    for gang in victims:
        rest = [victim for victim in victims if victim is not gang]
        if (free | freed(rest)).bit_count() >= count:
            return gang
    return None


def without_victims(quotas: Quotas, victims: Sequence[Victim]) -> Quotas:
    """Return the quotas as they are once these gangs are gone, or smaller."""
    after = quotas.copy()
    for gang in victims:
        after.release_hosts(gang.job, gang.freed)
    return after


def alone(affinity: AffinityIndex, victims: Sequence[Victim]) -> AffinityIndex:
    """Return the affinity as it is once these gangs are gone, or smaller."""
    after = affinity.without([gang.name for gang in victims])
    for gang in victims:
        if gang.smaller:
            after.record_allocation(gang.job, gang.retained)
    return after


def freed(victims: Sequence[Victim]) -> HostSet:
    """Return the healthy hosts that these gangs leave."""
    hosts = 0
    for gang in victims:
        hosts |= gang.hosts
    return hosts
