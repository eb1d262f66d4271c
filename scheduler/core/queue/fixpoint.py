"""Whether a decision that starts gangs leaves anything to the next one.

What starts takes hosts, and on fewer hosts nobody starts who waits now: the reservation is
still for the same moment, with the same hosts beside it. So once all was asked, a second look
at the same queue is needed only where more than arrival and hosts decides: where starts
change the order, the promises to tenants, whom a job may send away, or what running gangs
may have besides.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.core.model.plan import Start
from scheduler.core.model.state import State
from scheduler.core.policies.tenants import Tenants
from scheduler.core.queue.cycle import SchedulingCycle


def is_fixpoint(state: State, cycle: SchedulingCycle, starts: Iterable[Start]) -> bool:
    """Whether another decision finds nothing once all these `starts` of `cycle` are made."""
    if not cycle.is_through or not cycle.quotas.is_open or cycle.calendar:
        return False
    if state.special or state.interrupted or state.unhealthy & state.held:
        return False
    if not _is_plain(state.tenants) or any(state.jobs[start.name].minds for start in starts):
        return False
    return cycle.order.is_stable and cycle.rule.is_stable


def _is_plain(tenants: Tenants) -> bool:
    """Whether it is all one who has started, and nothing is done when nothing starts."""
    if len(tenants.tenants) > 1 or tenants.defragmentation:
        return False
    return not tenants.has_preemptible
