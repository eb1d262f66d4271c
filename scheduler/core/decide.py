"""Who runs next, and where: the slow half of scheduling, a proposal on one version.

First the windows whose edge has come, then the gangs that a failure stopped or a window
sends away, for they hold hosts that do nothing, then reservations that lost a host. Then
every queued job passes the same stages:

    order        priority, fair share, arrival                         order, shares
    admission    what quotas, windows and neighbours leave it          admission, calendar, company
    backfill     what it may take without delaying a reservation       backfill, conservative
    placement    hosts in rank order, by the cut                       placement.place
    preemption   whom to send away, if it does not start otherwise     preempting, preempt
    reservation  when and where it starts, if it does not start now    reserve

When nothing starts, elastic gangs grow on what is left (grow).
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.core.capacity.grow import growths
from scheduler.core.capacity.placer import Find, make_placer
from scheduler.core.capacity.window_substitutes import substitutes
from scheduler.core.commit.commit import Conflict, commit
from scheduler.core.defrag.policy import defragmented
from scheduler.core.fold.apply import replay
from scheduler.core.model.plan import Action, Plan, Requeue
from scheduler.core.model.policy import SchedulingOptions
from scheduler.core.model.state import State
from scheduler.core.queue.cycle import SchedulingCycle
from scheduler.core.queue.fixpoint import is_fixpoint
from scheduler.core.restart.restart import restarts
from scheduler.core.rules.calendar import turns
from scheduler.core.rules.crash_loop import looks_again_ns
from scheduler.core.rules.host_evaluation import judgement_due
from scheduler.core.rules.retiring_hosts import due_ns
from scheduler.core.spares.replenish import replenishments


def decide(state: State, now_ns: int, limits: SchedulingOptions, find: Find | None = None) -> Plan:
    """What to do now. The same arguments give the same plan.

    `find`: `make_placer` unless somebody looks on while it works.
    """

    def urgent(at: State) -> Plan:
        return _urgent(at, now_ns, limits, find or make_placer(at, limits))

    plan = urgent(state)
    return plan if plan.actions else defragmented(state, now_ns, limits, plan, urgent)


def decide_restarts(state: State, now_ns: int, limits: SchedulingOptions) -> Plan:
    """How the gangs go on that a failure stopped, and nothing else: what `decide` begins
    with, in milliseconds however long the queue is."""
    return Plan(state.version, restarts(state, now_ns, limits))


def _urgent(state: State, now_ns: int, limits: SchedulingOptions, find: Find) -> Plan:
    """All but what can wait until there is nothing else to do.

    A requeued gang may be first in the queue, so nothing starts before it is there; nor
    before windows are as they should be.
    """
    if edges := turns(state, now_ns):
        return Plan(state.version, edges)
    if judge := judgement_due(state, now_ns):
        return Plan(state.version, (judge,))
    first = restarts(state, now_ns, limits)
    if any(isinstance(action, Requeue) for action in first):
        return Plan(state.version, first)
    if not first and (others := tuple(substitutes(state))):
        return Plan(state.version, others)
    if not first and _is_idle(state):
        return Plan(state.version, look_again_ns=_first(due_ns(state, now_ns, limits)))
    if first and not state.queue:  # a gang stands still; all else has time until it runs
        return Plan(state.version, first)
    moved = _after(state, first, now_ns)
    desk = SchedulingCycle(moved, now_ns, limits, moved.free, find, find)
    starts = [desk.start(job, placement) for job, placement in desk.starts()]
    grown, grow_ns = ((), None) if first or starts else growths(state, now_ns, limits, desk)
    filled = () if first or starts or grown else replenishments(state, now_ns, limits, desk)
    actions = (*first, *starts, *grown, *filled, *desk.promises())
    stopped = (state.jobs[name] for name in state.interrupted)
    moments = (
        *(desk.preempting.look_again_ns, grow_ns, desk.clear_ns),
        *due_ns(moved, now_ns, limits),
        *(looks_again_ns(job, state.tenants.restarts, now_ns) for job in stopped),
    )
    is_over = bool(starts) and not first and is_fixpoint(state, desk, starts)
    return Plan(state.version, actions, desk.rule.reservations, _first(moments), is_over)


def _first(moments: Iterable[int | None]) -> int | None:
    return min([at_ns for at_ns in moments if at_ns is not None], default=None)


def _is_idle(state: State) -> bool:
    """Whether nobody waits, and those that run want nothing: most decisions of a cluster
    that is not full."""
    if state.queue or state.interrupted:
        return False
    special = map(state.jobs.__getitem__, state.special)
    return not any(job.sizes or job.spec.request.spares.hosts != 0 for job in special)


def _after(state: State, first: tuple[Action, ...], now_ns: int) -> State:
    """The state once gangs have swapped hosts: what their tenants hold, and with it what
    is promised to them, is not what it was."""
    answer = commit(state, Plan(state.version, first), now_ns) if first else ()
    return state if isinstance(answer, Conflict) else replay(answer, state)
