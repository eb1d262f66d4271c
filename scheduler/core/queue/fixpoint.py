"""Whether a decision that starts gangs leaves anything to the next one.

A start takes hosts, and no waiting job starts on fewer hosts: the reservation is still for
the same moment, with the same hosts. So once every job has been looked at, a second decision
on the same queue is needed only where more than arrival and hosts counts: where starts
change the guarantees of tenants, the victims a job may have, the hosts that running gangs may grow
on, or hosts that jobs share. Where they change the order, as fair share does, nobody starts
either if the reservation is still that of the first in the queue, whatever the order behind it;
nor if no host is left, when the reservation, which is another's then, is made by the next decision.
"""

from __future__ import annotations

from collections.abc import Collection

from scheduler.core.model.plan import Start
from scheduler.core.model.state import State
from scheduler.core.policies.tenants import Tenants
from scheduler.core.queue.cycle import SchedulingCycle
from scheduler.core.queue.equivalence import has_strikes


def is_fixpoint(state: State, cycle: SchedulingCycle, starts: Collection[Start]) -> bool:
    """Whether another decision finds nothing once all these `starts` of `cycle` are made."""
    if not cycle.is_through or not cycle.quotas.is_open or cycle.calendar:
        return False
    if state.index.special or state.index.interrupted or state.index.unhealthy & state.index.held:
        return False
    if not _is_plain(state.tenants) or any(
        state.jobs[start.name].is_special or start.placement.gpus for start in starts
    ):
        return False
    if cycle.order.is_stable:
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
