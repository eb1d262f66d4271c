"""Who may start before those that wait: EASY, FIFO and limits of tenants.

EASY: the first waiting job whose start can be foreseen has a reservation. A later job
starts now if it ends before that, or on hosts that the reservation leaves over.
Source: Lifka, "The ANL/IBM SP scheduling system" (JSSPP 1995); Mu'alem and Feitelson,
TPDS 12(6), 2001, section 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from placement.fabric.hostset import HostSet
from scheduler.core.capacity.outlook import Outlook
from scheduler.core.model.job import Job
from scheduler.core.model.plan import BackfillReservation, LazyReservations
from scheduler.core.rules.affinity_index import AffinityIndex
from scheduler.core.tenancy.guarantees import highest
from scheduler.core.tenancy.quota import UNLIMITED
from scheduler.core.tenancy.quota_check import Allowance, Quotas


class Backfill(Protocol):
    """One way to let later jobs pass. Told of every job in the order of the queue."""

    @property
    def reservations(self) -> Sequence[BackfillReservation]: ...

    def beside(self, job: Job, end_ns: int, allowed: Allowance) -> Allowance:
        """Of what is allowed, what `job` may take now if it ends by `end_ns`."""
        ...

    def took(self, job: Job, hosts: HostSet, end_ns: int, borrowed: HostSet = 0) -> None:
        """`job` starts on these hosts, some of them `borrowed` from the spares of others."""
        ...

    def waits(self, job: Job, free: HostSet) -> None:
        """`job` does not."""
        ...

    def is_done(self, free: HostSet) -> bool:
        """Whether nobody further back can start or be reserved."""
        ...


class Easy:
    """One reservation; with `is_fifo`, nobody passes the first that waits."""

    def __init__(
        self, outlook: Outlook, quotas: Quotas, company: AffinityIndex, is_fifo: bool
    ) -> None:
        self._outlook = outlook
        self._quotas, self._company = quotas, company
        self._is_fifo = is_fifo
        self._has_waited = False
        self._first: BackfillReservation | None = None
        self._asking: tuple[Job, HostSet] | None = None

    @property
    def first(self) -> BackfillReservation | None:
        """Found once somebody asks, which is before anybody takes hosts: often nobody does."""
        if self._asking is not None:
            asking, self._asking = self._asking, None
            self._first = self._outlook.reservation(*asking)
        return self._first

    def reserves(self, job: Job, free: HostSet) -> None:
        """The reservation is for `job`, with what is `free` and running now."""
        self._outlook.comes(job)
        self._asking = (job, free)

    @property
    def reservations(self) -> Sequence[BackfillReservation]:
        return LazyReservations(self._found) if self._has_waited else ()

    def _found(self) -> tuple[BackfillReservation, ...]:
        return () if self.first is None else (self.first,)

    def beside(self, job: Job, end_ns: int, allowed: Allowance) -> Allowance:
        allowed = self.off_first(job, end_ns, allowed)
        return allowed.at_most(self.room(job, end_ns, allowed))

    def room(self, job: Job, end_ns: int, allowed: Allowance) -> int:
        """How many hosts of what is allowed `job` may take."""
        if self._is_fifo and self._has_waited:
            return 0
        if self.first is None or job.needed > allowed.pool:
            return allowed.pool
        return min(allowed.pool, room_beside(self.first, job, end_ns, allowed, self._quotas))

    def off_first(self, job: Job, end_ns: int, allowed: Allowance) -> Allowance:
        """Less the hosts that the reservation needs beyond their number. A job that others
        may not lie beside closes more hosts than it takes: unless it is known which of them
        the reservation needs, it takes none."""
        first, wants = self.first, job.spec.neighbours
        if first is None or end_ns <= first.start_ns:
            return allowed
        if not first.kept and (wants.exclusive or wants.avoid):
            return allowed.on(0)
        if not first.kept:
            return allowed if first.among is None else self._off_number(job, allowed, first)
        closed = first.kept | self._company.shadow(wants, first.kept)
        return allowed.on(self._company.fitting(job, allowed.reach & ~closed))

    def _off_number(self, job: Job, allowed: Allowance, first: BackfillReservation) -> Allowance:
        """Less all but `extra` of the hosts that the reservation counts, where windows make
        some count and some not, and the number is what it promises."""
        if first.lendable is not None or job.needed <= first.extra:
            return allowed
        beside = uncounted(first, allowed.reach)
        beside |= highest(allowed.reach & ~beside, max(0, first.extra))
        return allowed.on(self._company.fitting(job, beside))

    def took(self, job: Job, hosts: HostSet, end_ns: int, borrowed: HostSet = 0) -> None:
        if self.first is not None:
            self._first = charged(self.first, job, hosts, end_ns, self._quotas, borrowed)

    def waits(self, job: Job, free: HostSet) -> None:
        if not (self._is_fifo and self._has_waited) and self.first is None:
            self.reserves(job, free)
        self._has_waited = True

    def is_settled(self, job: Job) -> bool:
        """Whether nothing changes when `job` waits as well."""
        if not self._has_waited:
            return False
        return self.first is not None or self._is_fifo or self._outlook.is_hopeless(job)

    def is_done(self, free: HostSet) -> bool:
        if self._is_fifo and self._has_waited:
            return True
        return not free and self.first is not None


class LimitReservations:
    """The same within a tenant: the first job that its limit holds back is not passed
    by later ones of the tenant that would hold it back for longer."""

    def __init__(self, outlook: Outlook, quotas: Quotas) -> None:
        self._outlook = outlook
        self._quotas = quotas
        self._first = outlook.held_back  # so that reservations of hosts leave it its room, too

    def room(self, job: Job, end_ns: int, room: int) -> int:
        """Of `room` hosts, whoever's they are, those that delay no job of the same tenant."""
        if not self._first:
            return room
        for name in self._quotas.path(job.tenant):
            if (first := self._first.get(name)) is not None and end_ns > first.start_ns:
                room = min(room, first.extra)
        return room

    def leaves(self, job: Job, end_ns: int, first: BackfillReservation | None) -> bool:
        """Whether `job`, on any hosts, leaves those before it, `first` among them, their room
        below limits."""
        needed = job.needed
        if first is not None and needed > below_limits(first, job, end_ns, self._quotas):
            return False
        return needed <= self.room(job, end_ns, needed)

    def took(self, job: Job, hosts: HostSet, end_ns: int) -> None:
        for name in self._quotas.path(job.tenant) if self._first else ():
            if (first := self._first.get(name)) is not None and end_ns > first.start_ns:
                self._first[name] = replace(first, extra=first.extra - hosts.bit_count())

    def waits(self, job: Job, allowed: Allowance) -> None:
        """`job` is held back by the limit of `allowed.whose`."""
        if allowed.whose not in self._first:
            found = self._outlook.limit_reservation(job, allowed.whose, allowed.limit)
            if found is not None:
                self._first[allowed.whose] = found

    def has_waiting(self, whose: str) -> bool:
        """Whether the limit of this tenant is known to hold a job back."""
        return whose in self._first

    def before(self, job: Job, end_ns: int) -> BackfillReservation | None:
        """The job of the same tenant that `job` would delay the most."""
        late = [first for first in self.held_back(job) if end_ns > first.start_ns]
        return min(late, key=lambda first: first.extra, default=None)

    def held_back(self, job: Job) -> list[BackfillReservation]:
        """The first job that each limit above `job` holds back."""
        return [f for name in self._quotas.path(job.tenant) if (f := self._first.get(name))]


def room_beside(
    first: BackfillReservation, job: Job, end_ns: int, allowed: Allowance, quotas: Quotas
) -> int:
    """Hosts that `job` may take without delaying `first`."""
    below = below_limits(first, job, end_ns, quotas)
    if end_ns <= first.start_ns:
        return below
    return min(below, _room_in_place(first, job, allowed, quotas))


def below_limits(first: BackfillReservation, job: Job, end_ns: int, quotas: Quotas) -> int:
    """Hosts that limits leave `job` beside `first`, whoever's they are. Who ends before `first`
    starts leaves it this room all the same: held back by a limit it would have no reservation."""
    is_longer = end_ns > first.start_ns
    path = quotas.path(job.tenant) if first.limits else ()
    rooms = (min(now, then) if is_longer else now for n, now, then in first.limits if n in path)
    return min(rooms, default=UNLIMITED)


def _room_in_place(first: BackfillReservation, job: Job, allowed: Allowance, quotas: Quotas) -> int:
    """Hosts that are left of those that `first` waits for, and of the promises to it."""
    if job.needed > first.own and draws_alike(first, job, quotas):
        return 0
    if first.lendable is None:
        if first.among is None:
            return first.extra
        return first.extra + uncounted(first, allowed.reach).bit_count()
    # What a promise covers was never the first one's to borrow.
    return job.needed if quotas.uncovered(job, job.needed) <= first.lendable else 0


def draws_alike(first: BackfillReservation, job: Job, quotas: Quotas) -> bool:
    """Whether promises cover `job` that `first` counts on."""
    return any(name in first.draws_on for name in quotas.path(job.tenant))


def uncounted(first: BackfillReservation, hosts: HostSet) -> HostSet:
    """Those of `hosts` that `first` could not use, for a window closes them to it then."""
    return 0 if first.among is None else hosts & ~first.among


def charged(
    first: BackfillReservation,
    job: Job,
    hosts: HostSet,
    end_ns: int,
    quotas: Quotas,
    borrowed: HostSet = 0,
) -> BackfillReservation:
    """What is left beside `first` once `job` holds `hosts` until `end_ns`. Limits count those
    `borrowed` as well; nobody waits for these."""
    is_longer, count = end_ns > first.start_ns, hosts.bit_count()
    path = quotas.path(job.tenant) if first.limits else ()
    limits = tuple(
        (name, now - count, then - count * is_longer) if name in path else (name, now, then)
        for name, now, then in first.limits
    )
    if not is_longer:
        return first if limits == first.limits else replace(first, limits=limits)
    lendable, hosts = first.lendable, hosts & ~borrowed
    count = hosts.bit_count()
    uncovered = quotas.uncovered(job, count)
    own = first.own - (count if draws_alike(first, job, quotas) else uncovered)
    if lendable is not None:
        lendable -= uncovered
    count -= uncounted(first, hosts).bit_count()
    return replace(first, extra=first.extra - count, lendable=lendable, own=own, limits=limits)
