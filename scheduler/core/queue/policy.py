"""A queue policy: four choices that make a way to serve the queue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from muster.structs import struct
from placement.fabric.hostset import HostSet
from scheduler.core.capacity.outlook import Outlook
from scheduler.core.collections.name_list import Chunk
from scheduler.core.model.job import Job
from scheduler.core.model.scheduling_options import SchedulingOptions
from scheduler.core.model.state import State
from scheduler.core.queue.backfill import Backfill
from scheduler.core.rules.affinity_index import AffinityIndex
from scheduler.core.tenancy.quota_check import Quotas

# Whether these neighbours in the queue all have to wait, of whom this job is next.
AllWait = Callable[[Chunk, Job], bool]


def ask_all(_: Chunk, __: Job) -> bool:
    """Every job is looked at."""
    return False


class QueueOrder(Protocol):
    """The queued jobs, next one first. Mutable: starts may change the order of the rest.

    `is_by_priority`: whether no job comes before one of higher priority. `key`: by which jobs are
    in this order, if they keep it when others start and time passes; else None.
    `head`: whom the next decision looks at first, once these have started; None: not known.
    """

    is_by_priority: bool

    @property
    def key(self) -> Callable[[Job], tuple[int, ...]] | None: ...

    def jobs(self, all_wait: AllWait) -> Iterator[Job]:
        """The jobs to consider. Of neighbours for which `all_wait` holds, only the last one need be
        yielded; only orders that follow the queue ask that."""
        ...

    def record_allocation(self, job: Job, hosts: int) -> None:
        """Record that `job` starts on that many hosts."""
        ...

    def head(self, started: Collection[str]) -> Job | None: ...


@struct(frozen=True, slots=True)
class QueueContext:
    """Inputs of a decision. `free`: hosts to give away; `quotas`, `outlook` and `affinity` change
    as jobs start."""

    state: State
    now_ns: int
    options: SchedulingOptions
    policy: QueuePolicy
    free: HostSet
    quotas: Quotas
    outlook: Outlook
    affinity: AffinityIndex


@struct(frozen=True, slots=True)
class QueuePolicy:
    """How the queue is served.

    `order`: which job is looked at next. `backfill`: whether later jobs may pass waiting
    ones. `may_preempt`: whether preemptible gangs are evicted for others, and a guarantee
    is kept by hosts that can be taken back. `may_borrow`: whether preemptible jobs start on
    idle spares of others. `reserves_all`: whether all that wait have reservations, as far as
    `most_reservations` lets them. Quotas, windows and constraints hold under every policy.
    """

    name: str
    order: Callable[[QueueContext], QueueOrder]
    backfill: Callable[[QueueContext], Backfill]
    may_preempt: bool = False
    may_borrow: bool = False
    reserves_all: bool = False

    def context(
        self, state: State, now_ns: int, options: SchedulingOptions, free: HostSet
    ) -> QueueContext:
        """Make the inputs of a decision on `state`."""
        quotas = Quotas(state, self.may_preempt)
        outlook = Outlook(state, now_ns, options, quotas)
        return QueueContext(
            state, now_ns, options, self, free, quotas, outlook, AffinityIndex(state)
        )
