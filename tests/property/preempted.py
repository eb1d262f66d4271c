"""What holds of every gang that makes room for another: by what right, and that it had to.

Rights and promises are worked out here a second time, on nothing but who holds what.
"""

from dataclasses import replace
from typing import TypeGuard

from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from scheduler.core import Job, JobState, State, replay
from scheduler.core.capacity.victims import fits
from scheduler.core.model.events import Event, GangResized, GangSwapped, JobPreempted
from scheduler.core.model.job import SECOND_NS, Attempt
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.tenants import Preemption, PriorityClass
from scheduler.core.rules.crash_loop import avoided
from scheduler.core.tenancy.quota_check import Quotas
from tests.property import laws, quotas

CLASSES = (
    PriorityClass("spot", -5, is_preemptible=True),
    PriorityClass("dear", 3, is_preemptible=True),
    PriorityClass("urgent", 5),
)
GUARD_S = 30
TERMS = Preemption(min_run_s=GUARD_S, costs=Costs(40, 5))

MadeRoom = JobPreempted | GangResized


def makes_room(event: Event) -> TypeGuard[MadeRoom]:
    return isinstance(event, JobPreempted | GangResized) and bool(event.preempted_by)


def is_recall(state: State, event: MadeRoom) -> bool:
    """Whether a borrower leaves spares of the one who has them back: that is his right at any
    moment."""
    return bool(lent_hosts(state, event))


def lent_hosts(state: State, event: MadeRoom) -> HostSet:
    return state.jobs[event.name].allocation & hostset.of(
        state.jobs[event.preempted_by].present.lent
    )


def guarantees(state: State, name: str) -> int:
    return quotas.guarantee(state.tenants, state.tenants.by_name[name])


def is_owed(state: State, job: Job) -> bool:
    """Whether promises to the job's own tenants cover all that it needs.

    A start that takes as many hosts from the promises as it takes is wholly covered.
    """
    taken = apply_held(state, job)
    return quotas.promise(state) - quotas.promise(taken) == job.needed


def apply_held(state: State, job: Job) -> State:
    """The state as if `job` held as many hosts as it needs, whichever."""
    held = replace(job, gang=Attempt(hosts=tuple(range(1_000, 1_000 + job.needed))))
    return replace(state, jobs={**state.jobs, job.name: held})


def may_take_back(state: State, job: Job, victim: Job) -> bool:
    tenants = state.tenants
    apart = set(tenants.path(victim.tenant)) - set(tenants.path(job.tenant))
    is_lent = all(quotas.own(state, name).bit_count() > guarantees(state, name) for name in apart)
    return not job.is_preemptible and bool(apart) and is_lent


def check_right(state: State, event: MadeRoom, is_covered: bool, now_ns: int) -> None:
    """Only preemptible gangs that had their time, of lower priority or on lent hosts; others
    only give back what they have grown, to nobody of lower priority."""
    job, victim = state.jobs[event.preempted_by], state.jobs[event.name]
    booked = [booking.hosts for booking in state.windows.values()]
    is_leaving = any(job.allocation & hosts for hosts in (*booked, state.index.unhealthy))
    assert job.state in (JobState.QUEUED, JobState.INTERRUPTED) or is_leaving
    assert victim.state is JobState.RUNNING
    assert now_ns - victim.present.start_ns >= GUARD_S * SECOND_NS
    is_lower = victim.priority < job.priority
    if victim.is_preemptible and (is_lower or (is_covered and may_take_back(state, job, victim))):
        return
    assert isinstance(event, GangResized)
    assert victim.present.start_dp <= event.dp < victim.dp
    assert victim.priority <= job.priority


def check_needed(state: State, job: Job, gone: list[MadeRoom], earlier: list[str]) -> None:
    """Without any one of them the job would not fit, or would delay one before it; nor if
    one that shrinks kept the next larger of its sizes."""
    for spared in gone:
        rest = replay([event for event in gone if event is not spared], state)
        if fits(job, rest.free, Quotas(rest)):
            assert earlier, f"{spared.name} was not needed"
        victim = state.jobs[spared.name]
        if isinstance(spared, GangResized) and Quotas(rest).is_open:
            larger = victim.at(victim.sizes[victim.sizes.index(spared.dp) + 1])
            room = rest.free.bit_count() + max(0, victim.allocation.bit_count() - larger.needed)
            assert earlier or larger.dp == victim.dp or room < job.needed


def check_lent(state: State, event: GangSwapped, gone: list[MadeRoom]) -> None:
    """Without any one of them the gang that failed would find too few hosts."""
    own = hostset.of(state.jobs[event.name].spares) & ~state.index.unhealthy
    shy = avoided(state.jobs[event.name], state.tenants.restarts, event.time_ns)
    joined = hostset.of(laws.FABRIC.indices([swap.joined for swap in event.swaps]))
    for spared in gone:
        if is_recall(state, spared):
            assert joined & lent_hosts(state, spared), f"{spared.name} was not needed"
            continue
        rest = replay([other for other in gone if other is not spared], state)
        room = (rest.free | own) & ~shy
        assert room.bit_count() < len(event.swaps), f"{spared.name} was not needed"
