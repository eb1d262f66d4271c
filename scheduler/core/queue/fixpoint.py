"""Whether a decision that starts gangs leaves anything to the next one.

A start takes hosts, and no waiting job starts on fewer hosts: the reservation is still for
the same moment, with the same hosts. So once every job has been looked at, a second decision
on the same queue is needed only where more than arrival and hosts counts: where starts
change the order, the guarantees of tenants, the victims a job may have, the hosts that running
gangs may grow on, or those that jobs share.
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
    if not _is_plain(state.tenants) or any(
        state.jobs[start.name].is_special or start.placement.gpus for start in starts
    ):
        return False
    return cycle.order.is_stable and cycle.backfill.is_stable


def _is_plain(tenants: Tenants) -> bool:
    """Whether it is all one who has started, and nothing is done when nothing starts."""
    if len(tenants.tenants) > 1 or tenants.defragmentation:
        return False
    return not tenants.has_preemptible
