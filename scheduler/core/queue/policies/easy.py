"""EASY: one reservation, for the first job that waits; the queue is served by arrival.

A later job starts now if it ends before that reservation begins, or on hosts that the
reservation leaves over. Where gangs outrun their limits, the reservation slips; jobs that start
now may do so too, and put it off again. How often it has slipped is in the log, and from some
number on nobody is believed any more: then later jobs start only on hosts that are left over.
Source: Lifka, "The ANL/IBM SP scheduling system" (JSSPP 1995); Mu'alem and Feitelson,
TPDS 12(6), 2001, section 2.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.structs import replace
from placement.fabric.hostset import HostSet
from scheduler.core.model.job import Job
from scheduler.core.model.plan import BackfillReservation, LazyReservations, Reserve
from scheduler.core.queue.backfill import (
    below_limits,
    charged,
    draws_alike,
    room_beside,
    unusable_hosts,
)
from scheduler.core.queue.order import ArrivalOrder
from scheduler.core.queue.policy import QueueContext, QueuePolicy
from scheduler.core.tenancy.guarantees import highest
from scheduler.core.tenancy.quota import UNLIMITED
from scheduler.core.tenancy.quota_check import Allowance


class Easy:
    """One reservation: for the first that waits and whose start can be foreseen."""

    behind_text = "starting now would delay it"
    lets_shorter_pass = True
    reserves_places = True

    def __init__(self, context: QueueContext) -> None:
        self._jobs, self._outlook = context.state.jobs, context.outlook
        self._quotas, self._affinity = context.quotas, context.affinity
        self._has_waited = False
        self._first: BackfillReservation | None = None
        self._asking: tuple[Job, HostSet] | None = None
        self._start_ns = 0  # of the reservation, as far as can be foreseen
        self._now_ns, self._most_slips = context.now_ns, context.options.most_slips
        self._reserved, self._slips = context.state.reserved, context.state.slips

    @property
    def first(self) -> BackfillReservation | None:
        """The one reservation, computed when it is first read, before anybody takes hosts; often
        nobody reads it."""
        if self._asking is not None:
            asking, self._asking = self._asking, None
            self._first = reservation = self._outlook.reservation(*asking)
            if reservation is not None:
                self._start_ns = reservation.start_ns
                if 0 < self._most_slips <= self._slips.get(reservation.name, 0):
                    self._first = replace(
                        reservation, start_ns=self._now_ns
                    )  # whoever starts outlasts it
        return self._first

    def _reserve(self, job: Job, free: HostSet) -> None:
        """The reservation is for `job`, with what is `free` and running now."""
        self._outlook.note_order(job)
        self._asking = (job, free)

    @property
    def reservations(self) -> Sequence[BackfillReservation]:
        return LazyReservations(self._make_reservations) if self._has_waited else ()

    def _make_reservations(self) -> tuple[BackfillReservation, ...]:
        first = self.first
        return () if first is None else (replace(first, start_ns=self._start_ns),)

    @property
    def is_stable(self) -> bool:
        return not any(reservation.kept for reservation in self.reservations)

    def permitted(self, job: Job, end_ns: int, allowed: Allowance) -> Allowance:
        allowed = self.without_first(job, end_ns, allowed)
        return allowed.capped(self.room(job, end_ns, allowed))

    def room(self, job: Job, end_ns: int, allowed: Allowance) -> int:
        """How many hosts of what is allowed `job` may take."""
        if self.first is None or job.needed > allowed.pool:
            return allowed.pool
        return min(allowed.pool, room_beside(self.first, job, end_ns, allowed, self._quotas))

    def without_first(self, job: Job, end_ns: int, allowed: Allowance) -> Allowance:
        """Return the allowance without the hosts that the reservation needs beyond their number. A
        job that others may not lie beside closes more hosts than it takes: unless it is known which
        of them the reservation needs, it takes none."""
        first, wants = self.first, job.spec.affinity
        if first is None or end_ns <= first.start_ns:
            return allowed
        if not first.kept and (wants.exclusive or wants.avoid):
            return allowed.on(0)
        if not first.kept:
            return allowed if first.among is None else self._off_number(job, allowed, first)
        closed = first.kept | self._affinity.domains_around(wants, first.kept)
        return allowed.on(self._affinity.fitting(job, allowed.reach & ~closed))

    def _off_number(self, job: Job, allowed: Allowance, first: BackfillReservation) -> Allowance:
        """Less all but `extra` of the hosts that the reservation counts, where windows make
        some count and some not, and the number is what it promises."""
        if first.lendable is not None or job.needed <= first.extra:
            return allowed
        permitted = unusable_hosts(first, allowed.reach)
        permitted |= highest(allowed.reach & ~permitted, max(0, first.extra))
        return allowed.on(self._affinity.fitting(job, permitted))

    def record_allocation(
        self, job: Job, hosts: HostSet, end_ns: int, borrowed: HostSet = 0
    ) -> None:
        if self.first is not None:
            self._first = charged(self.first, job, hosts, end_ns, self._quotas, borrowed)

    def may_share(self, job: Job, end_ns: int, until_ns: int) -> bool:
        first = self.first
        if first is None:
            return True
        room = below_limits(first, job, end_ns, self._quotas)
        if self._quotas.counted(job, 1) > room:
            return False
        # What counts for nothing beside other parts of its tenant may count once these are gone.
        is_owed = room < UNLIMITED or first.lendable is not None
        if end_ns > first.start_ns and (is_owed or draws_alike(first, job, self._quotas)):
            return False
        return end_ns <= max(until_ns, first.start_ns) or until_ns > self._start_ns

    def record_shared(self, job: Job, host: HostSet, end_ns: int, until_ns: int) -> None:
        if self.first is not None and self._quotas.counted(job, 1):
            end_ns = min(end_ns, self.first.start_ns)  # limits count it, the hosts are the same
            self._first = charged(self.first, job, host, end_ns, self._quotas)

    def reserve_blocked(self, job: Job, free: HostSet) -> None:
        if self.first is None:
            self._reserve(job, free)
        self._has_waited = True

    def record_evictions(self, free: HostSet) -> None:
        if self.first is not None:
            self._reserve(self._jobs[self.first.name], free)

    def is_settled(self, job: Job) -> bool:
        """Whether nothing changes when `job` waits as well."""
        if not self._has_waited:
            return False
        return self.first is not None or self._outlook.is_hopeless(job)

    def is_done(self, free: HostSet) -> bool:
        return not free and self.first is not None

    def actions(self) -> tuple[Reserve, ...]:
        """Return the reservation where it has to be kept for the next decision: where it relies on
        gangs that are late, and each time that it has slipped since. Otherwise each decision makes
        it anew."""
        if not self._most_slips or self._first is None or self._asking is not None:
            return ()
        first = self._first
        if not self._outlook.is_late(self._start_ns):
            return ()
        before_ns = self._reserved.get(first.name)
        if before_ns is not None and (
            before_ns > self._now_ns or self._slips.get(first.name, 0) >= self._most_slips
        ):
            return ()
        return (Reserve(((first.name, self._start_ns),)),)


EASY = QueuePolicy("easy", order=ArrivalOrder, backfill=Easy)
