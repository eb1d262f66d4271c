"""FIFO: by arrival, and nobody passes the first job that waits."""

from __future__ import annotations

from collections.abc import Sequence

from placement.fabric.hostset import HostSet
from scheduler.core.model.job import Job
from scheduler.core.model.plan import BackfillReservation, LazyReservations, Reserve
from scheduler.core.queue.order import ArrivalOrder
from scheduler.core.queue.policy import QueueContext, QueuePolicy
from scheduler.core.tenancy.quota_check import Allowance


class Fifo:
    """Starts jobs until one waits. Its reservation says when it starts; it keeps nobody from
    anything, for nobody starts after it."""

    behind_text = "no job overtakes under fifo"
    lets_shorter_pass = False
    reserves_places = True
    is_stable = True

    def __init__(self, context: QueueContext) -> None:
        self._outlook = context.outlook
        self._waiting: Job | None = None
        self._free: HostSet = 0
        self._reserved: tuple[BackfillReservation, ...] | None = None

    def _make_reservations(self) -> tuple[BackfillReservation, ...]:
        if self._waiting is None:
            return ()
        if self._reserved is None:
            reservation = self._outlook.reservation(self._waiting, self._free)
            self._reserved = () if reservation is None else (reservation,)
        return self._reserved

    @property
    def reservations(self) -> Sequence[BackfillReservation]:
        return () if self._waiting is None else LazyReservations(self._make_reservations)

    @property
    def first(self) -> BackfillReservation | None:
        return next(iter(self._make_reservations()), None)

    def permitted(self, job: Job, end_ns: int, allowed: Allowance) -> Allowance:
        return allowed if self._waiting is None else allowed.capped(0)

    def room(self, job: Job, end_ns: int, allowed: Allowance) -> int:
        return allowed.pool if self._waiting is None else 0

    def without_first(self, job: Job, end_ns: int, allowed: Allowance) -> Allowance:
        return allowed if self._waiting is None else allowed.on(0)

    def record_allocation(
        self, job: Job, hosts: HostSet, end_ns: int, borrowed: HostSet = 0
    ) -> None:
        """Do nothing: jobs start only before any waits."""

    def may_share(self, job: Job, end_ns: int, until_ns: int) -> bool:
        return self._waiting is None

    def record_shared(self, job: Job, host: HostSet, end_ns: int, until_ns: int) -> None:
        """Do nothing: jobs start only before any waits."""

    def reserve_blocked(self, job: Job, free: HostSet) -> None:
        if self._waiting is None:
            self._outlook.note_order(job)
            self._waiting, self._free = job, free

    def record_evictions(self, free: HostSet) -> None:
        self._free, self._reserved = free, None

    def is_settled(self, job: Job) -> bool:
        return self._waiting is not None

    def is_done(self, free: HostSet) -> bool:
        return self._waiting is not None

    def actions(self) -> tuple[Reserve, ...]:
        return ()  # the reservation is made anew by every decision


FIFO = QueuePolicy("fifo", order=ArrivalOrder, backfill=Fifo)
