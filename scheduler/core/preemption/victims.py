"""Who may be sent away for whom, in which order, and at what loss.

Only a gang that its class makes preemptible, and that has had its minimum run time, is
ever sent away: by a job of higher priority, or by one that cannot be preempted itself
and takes back what its own tenant is guaranteed, from a tenant that holds more than its
guarantee. Either way no two jobs can send each other away in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placement.hostset import HostSet
from scheduler.core.costs import Costs
from scheduler.core.events import JobPreempted
from scheduler.core.job import SECOND_NS, Job
from scheduler.core.lifecycle import JobState
from scheduler.core.state import State
from scheduler.core.tenancy.admission import Quotas
from scheduler.core.words import duration


@dataclass(frozen=True, slots=True)
class Victim:
    """A gang that may be sent away. `hosts`: those that it leaves healthy; `held`: how
    many it holds. `cost_ns`: host-time that has to be spent again. `ripe_ns`: when its
    minimum run time is over."""

    job: Job
    hosts: HostSet
    held: int
    cost_ns: int
    ripe_ns: int

    @property
    def name(self) -> str:
        return self.job.name


def candidates(state: State, now_ns: int, below: int | None = None) -> tuple[Victim, ...]:
    """The preemptible gangs that run, in order of start; with `below`, only those of less
    priority than that."""
    terms = state.tenants.preemption
    if not terms.is_on or not any(level.is_preemptible for level in state.tenants.classes):
        return ()
    running = (job for job in state.in_state(JobState.RUNNING) if job.is_preemptible)
    return tuple(
        victim(state, job, now_ns) for job in running if below is None or job.priority < below
    )


def victim(state: State, job: Job, now_ns: int) -> Victim:
    """This running gang as it would be sent away now."""
    terms = state.tenants.preemption
    held = job.held
    ripe_ns = job.start_ns + terms.min_run_s * SECOND_NS
    return Victim(
        job,
        held & ~state.out_of_service,
        held.bit_count(),
        cost_ns(job, now_ns, terms.costs),
        ripe_ns,
    )


def cost_ns(job: Job, now_ns: int, costs: Costs) -> int:
    """Host-time lost when the gang is stopped: work since its last checkpoint, a restart."""
    return job.costs(costs).lost_ns(job.attempt, max(0, now_ns - job.start_ns)) * _size(job)


def _size(job: Job) -> int:
    return len(job.hosts) + len(job.spares)


def is_taken_back(job: Job, held_by: Victim, quotas: Quotas) -> bool:
    """Whether `job` takes back, from this gang, what its own tenant is guaranteed."""
    return (
        not job.is_preemptible
        and not quotas.is_open
        and quotas.is_lent(held_by.job.tenant, job.tenant)
    )


def may_be_sent(job: Job, held_by: Victim, is_owed: bool, quotas: Quotas) -> bool:
    """Whether `job` may send this gang away. `is_owed`: promises cover all it needs."""
    if held_by.job.priority < job.priority:
        return True
    return is_owed and is_taken_back(job, held_by, quotas)


def is_owed(job: Job, quotas: Quotas, hosts: int | None = None) -> bool:
    """Whether the promises to the job's own tenants cover `hosts` more hosts, all that it
    needs unless said."""
    needed = job.needed if hosts is None else hosts
    return not quotas.is_open and quotas.uncovered(job, needed) == 0


def fits(job: Job, free: HostSet, quotas: Quotas) -> bool:
    """Whether hosts, limits and promises leave room for `job`, wherever it lies."""
    allowed = quotas.allowance(job, free)
    return job.needed <= min(allowed.limit, allowed.pool)


def unneeded(job: Job, gone: Sequence[Victim], free: HostSet, quotas: Quotas) -> Victim | None:
    """One of these gangs without which there is room for `job` all the same."""
    for gang in gone:
        rest = [other for other in gone if other is not gang]
        if fits(job, free | freed(rest), without(quotas, rest)):
            return gang
    return None


def without(quotas: Quotas, gone: Sequence[Victim]) -> Quotas:
    """The quotas once these gangs are gone."""
    after = quotas.copy()
    for gang in gone:
        after.left(gang.job)
    return after


def sent_away(gang: Victim, job: Job, quotas: Quotas, now_ns: int) -> JobPreempted:
    """What becomes of this gang: its reason names who takes its place, and by what right."""
    ran = duration(max(0, now_ns - gang.job.start_ns) // SECOND_NS)
    right = f"priority {job.priority} to {gang.job.priority}"
    if gang.job.priority >= job.priority or is_taken_back(job, gang, quotas):
        right = f"hosts guaranteed to {job.tenant}"
    reason = f"preempted by {job.name} after {ran} ({right})"
    return JobPreempted(now_ns, gang.name, job.name, reason)


def freed(gone: Sequence[Victim]) -> HostSet:
    """The hosts that these gangs leave."""
    hosts = 0
    for gang in gone:
        hosts |= gang.hosts
    return hosts
