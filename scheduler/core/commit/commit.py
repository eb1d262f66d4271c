"""Re-check a plan against the newest state; a gang commits whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeGuard, assert_never

from muster.structs import replace, struct
from placement.fabric import hostset
from placement.fabric.constraints import ANYWHERE, joinable
from placement.fabric.hostset import HostSet
from placement.objective.check import violations
from placement.objective.cut import cut
from placement.workload.request import Placement
from placement.workload.segments import misplaced
from scheduler.core.capacity.eviction import eviction_event, shrunk
from scheduler.core.capacity.victims import (
    Victim,
    candidates,
    is_owed,
    may_be_evicted,
    may_be_shrunk,
    unneeded,
    unneeded_to_swap,
)
from scheduler.core.capacity.window_substitutes import rehosted
from scheduler.core.commit.ledger import Ledger
from scheduler.core.fold.apply import replay
from scheduler.core.model.events import (
    Defragmented,
    Event,
    GangResized,
    JobEnded,
    JobPreempted,
    JobRequeued,
    JobsReserved,
    JobStarted,
    SparesChanged,
)
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import JOB_MOVES, RUNS, JobMove, JobState, RequeueCause
from scheduler.core.model.plan import (
    Action,
    Defragment,
    EndDeferral,
    EnforceTimeLimit,
    EvaluateHosts,
    GiveUp,
    Plan,
    Recall,
    ReplaceReservedHosts,
    ReplenishSpares,
    Requeue,
    Reserve,
    Resize,
    Stale,
    StaleReason,
    Start,
    Swap,
    WindowTransition,
    stale_job,
    taken,
)
from scheduler.core.model.state import State
from scheduler.core.policies.job_terms import Requeueing
from scheduler.core.rules import memory_copies
from scheduler.core.rules.calendar import Calendar, transition_event
from scheduler.core.rules.crash_loop import avoided
from scheduler.core.rules.eligibility import deferral_ended, deferral_text
from scheduler.core.rules.hosts.evaluation import evaluation_events
from scheduler.core.rules.job_size import is_needless, job_after, misfit, resized
from scheduler.core.rules.network.gang_step import false_step
from scheduler.core.rules.time_limits import enforced
from scheduler.core.tenancy.quota_check import Allowance, Quotas
from scheduler.core.tenancy.spare_loans import SpareLoans
from scheduler.core.wording import hosts_text


@struct(frozen=True, slots=True)
class Conflict:
    """No action of the plan still holds; decide again on the newest state. `stale`: why, of each of
    its actions."""

    stale: tuple[Stale, ...]

    def __str__(self) -> str:
        return "; ".join(each.detail for each in self.stale)


def commit(state: State, plan: Plan, now_ns: int) -> tuple[Event, ...] | Conflict:
    """Return the events of those actions that still hold.

    Actions stand alone, so one that no longer holds takes no other with it. When all of a plan's
    actions fell, the answer is a Conflict; so it is when the fabric has changed since, which
    numbers hosts differently. Cost: O(hosts placed).
    """
    if not plan.actions:
        return ()
    if plan.version < state.fabric_version:
        return Conflict((Stale(StaleReason.FABRIC, "the fabric has changed since the plan"),))
    ledger = Ledger(state)
    events: list[Event] = []
    stale: list[Stale] = []
    for number, action in enumerate(plan.actions, 1):
        outcome = _checked(ledger, action, now_ns)
        if isinstance(outcome, Stale):
            stale.append(outcome)
        else:
            outcome = tuple(_without_requeue(ledger, event) for event in outcome)
            events += outcome
            if number < len(plan.actions):  # nothing is checked after the last
                ledger.apply(outcome, taken(action))
    if stale and not events:
        return Conflict(tuple(stale))
    return tuple(events)


def _without_requeue(ledger: Ledger, event: Event) -> Event:
    """The event, or the end of a job that is to give up its hosts and does not want to wait
    again."""
    if isinstance(event, JobRequeued | JobPreempted):
        job = ledger.state.jobs[event.name]
        if job.spec.requeue is Requeueing.NEVER:
            reason = f"{event.reason}; its file says requeue: never"
            return JobEnded(event.time_ns, event.name, JobState.FAILED, reason)
    return event


def _checked(ledger: Ledger, action: Action, now_ns: int) -> tuple[Event, ...] | Stale:
    """The events of `action`, those of gangs that make room for it first."""
    if _touches_loans(action, ledger.state_for(action)):
        return _on_loan(ledger, action, now_ns)
    victims = evicted(ledger, action, now_ns)
    if isinstance(victims, Stale):
        return victims
    if not victims:
        return _alone(ledger, action, now_ns)
    assert isinstance(action, Start | Swap)
    state, quotas = ledger.state, ledger.quotas
    job = state.jobs[action.name]
    room = tuple(eviction_event(state, victim, job, quotas, now_ns) for victim in victims)
    outcome = _alone(ledger.after(room), action, now_ns)
    return outcome if isinstance(outcome, Stale) else (*room, *outcome)


def _touches_loans(action: Action, state: State) -> TypeGuard[Start | Swap]:
    """Whether the action borrows spares, or takes some that were lent."""
    if isinstance(action, Start):
        return bool(action.lenders)
    return isinstance(action, Swap) and bool(
        action.recalls or taken(action) & SpareLoans(state).hosts
    )


def _on_loan(ledger: Ledger, action: Start | Swap, now_ns: int) -> tuple[Event, ...] | Stale:
    """The action, after what stands before it: spares that are lent, or given back."""
    first = _loans_settled(ledger.state, action, now_ns)
    if isinstance(first, Stale):
        return first
    after = ledger.after(first)
    if isinstance(action, Start):
        after.free |= taken(action) & SpareLoans(after.state).hosts
        outcome = _checked(after, replace(action, lenders=()), now_ns)
    else:
        outcome = _checked(after, replace(action, recalls=()), now_ns)
    return outcome if isinstance(outcome, Stale) else (*first, *outcome)


def _loans_settled(state: State, action: Start | Swap, now_ns: int) -> tuple[Event, ...] | Stale:
    """The events of spares that come before a start or swap."""
    if isinstance(action, Start):
        return SpareLoans(state).lend(action.name, taken(action), action.lenders, now_ns)
    events: list[Event] = []
    for recall in action.recalls:
        event = _end_loan(state, recall, action.name, now_ns)
        if isinstance(event, Stale):
            return event
        events.append(event)
    after = replay(events, state)
    home = tuple(SpareLoans(after).give_back(taken(action), now_ns))
    if taken(action) & SpareLoans(replay(home, after)).hosts:
        text = "a spare that was lent is not back"
        return stale_job(action.name, StaleReason.LOAN, text)
    return (*events, *home)


def _end_loan(state: State, recall: Recall, owner: str, now_ns: int) -> Event | Stale:
    job = state.jobs.get(recall.name)
    if job is None or not SpareLoans(state).borrowed(job):
        text = f"{recall.name} left what it borrowed meanwhile"
        return stale_job(owner, StaleReason.LOAN, text)
    if job.state is JobState.INTERRUPTED:
        return JobRequeued(now_ns, job.name, recall.reason, RequeueCause.FAILURE)
    if recall.resize is not None:
        event = _resize(Ledger(state), recall.resize, now_ns)
        return replace(event, preempted_by=owner) if isinstance(event, GangResized) else event
    return JobPreempted(now_ns, job.name, owner, recall.reason)


def _alone(ledger: Ledger, action: Action, now_ns: int) -> tuple[Event, ...] | Stale:
    """The events of the action itself, once all that comes before it has happened."""
    wrong = _unwanted(ledger, action, now_ns) or _untimely(ledger, action, now_ns)
    if wrong is not None:
        return wrong
    outcome = _event(ledger, action, now_ns)
    return outcome if isinstance(outcome, Stale | tuple) else (outcome,)


def _event(ledger: Ledger, action: Action, now_ns: int) -> Event | tuple[Event, ...] | Stale:
    state = ledger.state_for(action)
    match action:
        case Start():
            return _start(ledger, action, now_ns)
        case Swap():
            return _swap(ledger, action, now_ns)
        case Resize():
            if is_needless(state, action):
                return _needless(action.name)
            return _resize(ledger, action, now_ns)
        case Defragment():
            return _defragmented(state, action, now_ns)
        case Requeue():
            if not _may(state, action.name, JobMove.REQUEUE):
                return _not_interrupted(action.name)
            return JobRequeued(
                now_ns, action.name, action.reason, action.cause, action.restart_options
            )
        case GiveUp():
            if action.name not in state.index.interrupted:
                return _not_interrupted(action.name)
            return JobEnded(now_ns, action.name, JobState.FAILED, action.reason)
        case EnforceTimeLimit():
            return enforced(state, action, now_ns)
        case ReplenishSpares():
            return _replenished(ledger, action, now_ns)
        case Reserve():
            return _reserve(state, action, now_ns)
        case WindowTransition():
            return transition_event(state, action, now_ns)
        case EndDeferral():
            return deferral_ended(state, action, now_ns)
        case ReplaceReservedHosts():
            return rehosted(state, action, now_ns)
        case EvaluateHosts():
            return evaluation_events(state, action, now_ns)
    assert_never(action)


def _untimely(ledger: Ledger, action: Action, now_ns: int) -> Stale | None:
    """Refuse an action that would reach into a window, or no longer gives way to one."""
    state = ledger.state_for(action)
    if (
        not isinstance(action, Start | Swap | Resize | Requeue | ReplenishSpares)
        or action.name not in state.jobs
    ):
        return None
    job, calendar = state.jobs[action.name], ledger.calendar
    if isinstance(action, Requeue):
        may, must = calendar.leaving(job)
        if job.part_gpus:  # it moves by waiting again
            must |= may | state.index.unhealthy
        is_due = job.state is JobState.INTERRUPTED or job.allocation & must
        return None if is_due else _not_interrupted(job.name)
    hosts = taken(action)
    if isinstance(action, Resize):
        hosts &= ~job.allocation
    closed, why = calendar.in_the_way(job, hosts, now_ns, max(action.end_ns, now_ns + 1))
    if not closed:
        return None
    host = state.loaded_fabric.hosts[hostset.members(closed)[0]]
    return stale_job(job.name, StaleReason.WINDOW, f"host {host} {why} meanwhile")


def _unwanted(ledger: Ledger, action: Action, now_ns: int) -> Stale | None:
    """Refuse a host beside jobs that the job avoids, or that stopped it recently."""
    state = ledger.state_for(action)
    if (
        not isinstance(action, Start | Swap | Resize | ReplenishSpares)
        or action.name not in state.jobs
    ):
        return None
    job, hosts, names = state.jobs[action.name], taken(action), state.loaded_fabric.hosts
    job = job.with_power_limit(action.gpu_watts) if isinstance(action, Start) else job
    if avoids := hosts & avoided(job, state.tenants.restarts, now_ns):
        host = names[hostset.members(avoids)[0]]
        return stale_job(job.name, StaleReason.AVOIDED, f"host {host} stopped it recently")
    if closed := hosts & ledger.affinity.closed(job.name, job.spec.affinity):
        host = names[hostset.members(closed)[0]]
        text = f"host {host} is closed by exclusive or avoid"
        return stale_job(job.name, StaleReason.AFFINITY, text)
    if isinstance(action, Start) and not ledger.affinity.may_read(job, hosts):
        return stale_job(job.name, StaleReason.AFFINITY, ledger.affinity.reads_text(job))
    if isinstance(action, Start) and (cap := ledger.affinity.exceeded_cap(job, hosts)):
        text = f"the power of {cap.name} ({cap.kw:g} kW) is used up"
        return stale_job(job.name, StaleReason.AFFINITY, text)
    return None


def _may(state: State, name: str, move: JobMove) -> bool:
    job = state.jobs.get(name)
    return job is not None and move in JOB_MOVES[job.state]


def _not_interrupted(name: str) -> Stale:
    return Stale(StaleReason.JOB, f"job {name} is no longer interrupted")


def _not_running(name: str) -> Stale:
    return Stale(StaleReason.JOB, f"job {name} is no longer running")


def _needless(name: str) -> Stale:
    text = "runs, and no longer has to leave its hosts"
    return stale_job(name, StaleReason.NEEDLESS, text)


def _beyond_quota(name: str, allowed: Allowance, more: HostSet, count: int) -> Stale | None:
    """Why the job may not have `more` hosts, `count` in all beyond what it holds."""
    if count > allowed.limit:
        text = f"tenant {allowed.whose} is at its limit meanwhile"
        return stale_job(name, StaleReason.QUOTA, text)
    if more & ~allowed.reach or count > allowed.pool:
        text = "its hosts are guaranteed to others meanwhile"
        return stale_job(name, StaleReason.QUOTA, text)
    return None


def _start(ledger: Ledger, action: Start, now_ns: int) -> JobStarted | Stale:
    state = ledger.state if action.placement.gpus else ledger.state_for(action)
    if not _may(state, action.name, JobMove.START):
        return Stale(StaleReason.JOB, f"job {action.name} is no longer queued")
    job = state.jobs[action.name]
    if action.name in state.index.deferred:
        text = f"is not considered meanwhile: {deferral_text(job, now_ns)}"
        return stale_job(action.name, StaleReason.JOB, text)
    fabric = state.loaded_fabric
    job = job.on(len(action.placement.hosts)).with_power_limit(action.gpu_watts)
    placed = action.placement
    if placed.step is not None:  # it is with links as they will be while it runs, not as they are
        placed = replace(placed, step=None)
    allowed, hosts = ledger.quotas.allowance(job, ledger.free), taken(action)
    free = ledger.free
    if _joins(state, job, action.placement):
        free, allowed = free | hosts, replace(allowed, reach=hosts, pool=1)
    wrong = violations(fabric, free, job.request, placed)
    if wrong:
        return stale_job(action.name, StaleReason.HOSTS, wrong[0])
    if beyond := _beyond_quota(action.name, allowed, hosts, hosts.bit_count()):
        return beyond
    if false := false_step(state, job, action.placement, now_ns, action.end_ns):
        return false
    return JobStarted(
        now_ns,
        action.name,
        job.attempt + 1,
        fabric.names(action.placement.hosts),
        fabric.names(action.placement.spares),
        action.placement.cuts,
        action.placement.lower_bound,
        action.placement.notes,
        memory_copies.placed(state, job, action.placement.hosts),
        action.placement.step,
        action.placement.gpus,
        action.gpu_watts,
    )


def _joins(state: State, job: Job, placement: Placement) -> bool:
    """Whether a job takes GPUs that are free of a host that others share."""
    host = placement.hosts[0]
    if (
        not job.part_gpus
        or host not in state.index.shared
        or hostset.has(state.index.out_of_service, host)
    ):
        return False
    return not set(placement.gpus) & set(state.gpus_taken(host))


def _reserve(state: State, action: Reserve, now_ns: int) -> JobsReserved | Stale:
    starts = tuple(
        (name, at)
        for name, at in action.starts
        if _may(state, name, JobMove.START) and name not in state.index.deferred
    )
    if not starts:
        return Stale(StaleReason.JOB, "no job with a reservation is waiting any more")
    hosts, waiting = state.loaded_fabric.hosts, dict(starts)
    shares = tuple(
        (name, tuple((hosts[host], count) for host, count in parts))
        for name, parts in action.shares
        if name in waiting
    )
    return JobsReserved(now_ns, starts, shares)


def _swap(ledger: Ledger, action: Swap, now_ns: int) -> tuple[Event, ...] | Stale:
    """The swap, after what those give up whose spares join, and what it leaves behind."""
    state, name = ledger.state, action.name
    job = state.jobs.get(name)
    if action.is_requested and (job is None or job.state is not JobState.RUNNING):
        return _not_running(name)
    if action.is_requested and job is not None:
        reach = ledger.quotas.allowance(job, ledger.free).reach
        if taken(action) & ~(reach | job.allocation):  # blocks may change places
            text = "its hosts are guaranteed to others meanwhile"
            return stale_job(name, StaleReason.QUOTA, text)
    if job is None or JobMove.SWAP not in JOB_MOVES[job.state]:
        return _not_running(name)
    fabric = state.loaded_fabric
    hosts = list(job.hosts)
    usable = ledger.free | (hostset.of(job.spares) & ~state.index.out_of_service)
    shared = _shared(state, action)
    if isinstance(shared, Stale):
        return shared
    usable |= hostset.of(shared)
    # Blocks may change places: what one leaves another may take.
    usable |= hostset.of(move.left for move in action.moves) & ~state.index.out_of_service
    for move in action.moves:
        if move.block >= len(hosts) or hosts[move.block] != move.left:
            return stale_job(name, StaleReason.JOB, f"block {move.block} moved meanwhile")
        if not hostset.has(usable, move.joined):
            text = f"host {fabric.hosts[move.joined]} is no longer free"
            return stale_job(name, StaleReason.HOSTS, text)
        hosts[move.block] = move.joined
        usable &= ~(1 << move.joined)
    is_due = action.is_requested or _leaves_what_it_must(state, job, action)
    if job.state is JobState.RUNNING and not is_due:
        return _needless(name)
    ill = hostset.members(hostset.of(hosts) & state.index.unhealthy)
    has_failed = any(state.host(host).state not in RUNS for host in ill)
    barred = avoided(job, state.tenants.restarts, now_ns)
    if has_failed or (barred & hostset.of(hosts) and job.state is JobState.INTERRUPTED):
        return stale_job(name, StaleReason.HOSTS, "another host failed meanwhile")
    if wrong := misplaced(fabric, job.request, hosts):
        return stale_job(name, StaleReason.HOSTS, wrong[0])
    if cut(fabric, job.request, hosts) != action.cuts:
        return stale_job(name, StaleReason.JOB, "other blocks moved meanwhile")
    swapped = memory_copies.swapped(state, job, action, hosts, now_ns)
    behind = _drop_unjoinable_spares(state, job, hosts, now_ns)
    return (*_settle_lenders(state, action, shared, now_ns), *behind, swapped)


def _settle_lenders(
    state: State, action: Swap, shared: list[int], now_ns: int
) -> Iterator[SparesChanged]:
    """Take the spares that join the gang from their holders."""
    for name in action.lenders:
        job = state.jobs[name]
        kept = tuple(s for s in job.spares if s not in shared)
        count = len(job.spares) - len(kept)
        reason = f"{action.name} took {hosts_text(count)} for failed ones"
        yield SpareLoans(state).holding_event(job, kept, reason, now_ns)


def _drop_unjoinable_spares(
    state: State, job: Job, hosts: Sequence[int], now_ns: int
) -> Iterator[SparesChanged]:
    """Take from `job` the spares that could never join its gang on these hosts, as its constraints
    would break."""
    fabric, where, gang = state.loaded_fabric, job.request.where, hostset.of(hosts)
    if where == ANYWHERE:
        return
    kept: list[int] = []
    for spare in job.spares:
        if hostset.has(gang, spare) or hostset.has(joinable(fabric, where, gang), spare):
            kept.append(spare)
            gang |= 1 << spare
    if len(kept) < len(job.spares):
        reason = f"leaves {hosts_text(len(job.spares) - len(kept))} outside its constraints"
        yield SpareLoans(state).holding_event(job, tuple(kept), reason, now_ns)


def _shared(state: State, action: Swap) -> list[int] | Stale:
    """Spares of other jobs that join."""
    joined = {move.joined for move in action.moves}
    spares: list[int] = []
    for name in action.lenders:
        job = state.jobs.get(name)
        held = job.spares if job is not None else ()
        mine = [s for s in held if s in joined and not hostset.has(state.index.out_of_service, s)]
        if job is None or not mine or not job.spec.request.spares.is_auto:
            return stale_job(action.name, StaleReason.LOAN, f"{name} has no spare for it now")
        spares += mine
    return spares


def _replenished(ledger: Ledger, action: ReplenishSpares, now_ns: int) -> SparesChanged | Stale:
    """A running job holds free hosts more, as a start may take them, or lets some go."""
    state = ledger.state
    job = state.jobs.get(action.name)
    if job is None or job.state is not JobState.RUNNING:
        return _not_running(action.name)
    if hostset.of(action.spares) & ~(action.joined | hostset.of(job.spares)):
        return stale_job(action.name, StaleReason.JOB, "its spares changed meanwhile")
    allowed, loans = ledger.quotas.allowance(job, ledger.free), SpareLoans(state)
    more = action.joined & ~hostset.of(loans.idle(job))
    if more & ~(ledger.free & allowed.reach):
        text = "a host is no longer free to be held"
        return stale_job(action.name, StaleReason.HOSTS, text)
    if more.bit_count() > min(allowed.limit, allowed.pool):
        text = f"tenant {job.tenant} may hold no more meanwhile"
        return stale_job(action.name, StaleReason.QUOTA, text)
    return loans.holding_event(job, action.spares, action.reason, now_ns)


def _resize(ledger: Ledger, action: Resize, now_ns: int) -> GangResized | Stale:
    """A gang that stopped becomes smaller; one that runs may take hosts as a start may."""
    state = ledger.state
    if not _may(state, action.name, JobMove.RESIZE):
        return _not_running(action.name)
    job = state.jobs[action.name]
    failed = hostset.of(h for h in job.hosts if state.host(h).state not in RUNS)
    room = (
        ledger.free
        | (hostset.of(job.hosts) & ~failed)
        | (job.allocation & ~state.index.out_of_service)
    )
    if wrong := misfit(state, action, room):
        return wrong
    after = job_after(state, job, action)
    if after.gang_hosts > len(job.hosts):
        if job.allocation & state.index.out_of_service:
            return stale_job(action.name, StaleReason.HOSTS, "has to leave a host now")
        allowed = ledger.quotas.allowance(job, ledger.free)
        count = taken(action).bit_count() - job.allocation.bit_count()  # it may leave some
        if beyond := _beyond_quota(action.name, allowed, taken(action) & ~job.allocation, count):
            return beyond
    if false := false_step(state, after, action.placement, now_ns, action.end_ns):
        return false
    return resized(state, job, action, now_ns)


def _defragmented(state: State, action: Defragment, now_ns: int) -> tuple[Event, ...] | Stale:
    """All of its swaps, and the fact that gangs were moved or that this was due."""
    ledger, events = Ledger(state), list[Event]()
    for swap in action.swaps:
        outcome = _checked(ledger, swap, now_ns)
        if isinstance(outcome, Stale):
            return outcome
        events += outcome
        ledger.apply(outcome, taken(swap))
    why = (action.sentence, action.goal, action.request_id)
    return (*events, Defragmented(now_ns, *why))


def _leaves_what_it_must(state: State, job: Job, action: Swap) -> bool:
    """A running gang is stopped only for hosts that it still has to leave."""
    leaving = state.index.unhealthy | Calendar(state).leaving(job)[0]
    return bool(action.moves) and all(hostset.has(leaving, m.left) for m in action.moves)


def evicted(ledger: Ledger, action: Action, now_ns: int) -> tuple[Victim, ...] | Stale:
    """The gangs that this action evicts or makes smaller."""
    if not isinstance(action, Start | Swap) or not (action.victims or action.shrinks):
        return ()
    state, quotas = ledger.state, ledger.quotas
    if action.name not in state.jobs:
        return ()
    job, by_name = state.jobs[action.name], {v.name: v for v in candidates(state, now_ns)}
    victims: list[Victim] = []
    needed = len(action.moves) if isinstance(action, Swap) else job.needed
    owed, after = is_owed(job, quotas, needed), quotas.copy()
    shrinks = {shrink.name: shrink for shrink in action.shrinks}
    for name in (*action.victims, *shrinks):
        gang, shrink = by_name.get(name), shrinks.get(name)
        if gang is None or gang.ripe_ns > now_ns or not _may_evict(job, gang, shrink, owed, after):
            text = f"{name} may not be preempted any more"
            return stale_job(job.name, StaleReason.VICTIM, text)
        if shrink is not None:
            if wrong := misfit(state, shrink, gang.job.allocation):
                return wrong
            gang = shrunk(gang, shrink)
        victims.append(gang)
        after.release_hosts(gang.job, gang.freed)
    if action.is_counted and (spared := _spared(ledger, action, victims)):
        text = f"{spared.name} need not be preempted any more"
        return stale_job(job.name, StaleReason.VICTIM, text)
    return tuple(victims)


def _may_evict(job: Job, gang: Victim, shrink: Resize | None, owed: bool, quotas: Quotas) -> bool:
    """Whether `job` may still evict this gang, or make it so small."""
    is_evictable = may_be_evicted(job, gang, owed, quotas)
    if shrink is None:
        return is_evictable
    if shrink.dp not in gang.job.sizes or shrink.dp >= gang.job.dp:
        return False
    return is_evictable or (may_be_shrunk(job, gang) and shrink.dp >= gang.job.present.start_dp)


def _spared(ledger: Ledger, action: Start | Swap, victims: list[Victim]) -> Victim | None:
    """One of these gangs without which there are hosts enough all the same."""
    job = ledger.state.jobs[action.name]
    if isinstance(action, Start):
        return unneeded(job, victims, ledger.free, ledger.quotas)
    own = hostset.of(job.spares) & ~ledger.state.index.unhealthy
    return unneeded_to_swap(len(action.moves), victims, ledger.free | own)
