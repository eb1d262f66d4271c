"""Which jobs run next, and where: the slow half of scheduling, a plan for one version.

First come windows whose edge has come and jobs whose begin time has, then gangs that have reached
their time limit, where it ends them, then gangs that a failure interrupted or a window
evicts, for their hosts do nothing, then reservations that lost a host. Then every queued
job passes the same stages:

    order        priority, fair share, arrival                   queue.order, queue.policies
    admission    hosts that quotas, windows and affinity leave   tenancy, rules
    backfill     hosts that delay no reservation                 queue.backfill, queue.policies
    placement    hosts in rank order, by the cut                 capacity.placer
    preemption   victims, if it does not start otherwise         preemption
    reservation  when and where it starts, if not now            capacity.outlook

When no job starts, elastic gangs grow on the hosts that are left (capacity.grow).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache, partial

from scheduler.core.capacity.grow import growths
from scheduler.core.capacity.placer import Placer, make_placer
from scheduler.core.capacity.window_substitutes import substitutes
from scheduler.core.commit.commit import Conflict, commit
from scheduler.core.defrag.policy import defragmented
from scheduler.core.fold.apply import replay
from scheduler.core.model.plan import (
    Action,
    BackfillReservation,
    LazyReservations,
    Plan,
    Requeue,
    Start,
)
from scheduler.core.model.scheduling_options import Overrun, SchedulingOptions
from scheduler.core.model.state import State, waiting_size
from scheduler.core.policies.tenants import Tenants
from scheduler.core.queue.cycle import SchedulingCycle
from scheduler.core.queue.equivalence import has_strikes
from scheduler.core.queue.order import by_arrival
from scheduler.core.queue.policies import queue_policy, reserves_by_size
from scheduler.core.queue.policies.fifo import FIFO
from scheduler.core.restart.restart import restarts
from scheduler.core.rules.calendar import due_transitions
from scheduler.core.rules.crash_loop import next_attempt_ns
from scheduler.core.rules.eligibility import due_deferrals, next_eligible_ns
from scheduler.core.rules.hosts.evaluation import due_ns, evaluation_due
from scheduler.core.rules.time_limits import next_limit_ns, overruns
from scheduler.core.spares.replenish import replenishments


def decide(
    state: State, now_ns: int, options: SchedulingOptions, find: Placer | None = None
) -> Plan:
    """Return the plan: the actions to take now. The same arguments give the same plan.

    `find`: places gangs; `make_placer` unless the caller measures or changes it.
    """

    def urgent(at: State) -> Plan:
        return _urgent(at, now_ns, options, find or make_placer(at, options, now_ns=now_ns))

    plan = urgent(state)
    return plan if plan.actions else defragmented(state, now_ns, options, plan, urgent)


def decide_restarts(state: State, now_ns: int, options: SchedulingOptions) -> Plan:
    """Plan the restarts of gangs that a failure interrupted, and nothing else: what `decide` begins
    with. Cost: milliseconds, however long the queue is."""
    return Plan(state.version, restarts(state, now_ns, options))


def _urgent(state: State, now_ns: int, options: SchedulingOptions, find: Placer) -> Plan:
    """All but what can wait until there is nothing else to do.

    A requeued gang may be first in the queue, so nothing starts before it is there; nor
    before windows are as they should be.
    """
    if edges := due_transitions(state, now_ns):
        return Plan(state.version, edges)
    if over := due_deferrals(state, now_ns):
        return Plan(state.version, over)
    if judge := evaluation_due(state, now_ns):
        return Plan(state.version, (judge,))
    if at_limit := overruns(state, now_ns, options):
        return Plan(state.version, at_limit)
    first = restarts(state, now_ns, options)
    if any(isinstance(action, Requeue) for action in first):
        return Plan(state.version, first)
    if not first and (substitutions := tuple(substitutes(state))):
        return Plan(state.version, substitutions)
    if not first and (_is_idle(state) or _lacks_hosts(state, now_ns, options)):
        moments = (*due_ns(state, now_ns, options), next_limit_ns(state, options))
        moments = (*moments, next_eligible_ns(state))
        if not state.index.queue:
            return Plan(state.version, next_decision_ns=_first(moments))
        reserved = LazyReservations(cache(partial(_reservations, state, now_ns, options, find)))
        return Plan(state.version, (), reserved, _first(moments))
    if first and not state.index.queue:  # a gang stands still; all else has time until it runs
        return Plan(state.version, first)
    moved = _after(state, first, now_ns)
    cycle = SchedulingCycle(moved, now_ns, options, moved.free, find, find)
    starts = [cycle.start(job, placement) for job, placement in cycle.starts()]
    grown, grow_ns = ((), None) if first or starts else growths(state, now_ns, options, cycle)
    filled = () if first or starts or grown else replenishments(state, now_ns, options, cycle)
    actions: tuple[Action, ...] = (*first, *starts, *grown, *filled)
    if not first:  # a server commits these by themselves, and its log is that of a replay
        actions += cycle.promises()
    stopped = (state.jobs[name] for name in state.index.interrupted)
    moments = (
        *(cycle.preempting.next_decision_ns, grow_ns, cycle.clear_ns),
        *due_ns(moved, now_ns, options),
        next_limit_ns(moved, options),
        next_eligible_ns(state),
        *(next_attempt_ns(job, state.tenants.restarts, now_ns) for job in stopped),
    )
    is_over = bool(starts) and not first and is_fixpoint(state, cycle, starts)
    is_over = is_over and options.overrun is Overrun.EXTEND  # else the next one knows their limits
    return Plan(state.version, actions, cycle.backfill.reservations, _first(moments), is_over)


def _first(moments: Iterable[int | None]) -> int | None:
    return min([at_ns for at_ns in moments if at_ns is not None], default=None)


def _is_idle(state: State) -> bool:
    """Whether nobody waits, and those that run want nothing: most decisions of a cluster
    that is not full."""
    if state.index.queue or state.index.interrupted:
        return False
    special = map(state.jobs.__getitem__, state.index.special)
    return not any(job.sizes or job.spec.request.spares.hosts != 0 for job in special)


def _lacks_hosts(state: State, now_ns: int, options: SchedulingOptions) -> bool:
    """Whether no job can start because too few hosts are free: each waiting job needs more, or the
    first one does under fifo, and no job could take hosts of another. True in most decisions of a
    full cluster."""
    index = state.index
    if index.special or index.interrupted or index.shared or not index.queue:
        return False
    policy, free = queue_policy(options.policy), state.free.bit_count()
    if state.tenants.has_preemptible or not reserves_by_size(policy):
        return False
    first = next(by_arrival(state)) if policy is FIFO else state.jobs[index.queue[0]]
    if first.needed <= free:
        return False
    is_alone = policy is FIFO or len(index.queue) == 1
    least = waiting_size(first) if is_alone else next(iter(state.waiting_sizes))
    if least is None or least[0] <= free:
        return False
    ends = next(state.releases.since((1,)), None)
    return ends is None or ends.end_ns > now_ns  # else it may be that one has to be kept


def _reservations(
    state: State, now_ns: int, options: SchedulingOptions, find: Placer
) -> tuple[BackfillReservation, ...]:
    """The reservations of a decision in which nobody starts."""
    cycle = SchedulingCycle(state, now_ns, options, state.free, find, find)
    for _ in cycle.starts():
        pass
    return tuple(cycle.backfill.reservations)


def _after(state: State, first: tuple[Action, ...], now_ns: int) -> State:
    """The state once gangs have swapped hosts: what their tenants hold, and with it what
    is promised to them, is not what it was."""
    answer = commit(state, Plan(state.version, first), now_ns) if first else ()
    return state if isinstance(answer, Conflict) else replay(answer, state)


def is_fixpoint(state: State, cycle: SchedulingCycle, starts: Collection[Start]) -> bool:
    """Return whether another decision finds nothing once all these `starts` of `cycle` are made.

    A start takes hosts, and no waiting job starts on fewer hosts: the reservation is still for the
    same moment, with the same hosts. So once every job has been looked at, a second decision on the
    same queue is needed only where starts change the guarantees of tenants, the victims a job may
    have, the hosts that running gangs may grow on, or hosts that jobs share. Where they change the
    order, as fair share does, nobody starts either if the reservation is still that of the first in
    the queue; nor if no host is left, when the reservation, which is another's then, is made by the
    next decision.
    """
    if not cycle.is_through or not cycle.quotas.is_open or cycle.calendar:
        return False
    if state.index.special or state.index.interrupted or state.index.unhealthy & state.index.held:
        return False
    if not _is_plain(state.tenants) or any(
        state.jobs[start.name].is_special or start.placement.gpus for start in starts
    ):
        return False
    if cycle.order.key is not None:
        return cycle.backfill.is_stable
    names = {start.name for start in starts}
    if len(names) == len(state.index.queue):
        return True
    if state.index.shared or not _waits_plainly(state, cycle):
        return False
    return not cycle.free or _is_same_first(cycle, names)


def _is_same_first(cycle: SchedulingCycle, started: Collection[str]) -> bool:
    """Whether the next decision reserves for the same job as this one."""
    first = cycle.backfill.first if cycle.backfill.is_stable else None
    head = None if first is None else cycle.order.head(started)
    return first is not None and head is not None and head.name == first.name


def _is_plain(tenants: Tenants) -> bool:
    """Whether nothing is done when nothing starts, and no gang is evicted."""
    return not tenants.defragmentation and not tenants.has_preemptible


def _waits_plainly(state: State, cycle: SchedulingCycle) -> bool:
    """Whether it is all one who is first of those that wait: no reservation has to be kept, and
    nobody waits for a host that stopped it to be forgotten."""
    if cycle.is_anybody_late:
        return False
    by_tenant = state.index.queue.by_group(lambda name: state.jobs[name].tenant)
    return not any(has_strikes(names, state.jobs) for names in by_tenant.values())
