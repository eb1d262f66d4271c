"""Who runs next, and where: the slow half of scheduling, a proposal on one version.

First the gangs that a failure stopped, for they hold hosts that do nothing. Then every
queued job passes the same stages:

    order        priority, fair share, arrival                         order, shares
    admission    what quotas leave its tenant                          admission, quota, cells
    backfill     what it may take without delaying a reservation       backfill, conservative
    placement    hosts in rank order, by the cut                       placement.place
    reservation  when and where it starts, if it does not start now    reserve
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from placement import hostset
from placement.hostset import HostSet
from placement.place import place
from placement.request import Placement
from scheduler.core.admission import Allowance, Quotas
from scheduler.core.backfill import Caps, Easy, Rule
from scheduler.core.company import Company
from scheduler.core.conservative import Conservative
from scheduler.core.job import Job
from scheduler.core.order import Line
from scheduler.core.plan import Action, Plan, Requeue, Reservation, Start, Swap
from scheduler.core.policy import Limits, Policy, time_limit_ns
from scheduler.core.reserve import Outlook
from scheduler.core.restart import restarts
from scheduler.core.state import State

# (job, free hosts, hosts it may hold at most) -> where it would run
Find = Callable[[Job, HostSet, int], Placement | None]


class Hold(StrEnum):
    """What keeps a job from starting now."""

    LIMIT = "limit"  # its tenant's, or of one above
    PROMISES = "promises"  # enough hosts are free, and guaranteed to others
    HOSTS = "hosts"  # too few are free
    CONSTRAINTS = "constraints"  # enough are free, and too few where the job may lie
    RESERVED = "reserved"  # starting would delay an earlier job


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of one queued job. `placement` None: it waits, because of `hold`.

    `behind`: the reservation that it would delay. `free`: hosts free when it was its turn.
    `passes_ns`: it would delay nobody if it ended by then.
    """

    job: Job
    placement: Placement | None
    hold: Hold | None
    allowed: Allowance
    free: int
    behind: Reservation | None = None
    passes_ns: int | None = None


def decide(state: State, now_ns: int, limits: Limits, find: Find | None = None) -> Plan:
    """What to do now. The same arguments give the same plan.

    A requeued gang may be first in the queue, so nothing starts before it is there.
    `find`: `placing` unless somebody looks on while it works.
    """
    first = restarts(state)
    if any(isinstance(action, Requeue) for action in first):
        return Plan(state.version, first)
    free = state.free
    for action in first:
        if isinstance(action, Swap):
            free &= ~hostset.of(move.joined for move in action.moves)
    desk = Desk(state, now_ns, limits, free, find or placing(state, limits))
    starts: list[Action] = [Start(job.name, placement) for job, placement in desk.starts()]
    return Plan(state.version, (*first, *starts, *desk.promises()), desk.rule.reservations)


def placing(state: State, limits: Limits) -> Find:
    """Placement by the cut, on at most so many hosts, spares included."""

    def find(job: Job, free: HostSet, most: int) -> Placement | None:
        spares = most - job.gang_hosts
        fabric, request = state.loaded_fabric, job.spec.request
        answer = place(fabric, free, request, limits.place, most_spares=spares)
        return answer if isinstance(answer, Placement) else None

    return find


class Desk:
    """The queue passes here, one job after the other. `free`: hosts not yet given away."""

    def __init__(
        self, state: State, now_ns: int, limits: Limits, free: HostSet, find: Find
    ) -> None:
        self.free = free
        self.quotas = Quotas(state)
        self.company = Company(state)
        self._outlook = Outlook(state, now_ns, limits, self.quotas)
        self.rule: Rule = (
            Conservative(state, now_ns, limits, self._outlook, free)
            if limits.policy is Policy.CONSERVATIVE
            else Easy(self._outlook, self.quotas, limits.policy is Policy.FIFO)
        )
        self.caps = Caps(self._outlook, self.quotas)
        self._line = Line(state, now_ns, limits, self.quotas.book)
        self._now_ns, self._limits, self._find = now_ns, limits, find
        self._started_hosts = 0
        self._room = free.bit_count()

    def starts(self) -> Iterator[tuple[Job, Placement]]:
        """In the order of the queue, until nobody further back can start or enough has."""
        for job in self._line:
            outcome = self._outcome(job)
            if isinstance(outcome, Placement):
                yield job, outcome
            if self._started_hosts >= self._limits.batch_hosts or self.rule.is_done(self.free):
                break

    def verdicts(self) -> Iterator[Verdict]:
        """What becomes of every job of the queue, if all were decided at once."""
        for job in self._line:
            free, first = self._room, self._first()
            allowed = self._allowed(job, self.quotas.allowance(job, self.free))
            outcome = self._outcome(job)
            if isinstance(outcome, Placement):
                yield Verdict(job, outcome, None, allowed, free)
                continue
            passes_ns = None
            if outcome is Hold.RESERVED:
                passes_ns = self._passes_ns(job, first)
                first = self.caps.before(job, self._end_ns(job)) or first
            yield Verdict(job, None, outcome, allowed, free, first, passes_ns)

    def may_start(self, job: Job) -> bool:
        """Whether quotas, limits and reservations let `job` start, behind all so far."""
        allowed, end_ns = self.allowance(job), self._end_ns(job)
        if job.needed > allowed.limit:
            return False
        room = min(self.rule.room(job, end_ns, allowed), allowed.limit)
        return job.needed <= self.caps.room(job, end_ns, room)

    def allowance(self, job: Job) -> Allowance:
        """What quotas, constraints and reservations of places leave `job`."""
        allowed = self._allowed(job, self.quotas.allowance(job, self.free))
        return self._beside_first(job, allowed, self._end_ns(job))

    def _passes_ns(self, job: Job, first: Reservation | None) -> int | None:
        """The first moment at which somebody is promised hosts that `job` may need."""
        if self._limits.policy in (Policy.FIFO, Policy.CONSERVATIVE):
            return None
        held_back = self.caps.held_back(job) + ([first] if first is not None else [])
        return min((other.start_ns for other in held_back), default=None)

    def promises(self) -> tuple[Action, ...]:
        """Reservations that have to be kept beyond this decision."""
        return self.rule.actions() if isinstance(self.rule, Conservative) else ()

    def _end_ns(self, job: Job) -> int:
        return self._now_ns + time_limit_ns(job, self._limits)

    def _outcome(self, job: Job) -> Placement | Hold:
        """The stages, one after the other. What starts has its hosts from here on."""
        needed = job.needed
        by_quota = self.quotas.allowance(job, self.free)
        allowed = self._allowed(job, by_quota)
        if needed > allowed.limit:
            self.caps.waits(job, allowed)
            return Hold.LIMIT
        end_ns = self._end_ns(job)
        allowed = self._beside_first(job, allowed, end_ns)
        room = min(self.rule.room(job, end_ns, allowed), allowed.limit)
        below_cap = self.caps.room(job, end_ns, room)
        if below_cap < needed <= room:
            return Hold.RESERVED
        if needed <= below_cap:
            placement = self._placed(job, allowed, below_cap, end_ns)
            if placement is not None:
                self._take(job, hostset.of(placement.hosts + placement.spares), end_ns)
                return placement
        self.rule.waits(job, by_quota, self.free)
        if needed > self._room:
            return Hold.HOSTS
        if needed > by_quota.pool:
            return Hold.PROMISES
        open_to = self._allowed(job, by_quota).reach
        return Hold.CONSTRAINTS if needed > open_to.bit_count() else Hold.RESERVED

    def _allowed(self, job: Job, allowed: Allowance) -> Allowance:
        """Of what quotas leave, what the job's constraints and its neighbours leave."""
        return _narrowed(allowed, self.company.room(job, allowed.reach))

    def _beside_first(self, job: Job, allowed: Allowance, end_ns: int) -> Allowance:
        """Less the hosts that a reservation needs beyond their number. A job that others
        may not lie beside closes more hosts than it takes: unless it is known which of them
        the reservation needs, it takes none."""
        first = self._first()
        if first is None or end_ns <= first.start_ns:
            return allowed
        wants = job.spec.neighbours
        if not first.kept:
            return _narrowed(allowed, 0) if wants.exclusive or wants.avoid else allowed
        closed = first.kept | self.company.shadow(wants, first.kept)
        return _narrowed(allowed, self.company.fitting(job, allowed.reach & ~closed))

    def _first(self) -> Reservation | None:
        return self.rule.first if isinstance(self.rule, Easy) else None

    def _placed(self, job: Job, allowed: Allowance, most: int, end_ns: int) -> Placement | None:
        """Where `job` runs: in its tenant's own cells if they hold it, off the hosts of a
        reservation if it outlasts that, else anywhere."""
        first = self._first()
        outlasts = first is not None and end_ns > first.start_ns
        beside = allowed.reach & ~first.hosts if first is not None and outlasts else 0
        near = self.company.near(job.spec.neighbours)
        preferred = [allowed.own, beside]
        preferred[:0] = [hosts & near for hosts in (*preferred, allowed.reach)] if near else []
        for hosts in (self.company.fitting(job, hosts) for hosts in preferred if hosts):
            if hosts.bit_count() >= job.needed:
                return self._noted(job, self._find(job, hosts, min(most, hosts.bit_count())))
        return self._noted(job, self._find(job, allowed.reach, most))

    def _noted(self, job: Job, placement: Placement | None) -> Placement | None:
        wants = job.spec.neighbours
        return placement and self.company.noted(wants, placement)

    def _take(self, job: Job, hosts: HostSet, end_ns: int) -> None:
        self.rule.took(job, hosts, end_ns)
        self.caps.took(job, hosts, end_ns)
        self._outlook.took(job, hosts, end_ns)
        self.quotas.took(job, hosts)
        self.company.took(job, hosts)
        self._line.took(job, hosts.bit_count())
        self._started_hosts += hosts.bit_count()
        self._room -= hosts.bit_count()
        self.free &= ~hosts


def _narrowed(allowed: Allowance, hosts: HostSet) -> Allowance:
    """`allowed` on no other hosts than these."""
    if hosts == allowed.reach:
        return allowed
    own, pool = allowed.own & hosts, min(allowed.pool, hosts.bit_count())
    return replace(allowed, reach=hosts, own=own, pool=pool)
