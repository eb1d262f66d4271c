"""A queue policy: four choices that make a way to serve the queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement.fabric.hostset import HostSet
from scheduler.core.capacity.outlook import Outlook
from scheduler.core.model.policy import SchedulingOptions
from scheduler.core.model.state import State
from scheduler.core.rules.affinity_index import AffinityIndex
from scheduler.core.tenancy.quota_check import Quotas

if TYPE_CHECKING:
    from scheduler.core.queue.backfill import Backfill
    from scheduler.core.queue.order import QueueOrder


@dataclass(frozen=True, slots=True)
class QueueContext:
    """What a decision begins with. `free`: hosts to give away; `quotas`, `outlook` and
    `affinity` change as jobs start."""

    state: State
    now_ns: int
    limits: SchedulingOptions
    policy: QueuePolicy
    free: HostSet
    quotas: Quotas
    outlook: Outlook
    affinity: AffinityIndex


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """How the queue is served.

    `order`: which job is looked at next. `backfill`: whether later jobs may pass those that
    wait. `may_preempt`: whether preemptible gangs are evicted for others, and a guarantee
    is kept by hosts that can be taken back. `may_borrow`: whether preemptible jobs start on
    idle spares of others. Quotas, windows and constraints hold under every policy.
    """

    name: str
    order: Callable[[QueueContext], QueueOrder]
    backfill: Callable[[QueueContext], Backfill]
    may_preempt: bool = False
    may_borrow: bool = False

    def context(
        self, state: State, now_ns: int, limits: SchedulingOptions, free: HostSet
    ) -> QueueContext:
        """A decision on `state` begins."""
        quotas = Quotas(state, self.may_preempt)
        outlook = Outlook(state, now_ns, limits, quotas)
        return QueueContext(
            state, now_ns, limits, self, free, quotas, outlook, AffinityIndex(state)
        )
