"""Re-check a plan against the newest state; a gang commits whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from placement.fabric import hostset
from placement.fabric.constraints import broken
from placement.fabric.hostset import HostSet
from placement.objective.check import violations
from placement.objective.cut import cut
from scheduler.core.capacity.eviction import made_room
from scheduler.core.capacity.spare_loans import changed, idle
from scheduler.core.capacity.victims import alone, freed, without
from scheduler.core.capacity.window_substitutes import rehosted
from scheduler.core.commit.eviction_check import sent_by
from scheduler.core.commit.spare_settlement import (
    given,
    left_behind,
    once_settled,
    settled,
    touches_loans,
)
from scheduler.core.fold.apply import replay
from scheduler.core.model.events import (
    Defragmented,
    Event,
    GangResized,
    GangSwapped,
    JobEnded,
    JobRequeued,
    JobsReserved,
    JobStarted,
    SparesChanged,
)
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import JOB_MOVES, RUNS, JobMove, JobState
from scheduler.core.model.plan import (
    Action,
    Defragment,
    EvaluateHosts,
    GiveUp,
    Plan,
    ReplaceReservedHosts,
    ReplenishSpares,
    Requeue,
    Reserve,
    Resize,
    Start,
    Swap,
    WindowTransition,
    taken,
)
from scheduler.core.model.state import State
from scheduler.core.rules import memory_copies
from scheduler.core.rules.affinity_index import AffinityIndex
from scheduler.core.rules.calendar import Calendar, turned
from scheduler.core.rules.crash_loop import avoided
from scheduler.core.rules.host_evaluation import judged
from scheduler.core.rules.resize import is_needless, misfit, resized
from scheduler.core.tenancy.quota_check import Quotas


@dataclass(frozen=True, slots=True)
class Conflict:
    """Nothing of the plan still holds; decide again on the newest state."""

    reasons: tuple[str, ...]


def commit(
    state: State, plan: Plan, now_ns: int, borrowed: HostSet = 0
) -> tuple[Event, ...] | Conflict:
    """The events of those actions that still hold. `borrowed`: spares that are lent to them.

    Actions stand alone, so one that no longer holds takes no other with it. When
    all of a plan's actions fell, the answer is a Conflict. Cost: O(hosts placed).
    """
    if not plan.actions:
        return ()
    events: list[Event] = []
    applied = 0  # a swap changes what its tenant holds, and with it what is promised
    reasons: list[str] = []
    free, quotas, company = state.free | borrowed, Quotas(state), AffinityIndex(state)
    calendar = Calendar(state)
    for action in plan.actions:
        more = taken(action)
        if isinstance(action, Defragment):
            state, applied = replay(events[applied:], state), len(events)
        if touches_loans(state, action):
            state, applied = replay(events[applied:], state), len(events)
            answer = _on_loan(state, action, now_ns)
            if isinstance(answer, str):
                reasons.append(answer)
                continue
            events += answer
            state, applied = replay(answer, state), len(events)
            free, quotas, company = state.free, Quotas(state), AffinityIndex(state)
            continue
        gone = sent_by(state, action, free, quotas, now_ns)
        if isinstance(gone, str):
            reasons.append(gone)
            continue
        free_then, quotas_then = free | freed(gone), without(quotas, gone) if gone else quotas
        company_then = alone(company, gone) if gone else company
        outcome = (
            _unwanted(state, action, more, company_then, now_ns)
            or _untimely(state, action, more, calendar, now_ns)
            or _check(state, action, free_then, quotas_then, now_ns)
        )
        if isinstance(outcome, str):
            reasons.append(outcome)
            continue
        if isinstance(action, Start | Swap):
            events += [made_room(state, v, state.jobs[action.name], quotas, now_ns) for v in gone]
        events += outcome if isinstance(outcome, tuple) else (outcome,)
        free, quotas, company = free_then & ~more, quotas_then, company_then
        if isinstance(action, Swap | Resize | Defragment | ReplenishSpares) or any(
            v.smaller for v in gone
        ):
            state, applied = replay(events[applied:], state), len(events)
            free, quotas, company = state.free, Quotas(state), AffinityIndex(state)
        elif isinstance(action, Start) and action is not plan.actions[-1]:
            quotas.took(state.jobs[action.name], more)
            company.took(state.jobs[action.name], more)
    if reasons and not events:
        return Conflict(tuple(reasons))
    return tuple(events)


def _on_loan(state: State, action: Action, now_ns: int) -> tuple[Event, ...] | str:
    """The action, after what stands before it: spares that are lent, or given back."""

    def smaller(at: State, resize: Resize) -> Event | str:
        return _resize(at, resize, at.free, Quotas(at), now_ns)

    first = settled(state, action, now_ns, smaller)
    if isinstance(first, str):
        return first
    after, plan = replay(first, state), Plan(state.version, (once_settled(action),))
    borrowed = taken(action) & after.lent if isinstance(action, Start) else 0
    answer = commit(after, plan, now_ns, borrowed)
    return answer.reasons[0] if isinstance(answer, Conflict) else (*first, *answer)


def _check(
    state: State, action: Action, free: HostSet, quotas: Quotas, now_ns: int
) -> Event | tuple[Event, ...] | str:
    """The event or events, or a sentence saying what changed meanwhile."""
    match action:
        case Start():
            return _start(state, action, free, quotas, now_ns)
        case Swap():
            if action.is_asked and (wrong := _beyond(state, action, free, quotas)):
                return wrong
            return _swap(state, action, free, now_ns)
        case Resize():
            if is_needless(state, action):
                return f"job {action.name}: runs on, its hosts need not be left any more"
            return _resize(state, action, free, quotas, now_ns)
        case Defragment():
            return _tidied(state, action, now_ns)
        case Requeue():
            if not _may(state, action.name, JobMove.REQUEUE):
                return f"job {action.name} is no longer interrupted"
            return JobRequeued(now_ns, action.name, action.reason, action.ladder)
        case GiveUp():
            if action.name not in state.interrupted:
                return f"job {action.name} is no longer interrupted"
            return JobEnded(now_ns, action.name, JobState.FAILED, action.reason)
        case ReplenishSpares():
            return _refill(state, action, free, quotas, now_ns)
        case Reserve():
            return _reserve(state, action, now_ns)
        case WindowTransition():
            return turned(state, action, now_ns)
        case ReplaceReservedHosts():
            return rehosted(state, action, now_ns)
        case EvaluateHosts():
            return judged(state, action, now_ns)
    assert_never(action)


def _untimely(state: State, action: Action, more: HostSet, calendar: Calendar, now_ns: int) -> str:
    """Which window the action would reach into with `more` hosts, or does not give way to
    any more; empty when none is in the way."""
    if (
        not isinstance(action, Start | Swap | Resize | Requeue | ReplenishSpares)
        or action.name not in state.jobs
    ):
        return ""
    job = state.jobs[action.name]
    if isinstance(action, Requeue):
        is_due = job.state is JobState.INTERRUPTED or job.held & calendar.leaving(job)[1]
        return "" if is_due else f"job {job.name} is no longer interrupted"
    if isinstance(action, Resize):
        more &= ~job.held
    closed, why = calendar.in_the_way(job, more, now_ns, max(action.end_ns, now_ns + 1))
    if not closed:
        return ""
    host = state.loaded_fabric.hosts[hostset.members(closed)[0]]
    return f"job {job.name}: host {host} {why} meanwhile"


def _unwanted(
    state: State, action: Action, more: HostSet, company: AffinityIndex, now_ns: int
) -> str:
    """Which of `more` hosts lie beside jobs that they must not lie beside, or stopped this job of
    late; empty when none does."""
    if (
        not isinstance(action, Start | Swap | Resize | ReplenishSpares)
        or action.name not in state.jobs
    ):
        return ""
    job = state.jobs[action.name]
    fabric = state.loaded_fabric
    if shut := more & avoided(job, state.tenants.restarts, now_ns):
        return f"job {job.name}: host {fabric.hosts[hostset.members(shut)[0]]} stopped it of late"
    closed = more & company.closed(job.name, job.spec.neighbours)
    if not closed:
        return ""
    host = fabric.hosts[hostset.members(closed)[0]]
    return f"job {job.name}: host {host} lies beside a job that is to be kept apart"


def _may(state: State, name: str, move: JobMove) -> bool:
    job = state.jobs.get(name)
    return job is not None and move in JOB_MOVES[job.state]


def _start(
    state: State, action: Start, free: HostSet, quotas: Quotas, now_ns: int
) -> JobStarted | str:
    if not _may(state, action.name, JobMove.START):
        return f"job {action.name} is no longer queued"
    job = state.jobs[action.name]
    fabric = state.loaded_fabric
    job = job.on(len(action.placement.hosts))
    wrong = violations(fabric, free, job.request, action.placement)
    if wrong:
        return f"job {action.name}: {wrong[0]}"
    allowed, hosts = quotas.allowance(job, free), taken(action)
    if hosts.bit_count() > allowed.limit:
        return f"job {action.name}: tenant {allowed.whose} is at its limit meanwhile"
    if hosts & ~allowed.reach or hosts.bit_count() > allowed.pool:
        return f"job {action.name}: its hosts are guaranteed to others meanwhile"
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
    )


def _reserve(state: State, action: Reserve, now_ns: int) -> JobsReserved | str:
    starts = tuple((name, at) for name, at in action.starts if _may(state, name, JobMove.START))
    if not starts:
        return "no job of the reservations waits still"
    hosts, waiting = state.loaded_fabric.hosts, dict(starts)
    shares = tuple(
        (name, tuple((hosts[host], count) for host, count in parts))
        for name, parts in action.shares
        if name in waiting
    )
    return JobsReserved(now_ns, starts, shares)


def _swap(state: State, action: Swap, free: HostSet, now_ns: int) -> tuple[Event, ...] | str:
    """The swap, after what those give up whose spares join, and what it leaves behind."""
    if not _may(state, action.name, JobMove.SWAP):
        return f"job {action.name} is no longer running"
    job = state.jobs[action.name]
    fabric = state.loaded_fabric
    hosts = list(job.hosts)
    usable = free | (hostset.of(job.spares) & ~state.out_of_service)
    lent = _lent(state, action)
    if isinstance(lent, str):
        return lent
    usable |= hostset.of(host for host, _ in lent)
    # Blocks may change places: what one leaves another may take.
    usable |= hostset.of(move.left for move in action.moves) & ~state.out_of_service
    for move in action.moves:
        if move.block >= len(hosts) or hosts[move.block] != move.left:
            return f"job {action.name}: block {move.block} moved meanwhile"
        if not hostset.has(usable, move.joined):
            return f"job {action.name}: host {fabric.hosts[move.joined]} is no longer free"
        hosts[move.block] = move.joined
        usable &= ~(1 << move.joined)
    is_due = action.is_asked or _leaves_what_it_must(state, job, action)
    if job.state is JobState.RUNNING and not is_due:
        return f"job {action.name}: runs on, its hosts need not be left any more"
    ill = hostset.members(hostset.of(hosts) & state.unhealthy)
    if any(state.host(host).state not in RUNS for host in ill):
        return f"job {action.name}: another host failed meanwhile"
    shut = avoided(job, state.tenants.restarts, now_ns)
    if shut & hostset.of(hosts) and job.state is JobState.INTERRUPTED:
        return f"job {action.name}: another host failed meanwhile"
    if wrong := broken(fabric, job.request.where, hostset.of(hosts)):
        return f"job {action.name}: {wrong[0]}"
    if cut(fabric, job.request, hosts) != action.cuts:
        return f"job {action.name}: other blocks moved meanwhile"
    swapped = memory_copies.swapped(state, job, action, hosts, now_ns)
    behind = left_behind(state, job, hosts, now_ns)
    return (*given(state, action, lent, now_ns), *behind, swapped)


def _lent(state: State, action: Swap) -> list[tuple[int, str]] | str:
    """Spares of other jobs that join, each with its job, or a sentence saying which one is
    not to be had any more."""
    joined = {move.joined for move in action.moves}
    found: list[tuple[int, str]] = []
    for name in action.lenders:
        job = state.jobs.get(name)
        spares = job.spares if job is not None else ()
        mine = [s for s in spares if s in joined and not hostset.has(state.out_of_service, s)]
        if job is None or not mine or not job.spec.request.spares.is_auto:
            return f"job {action.name}: {name} has no spare for it any more"
        found += [(spare, name) for spare in mine]
    return found


def _refill(
    state: State, action: ReplenishSpares, free: HostSet, quotas: Quotas, now_ns: int
) -> SparesChanged | str:
    """A running job holds free hosts more, as a start may take them, or lets some go."""
    job = state.jobs.get(action.name)
    if job is None or job.state is not JobState.RUNNING:
        return f"job {action.name} is no longer running"
    if hostset.of(action.spares) & ~(action.joined | hostset.of(job.spares)):
        return f"job {action.name}: its spares changed meanwhile"
    allowed, home = quotas.allowance(job, free), hostset.of(idle(state, job))
    more = action.joined & ~home
    if more & ~(free & allowed.reach):
        return f"job {action.name}: a host is no longer free to be held"
    if more.bit_count() > min(allowed.limit, allowed.pool):
        return f"job {action.name}: tenant {job.tenant} may hold no more meanwhile"
    lent = tuple(host for host in job.lent if host not in action.spares)
    return changed(state, job, action.spares, lent, action.reason, now_ns)


def _resize(
    state: State, action: Resize, free: HostSet, quotas: Quotas, now_ns: int
) -> GangResized | str:
    """A gang that stopped becomes smaller; one that runs may take hosts as a start may."""
    if not _may(state, action.name, JobMove.RESIZE):
        return f"job {action.name} is no longer running"
    job = state.jobs[action.name]
    failed = hostset.of(h for h in job.hosts if state.host(h).state not in RUNS)
    room = free | (hostset.of(job.hosts) & ~failed) | (job.held & ~state.out_of_service)
    if wrong := misfit(state, action, room):
        return wrong
    more = taken(action) & ~job.held
    if action.dp > job.dp:
        if job.held & state.out_of_service:
            return f"job {action.name}: has to leave a host meanwhile"
        allowed = quotas.allowance(job, free)
        count = taken(action).bit_count() - job.held.bit_count()  # it may leave some
        if count > allowed.limit:
            return f"job {action.name}: tenant {allowed.whose} is at its limit meanwhile"
        if more & ~allowed.reach or count > allowed.pool:
            return f"job {action.name}: its hosts are guaranteed to others meanwhile"
    return resized(state, job, action, now_ns)


def _tidied(state: State, action: Defragment, now_ns: int) -> tuple[Event, ...] | str:
    """All of its swaps, and the fact that gangs were moved or that this was due."""
    answer = commit(state, Plan(state.version, action.swaps), now_ns)
    if isinstance(answer, Conflict):
        return answer.reasons[0]
    if sum(isinstance(event, GangSwapped) for event in answer) != len(action.swaps):
        return "defragmentation: some of the moves cannot be made any more"
    why = (action.sentence, action.asked, action.request_id)
    return (*answer, Defragmented(now_ns, *why))


def _beyond(state: State, action: Swap, free: HostSet, quotas: Quotas) -> str:
    """What keeps a move that is not urgent from its hosts; empty when nothing does."""
    job = state.jobs.get(action.name)
    if job is None or job.state is not JobState.RUNNING:
        return f"job {action.name} is no longer running"
    if taken(action) & ~quotas.allowance(job, free).reach:
        return f"job {action.name}: its hosts are guaranteed to others meanwhile"
    return ""


def _leaves_what_it_must(state: State, job: Job, action: Swap) -> bool:
    """A running gang is stopped only for hosts that it still has to leave."""
    leaving = state.unhealthy | Calendar(state).leaving(job)[0]
    return bool(action.moves) and all(hostset.has(leaving, m.left) for m in action.moves)
