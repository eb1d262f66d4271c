"""Who may start before jobs that wait: what every rule answers, and limits of tenants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from muster.structs import replace
from placement.fabric.hostset import HostSet
from scheduler.core.capacity.outlook import Outlook
from scheduler.core.model.job import Job
from scheduler.core.model.plan import BackfillReservation, Reserve
from scheduler.core.tenancy.quota import UNLIMITED
from scheduler.core.tenancy.quota_check import Allowance, Quotas


class Backfill(Protocol):
    """One way to let later jobs pass. Mutable: it is shown every job in the order of the queue.

    `behind_text`: the words of the reason why a job waits for an earlier one. `lets_shorter_pass`:
    whether a job with a shorter time limit might start now. `reserves_places`: whether the first
    waiting job has certain hosts reserved, not only a number.
    """

    behind_text: str
    lets_shorter_pass: bool
    reserves_places: bool

    @property
    def reservations(self) -> Sequence[BackfillReservation]: ...

    @property
    def first(self) -> BackfillReservation | None:
        """The reservation that others must not delay, where there is just one."""
        ...

    @property
    def is_stable(self) -> bool:
        """Whether the starts of this decision leave every reservation as it is."""
        ...

    def permitted(self, job: Job, end_ns: int, allowed: Allowance) -> Allowance:
        """The allowed hosts that `job` may take now if it ends by `end_ns`."""
        ...

    def room(self, job: Job, end_ns: int, allowed: Allowance) -> int | None:
        """How many hosts of what is allowed `job` may take; None where each job has to be
        entered to know that."""
        ...

    def without_first(self, job: Job, end_ns: int, allowed: Allowance) -> Allowance:
        """Return the allowance without the hosts that the first reservation needs."""
        ...

    def record_allocation(
        self, job: Job, hosts: HostSet, end_ns: int, borrowed: HostSet = 0
    ) -> None:
        """Record that `job` starts on these hosts, some of them `borrowed` spares of others."""
        ...

    def may_share(self, job: Job, end_ns: int, until_ns: int) -> bool:
        """Whether `job` delays nobody when it shares a host until `end_ns` that others hold until
        `until_ns`."""
        ...

    def record_shared(self, job: Job, host: HostSet, end_ns: int, until_ns: int) -> None:
        """Record a start on a part of this host; `record_allocation` is not called for it."""
        ...

    def reserve_blocked(self, job: Job, free: HostSet) -> None:
        """Record that `job` is blocked, and reserve for it where the policy does."""
        ...

    def record_evictions(self, free: HostSet) -> None:
        """Gangs were evicted, and a job took its hosts: so much is free now."""
        ...

    def is_settled(self, job: Job) -> bool:
        """Return whether nothing changes when `job` waits as well."""
        ...

    def is_done(self, free: HostSet) -> bool:
        """Whether nobody further back can start or be reserved."""
        ...

    def actions(self) -> tuple[Reserve, ...]:
        """Reservations that have to be kept beyond this decision."""
        ...


class LimitReservations:
    """Reservations within tenants: later jobs of a tenant do not overtake its first job that waits
    for its limit, if they would delay it."""

    def __init__(self, outlook: Outlook, quotas: Quotas) -> None:
        self._outlook = outlook
        self._quotas = quotas
        self._first = outlook.held_back  # so that reservations of hosts leave it its room, too

    def room(self, job: Job, end_ns: int, room: int) -> int:
        """Return how many of `room` hosts `job` may take, on any hosts, without delaying an earlier
        job of its tenant."""
        if not self._first:
            return room
        for name in self._quotas.limits_on(job):
            if (first := self._first.get(name)) is not None and end_ns > first.start_ns:
                room = min(room, first.extra)
        return room

    def leaves_room(self, job: Job, end_ns: int, first: BackfillReservation | None) -> bool:
        """Whether `job`, on any hosts, leaves earlier jobs and `first` room below limits."""
        needed = job.needed
        if first is not None and needed > below_limits(first, job, end_ns, self._quotas):
            return False
        return needed <= self.room(job, end_ns, needed)

    def record_allocation(self, job: Job, hosts: HostSet, end_ns: int) -> None:
        for name in self._quotas.limits_on(job) if self._first else ():
            if (first := self._first.get(name)) is not None and end_ns > first.start_ns:
                self._first[name] = replace(first, extra=first.extra - hosts.bit_count())

    def reserve_blocked(self, job: Job, allowed: Allowance) -> None:
        """Reserve room below the limit of the tenant `allowed.whose` for `job`, unless another job
        has reserved it."""
        if allowed.limit_key not in self._first:
            reservation = self._outlook.limit_reservation(job, allowed)
            if reservation is not None:
                self._first[allowed.limit_key] = reservation

    def has_waiting(self, allowed: Allowance) -> bool:
        """Whether the limit that counts is known to hold a job back."""
        return allowed.limit_key in self._first

    def before(self, job: Job, end_ns: int) -> BackfillReservation | None:
        """Return the job of the same tenant that `job` would delay the most."""
        late = [first for first in self.first_blocked(job) if end_ns > first.start_ns]
        return min(late, key=lambda first: first.extra, default=None)

    def first_blocked(self, job: Job) -> list[BackfillReservation]:
        """The first job that each limit above `job` holds back."""
        return [f for name in self._quotas.limits_on(job) if (f := self._first.get(name))]


def room_beside(
    first: BackfillReservation, job: Job, end_ns: int, allowed: Allowance, quotas: Quotas
) -> int:
    """Hosts that `job` may take without delaying `first`."""
    below = below_limits(first, job, end_ns, quotas)
    if end_ns <= first.start_ns:
        return below
    return min(below, _room_in_place(first, job, allowed, quotas))


def below_limits(first: BackfillReservation, job: Job, end_ns: int, quotas: Quotas) -> int:
    """Return how many hosts limits leave `job` beside `first`, on any hosts. Who ends before
    `first` starts leaves it this room all the same: held back by a limit it would have no
    reservation."""
    is_longer = end_ns > first.start_ns
    own = {*quotas.limits_on(job)} if first.limits else ()
    rooms = (min(now, then) if is_longer else now for n, now, then in first.limits if n in own)
    return min(rooms, default=UNLIMITED)


def _room_in_place(first: BackfillReservation, job: Job, allowed: Allowance, quotas: Quotas) -> int:
    """Hosts that are left of those that `first` waits for, and of the promises to it."""
    if job.needed > first.own and draws_alike(first, job, quotas):
        return 0
    if first.lendable is None:
        if first.among is None:
            return first.extra
        return first.extra + unusable_hosts(first, allowed.reach).bit_count()
    # What a promise covers was never the first one's to borrow.
    return job.needed if quotas.uncovered(job, job.needed) <= first.lendable else 0


def draws_alike(first: BackfillReservation, job: Job, quotas: Quotas) -> bool:
    """Return whether `job` draws on the same guarantees as `first`."""
    return any(name in first.draws_on for name in quotas.path(job.tenant))


def unusable_hosts(first: BackfillReservation, hosts: HostSet) -> HostSet:
    """Return those of `hosts` that `first` could not use, for a window closes them to it then."""
    return 0 if first.among is None else hosts & ~first.among


def charged(
    first: BackfillReservation,
    job: Job,
    hosts: HostSet,
    end_ns: int,
    quotas: Quotas,
    borrowed: HostSet = 0,
) -> BackfillReservation:
    """Return the reservation after `job` has taken `hosts` until `end_ns`. Limits count those
    `borrowed` as well; nobody waits for these."""
    is_longer, count = end_ns > first.start_ns, hosts.bit_count()
    own = {*quotas.limits_on(job)} if first.limits else ()
    limits = tuple(
        (name, now - count, then - count * is_longer) if name in own else (name, now, then)
        for name, now, then in first.limits
    )
    if not is_longer:
        return first if limits == first.limits else replace(first, limits=limits)
    lendable, hosts = first.lendable, hosts & ~borrowed
    count = hosts.bit_count()
    uncovered = quotas.uncovered(job, count)
    left = first.own - (count if draws_alike(first, job, quotas) else uncovered)
    if lendable is not None:
        lendable -= uncovered
    count -= unusable_hosts(first, hosts).bit_count()
    return replace(first, extra=first.extra - count, lendable=lendable, own=left, limits=limits)
