"""Conservative backfill: every waiting job has a reservation, and each is kept.

A job is given the earliest time that delays no reservation made before. When gangs end
early the schedule is compressed: one after the other, in order of arrival, each waiting
job gives up its reservation and takes the earliest one it can have, which is never later.
Reservations are part of the state, for what was promised yesterday cannot be recomputed.

Source: Mu'alem and Feitelson, TPDS 12(6), 2001, section 2.
"""

from __future__ import annotations

from functools import partial

from placement.hostset import HostSet
from scheduler.core.job import Job
from scheduler.core.plan import Reservation, Reserve
from scheduler.core.policy import Limits, time_limit_ns
from scheduler.core.queue.profile import Profile
from scheduler.core.queue.reserve import Outlook
from scheduler.core.state import State
from scheduler.core.tenancy.admission import Allowance


class Conservative:
    """A `backfill.Rule`. Cost: O(gangs and reservations) for each waiting job."""

    def __init__(
        self, state: State, now_ns: int, limits: Limits, outlook: Outlook, free: HostSet
    ) -> None:
        self._now_ns, self._limits = now_ns, limits
        self._before = state.reserved
        self._outlook = outlook
        ends = [(gang.end_ns, gang.hosts.bit_count()) for gang in outlook.moments()]
        self._profile = Profile(now_ns, free.bit_count(), ends)
        self._booked: dict[str, tuple[int, int, int]] = {}
        self._reserved: dict[str, int] = {}
        self._considered = 0
        self._keep_promises(state, outlook)

    def _keep_promises(self, state: State, outlook: Outlook) -> None:
        """Book what was reserved, first start first; what no longer fits is dropped: a
        host failed, a gang outran its limit, or a window was set."""
        jobs = [state.jobs[name] for name in state.reserved if name in state.jobs]
        for job in sorted(jobs, key=lambda j: (self._before[j.name], j.sequence)):
            start_ns = max(self._before[job.name], self._now_ns)
            end_ns = start_ns + time_limit_ns(job, self._limits)
            is_free = self._profile.least(start_ns, end_ns) >= job.needed
            if is_free and outlook.may_start(job, start_ns):
                self._book(job.name, start_ns, end_ns, job.needed)

    def _book(self, name: str, start_ns: int, end_ns: int, hosts: int) -> None:
        self._profile.book(start_ns, end_ns, hosts)
        self._booked[name] = (start_ns, end_ns, hosts)

    def _unbook(self, name: str) -> None:
        if name in self._booked:
            start_ns, end_ns, hosts = self._booked.pop(name)
            self._profile.book(start_ns, end_ns, -hosts)

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        return tuple(Reservation(name, start_ns) for name, start_ns in self._reserved.items())

    def actions(self) -> tuple[Reserve, ...]:
        """What is new about the reservations."""
        new = {n: s for n, s in self._reserved.items() if self._before.get(n) != s}
        return (Reserve(tuple(new.items())),) if new else ()

    def room(self, job: Job, end_ns: int, allowed: Allowance) -> int:
        self._considered += 1
        self._unbook(job.name)
        duration_ns = end_ns - self._now_ns
        may_start = partial(self._outlook.may_start, job) if self._outlook.calendar else None
        start_ns = self._profile.earliest(job.needed, duration_ns, may_start)
        if start_ns is None:
            return 0
        if start_ns == self._now_ns:
            return min(allowed.pool, self._profile.least(start_ns, end_ns))
        self._book(job.name, start_ns, start_ns + duration_ns, job.needed)
        return 0

    def took(self, job: Job, hosts: HostSet, end_ns: int) -> None:
        self._book(job.name, self._now_ns, end_ns, hosts.bit_count())

    def waits(self, job: Job, allowed: Allowance, free: HostSet) -> None:
        if job.name in self._booked:
            self._reserved[job.name] = self._booked[job.name][0]

    def is_done(self, free: HostSet) -> bool:
        return self._considered >= self._limits.most_reservations
