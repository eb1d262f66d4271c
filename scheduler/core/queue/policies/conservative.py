"""Conservative backfill: every waiting job has a reservation, and each is kept.

A job is given the earliest time that delays no reservation made before. When gangs end
early the schedule is compressed: one after the other, in order of arrival, each waiting
job gives up its reservation and takes the earliest one it can have, which is never later.
Reservations are part of the state, for what was promised yesterday cannot be recomputed.
Where windows tell hosts apart, a reservation is of a number of hosts of each kind (grounds).

Source: Mu'alem and Feitelson, TPDS 12(6), 2001, section 2.
"""

from __future__ import annotations

from collections.abc import Callable

from muster.structs import struct
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from scheduler.core.capacity.host_classes import HostClasses
from scheduler.core.capacity.outlook import Outlook
from scheduler.core.capacity.profile import Profile
from scheduler.core.model.job import Job
from scheduler.core.model.plan import BackfillReservation, Reserve
from scheduler.core.model.scheduling_options import time_limit_ns
from scheduler.core.model.state import State
from scheduler.core.model.window import Shares
from scheduler.core.queue.order import ArrivalOrder
from scheduler.core.queue.policy import QueueContext, QueuePolicy
from scheduler.core.tenancy.quota_check import Allowance


@struct(frozen=True, slots=True)
class Booked:
    """A booking of so many hosts in [start, end). Where windows tell hosts apart it says how many
    hosts of each class."""

    start_ns: int
    end_ns: int
    hosts: int
    shares: Shares = ()


class Conservative:
    """Reservations for all waiting jobs, in their order. Cost: O(gangs and reservations) for each
    waiting job."""

    behind_text = "starting now would delay it"
    lets_shorter_pass = False
    reserves_places = False
    first = None
    is_stable = False

    def __init__(self, context: QueueContext) -> None:
        """Raises: ValueError under a policy that preempts: a schedule that is kept as
        promised counts on the gangs that run."""
        if context.policy.may_preempt:
            raise ValueError(
                "conservative backfill does not go with preemption: jobs would start later than"
                " their reservations say"
            )
        state, outlook, free = context.state, context.outlook, context.free
        now_ns = context.now_ns
        self._now_ns, self._options = now_ns, context.options
        self._before, self._shares_before = state.reserved, state.shares
        moments = outlook.moments(_needs_repairs(state, outlook, free))
        ends = [(gang.end_ns, gang.hosts.bit_count()) for gang in moments]
        self._profile = Profile(now_ns, free.bit_count(), ends)
        self._grounds = (
            HostClasses(
                now_ns,
                free,
                moments,
                outlook.calendar,
                hostset.full(state.loaded_fabric.host_count),
            )
            if outlook.calendar
            else None
        )
        self._booked: dict[str, Booked] = {}
        self._reserved: dict[str, Booked] = {}
        self._considered = 0
        self._keep_promises(state)

    def _keep_promises(self, state: State) -> None:
        """Book what was reserved, first start first; what no longer fits is dropped: a
        host failed, a gang outran its limit, or a window was set."""
        jobs = [state.jobs[name] for name in state.reserved if name in state.jobs]
        jobs.sort(key=lambda j: (self._before[j.name], j.sequence))
        left = [job for job in jobs if not self._keep(job, self._shares_before.get(job.name, ()))]
        for job in left if self._grounds else ():
            self._keep(job, None)

    def _keep(self, job: Job, shares: Shares | None) -> bool:
        """Whether `job` has its time again, in these shares or, with None, in any."""
        start_ns = max(self._before[job.name], self._now_ns)
        end_ns = start_ns + time_limit_ns(job, self._options)
        if self._profile.least(start_ns, end_ns) < job.needed:
            return False
        if self._grounds is not None:
            shares = (
                self._grounds.shares(job, start_ns, end_ns)
                if shares is None
                else self._grounds.renew_shares(job, shares, start_ns, end_ns)
            )
            if shares is None:
                return False
        self._book(job.name, Booked(start_ns, end_ns, job.needed, shares or ()))
        return True

    def _book(self, name: str, booking: Booked) -> None:
        self._profile.book(booking.start_ns, booking.end_ns, booking.hosts)
        if self._grounds is not None:
            self._grounds.book(booking.start_ns, booking.end_ns, booking.shares)
        self._booked[name] = booking

    def _unbook(self, name: str) -> None:
        if (booking := self._booked.pop(name, None)) is not None:
            self._profile.book(booking.start_ns, booking.end_ns, -booking.hosts)
            if self._grounds is not None:
                self._grounds.book(booking.start_ns, booking.end_ns, booking.shares, -1)

    @property
    def reservations(self) -> tuple[BackfillReservation, ...]:
        return tuple(
            BackfillReservation(name, booking.start_ns) for name, booking in self._reserved.items()
        )

    def actions(self) -> tuple[Reserve, ...]:
        """Return the reservations that are new."""
        new = {
            name: booking for name, booking in self._reserved.items() if self._is_new(name, booking)
        }
        starts = tuple((name, booking.start_ns) for name, booking in new.items())
        shares = tuple((name, booking.shares) for name, booking in new.items() if booking.shares)
        return (Reserve(starts, shares),) if new else ()

    def _is_new(self, name: str, booking: Booked) -> bool:
        before_ns = self._before.get(name)
        is_due = before_ns is not None and before_ns <= booking.start_ns == self._now_ns
        if before_ns != booking.start_ns and not is_due:
            return True
        before = self._shares_before.get(name, ())
        return self._grounds is not None and self._grounds.of_today(before) != booking.shares

    def permitted(self, job: Job, end_ns: int, allowed: Allowance) -> Allowance:
        if job.hosts:  # it runs, and has more now or not at all: it waits for no time
            return self._now(job, end_ns, allowed)
        self._considered += 1
        self._unbook(job.name)
        lasts_ns = end_ns - self._now_ns
        start_ns = self._profile.earliest(job.needed, lasts_ns, self._may_start(job, lasts_ns))
        if start_ns is None:
            return allowed.capped(0)
        if start_ns == self._now_ns:
            return self._now(job, end_ns, allowed)
        self._reserve(job, start_ns, start_ns + lasts_ns)
        return allowed.capped(0)

    def _may_start(self, job: Job, lasts_ns: int) -> Callable[[int], bool] | None:
        """Whether there are hosts enough that windows leave open, from a moment on."""
        grounds = self._grounds
        if grounds is None:
            return None
        return lambda at_ns: grounds.shares(job, at_ns, at_ns + lasts_ns) is not None

    def _now(self, job: Job, end_ns: int, allowed: Allowance) -> Allowance:
        if self._grounds is not None:
            room = self._grounds.room(job, allowed.reach, self._now_ns, end_ns)
            allowed = allowed.on(room)
        return allowed.capped(self._profile.least(self._now_ns, end_ns))

    def _reserve(self, job: Job, start_ns: int, end_ns: int) -> None:
        shares = self._grounds.shares(job, start_ns, end_ns) if self._grounds else ()
        self._book(job.name, Booked(start_ns, end_ns, job.needed, shares or ()))

    def record_allocation(
        self, job: Job, hosts: HostSet, end_ns: int, borrowed: HostSet = 0
    ) -> None:
        hosts &= ~borrowed
        shares = self._grounds.of(hosts) if self._grounds else ()
        self._book(job.name, Booked(self._now_ns, end_ns, hosts.bit_count(), shares))

    def may_share(self, job: Job, end_ns: int, until_ns: int) -> bool:
        if end_ns <= until_ns:
            return True
        return self._grounds is None and self._profile.least(until_ns, end_ns) > 0

    def record_shared(self, job: Job, host: HostSet, end_ns: int, until_ns: int) -> None:
        self._unbook(job.name)
        if end_ns > until_ns:
            self._profile.book(until_ns, end_ns, 1)

    def reserve_blocked(self, job: Job, free: HostSet) -> None:
        """Reserve hosts for a blocked job. One that has hosts now, but waits for quotas or
        constraints, keeps them, or others would take them."""
        if job.name not in self._booked:
            end_ns = self._now_ns + time_limit_ns(job, self._options)
            if self._profile.least(self._now_ns, end_ns) < job.needed:
                return
            self._reserve(job, self._now_ns, end_ns)
        self._reserved[job.name] = self._booked[job.name]

    def room(self, job: Job, end_ns: int, allowed: Allowance) -> None:
        return None  # each job has a reservation of its own

    def without_first(self, job: Job, end_ns: int, allowed: Allowance) -> Allowance:
        return allowed

    def record_evictions(self, free: HostSet) -> None:
        raise AssertionError("nobody is preempted here")

    def is_settled(self, job: Job) -> bool:
        return False

    def is_done(self, free: HostSet) -> bool:
        return 0 < self._options.most_reservations <= self._considered


def _needs_repairs(state: State, outlook: Outlook, free: HostSet) -> bool:
    """Whether somebody waits whose start cannot be foreseen unless hosts come back."""
    if not outlook.repairs():
        return False
    most = free.bit_count() + sum(gang.hosts.bit_count() for gang in outlook.moments())
    return any(state.jobs[name].needed > most for name in state.index.queue)


CONSERVATIVE = QueuePolicy(
    "conservative", order=ArrivalOrder, backfill=Conservative, reserves_all=True
)
