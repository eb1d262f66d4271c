"""Reservations: when, and where, a job that cannot start now will find room.

Running jobs are taken to end at their limits, and windows at their ends; hosts of a window
that the job would reach into are not there for it. The earliest moment at which what is free
then suffices, by number and by quota, is the reservation; the hosts are those of the
fewest outermost domains, and among them the ones that are busy now, so that as much as
possible of what is free may be used meanwhile.

Where all that never suffices, hosts under repair count as well: they are taken to come back
after the mean time of the repairs so far, for else a large gang would keep nothing for itself
and small ones would take every host that comes back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from itertools import groupby
from math import inf
from operator import attrgetter

from muster.structs import replace
from placement.fabric import hostset
from placement.fabric.constraints import tier_of
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric, masks
from placement.workload.segments import hosts_for_roles
from scheduler.core.model.job import Job, Release
from scheduler.core.model.plan import BackfillReservation
from scheduler.core.model.records.failure_rates import mean_repair_ns
from scheduler.core.model.scheduling_options import (
    SchedulingOptions,
    expected_end_ns,
    later_ns,
    time_limit_ns,
)
from scheduler.core.model.state import State
from scheduler.core.policies.storage_use import ROUNDING_GB_PER_S
from scheduler.core.rules.affinity_index import AffinityIndex, ReadReservation, is_bound
from scheduler.core.rules.calendar import Calendar
from scheduler.core.rules.crash_loop import avoided, clear_moments
from scheduler.core.tenancy.future_quota import FutureQuota
from scheduler.core.tenancy.guarantees import highest
from scheduler.core.tenancy.quota import QuotaBook, domain_masks
from scheduler.core.tenancy.quota_check import Allowance, Quotas, limit_key
from scheduler.core.tenancy.spare_loans import SpareLoans


def releases(
    state: State, now_ns: int, options: SchedulingOptions
) -> tuple[tuple[Release, ...], frozenset[str]]:
    """Return when hosts come free, gang by gang, first end first, and the names of gangs that have
    outrun the limit that they state. Cost: O(gangs log gangs), O(log gangs) for each whose limit is
    over while all hosts are their own and well."""
    loans = SpareLoans(state)
    if loans.hosts or state.index.unhealthy & state.index.held:
        gangs = sorted(_release(job, loans, now_ns, options) for job in state.holding)
        return tuple(gangs), _late(
            job.release for job in state.holding if job.release.end_ns <= now_ns
        )
    in_order = tuple(state.releases)
    late = bisect_left(in_order, (now_ns + 1,))
    if not late:
        return in_order, frozenset()
    past = [_overdue(gang, state.jobs[gang.name], now_ns, options) for gang in in_order[:late]]
    return tuple(sorted([*past, *in_order[late:]])), _late(in_order[:late])


def _late(past: Iterable[Release]) -> frozenset[str]:
    return frozenset(gang.name for gang in past if gang.end_ns)


def _overdue(gang: Release, job: Job, now_ns: int, options: SchedulingOptions) -> Release:
    """Give the end expected now to a gang beyond its time limit, or without one."""
    return Release(expected_end_ns(job, now_ns, options), *gang[1:])


def _release(job: Job, loans: SpareLoans, now_ns: int, options: SchedulingOptions) -> Release:
    """As the gang knows it, but for time that is past, and for what others hold or have lost."""
    release = job.release
    if release.end_ns <= now_ns:
        release = _overdue(release, job, now_ns, options)
    if lost := release.hosts & loans.state.index.unhealthy:
        release = release._replace(hosts=release.hosts & ~lost)
    if borrowed := loans.borrowed(job):
        release = release._replace(borrowed=borrowed.bit_count())
    return release


def repairs(state: State, now_ns: int) -> tuple[tuple[int, HostSet], ...]:
    """Predict when hosts come back into service, and which. A repair that takes longer than the
    mean is given more and more time, as a gang is that outruns its limit."""
    mean_ns = mean_repair_ns(state.tenants.spares, state.faults)
    away = state.index.held | SpareLoans(state).hosts | state.index.closed
    returns = (
        (later_ns(host.since_ns + mean_ns, now_ns), 1 << index)
        for index, host in state.hosts.items()
        if host.is_down and host.cordon is None and not away >> index & 1
    )
    return tuple(sorted(returns))


def _release_shared_hosts_last(in_order: Sequence[Release], several: HostSet) -> list[Release]:
    """Hosts of `several` holders are free when the last of them is gone: a spare that is lent, and
    those who share a host."""
    seen, kept = 0, list[Release]()
    for release in reversed(in_order):
        kept.append(release._replace(hosts=release.hosts & ~(several & seen)))
        seen |= release.hosts
    return kept[::-1]


class Outlook:
    """Hosts that become free, and when. Mutable: starts of this decision end as well."""

    def __init__(
        self, state: State, now_ns: int, options: SchedulingOptions, quotas: Quotas
    ) -> None:
        self._state, self._now_ns, self._options = state, now_ns, options
        self._quotas = quotas
        self._fabric = state.loaded_fabric
        self._affinity = AffinityIndex(state)
        self.calendar = Calendar(state)
        self._started: list[Release] = []
        self._lent = SpareLoans(state).hosts
        self._shared = hostset.of(state.index.shared)
        self._running: tuple[Release, ...] | None = None
        self._late: frozenset[str] = frozenset()
        self._repairs: tuple[tuple[int, HostSet], ...] | None = None
        # Of each limit, the first job of this walk that it holds back: see `Caps`.
        self.held_back: dict[str, BackfillReservation] = {}
        self._ahead: dict[str, frozenset[str]] = {}  # those limits, when a job was first asked for
        self._hopeless: dict[tuple[str, bool], tuple[int, int]] = {}  # hosts, and for how long
        self._bound_in_vain: set[tuple[object, ...]] = set()

    def record_allocation(
        self, job: Job, hosts: HostSet, end_ns: int, borrowed: HostSet = 0
    ) -> None:
        """Record that `job` starts on these hosts, or goes on with them, until `end_ns`.
        `borrowed`: those of them that are spares of others."""
        self._lent |= borrowed
        on_loan = (hosts & self._lent & ~job.lent_hosts).bit_count()
        held, well = hosts.bit_count(), hosts & ~self._state.index.unhealthy
        self._shared |= hosts if job.part_gpus else 0
        self._started.append(
            Release(end_ns, job.name, job.tenant, held, well, on_loan, job.part_gpus)
        )
        self._affinity.record_allocation(job, hosts)

    def remove_gangs(self, names: set[str]) -> None:
        """Remove running gangs that are evicted."""
        self._running = tuple(g for g in self._still_running() if g.name not in names)
        self._affinity.remove_gangs(names)
        self._hopeless.clear()

    def without(self, names: set[str], quotas: Quotas) -> Outlook:
        """Return a copy of the outlook without these gangs."""
        copied = copy(self)
        copied._quotas, copied._started, copied._hopeless = quotas, [*self._started], {}
        copied._affinity = self._affinity.without(names)
        copied.remove_gangs(names)
        return copied

    def _still_running(self) -> tuple[Release, ...]:
        if self._running is None:
            self._running, self._late = releases(self._state, self._now_ns, self._options)
        return self._running

    def ends(self) -> Sequence[Release]:
        """Return ends of running and started gangs, first end first."""
        in_order: Sequence[Release] = self._still_running()
        if self._started:
            in_order = sorted([*in_order, *self._started])
        several = self._lent | self._shared
        return _release_shared_hosts_last(in_order, several) if several else in_order

    def note_order(self, job: Job) -> None:
        """Note that jobs held back by limits until now go before `job`."""
        self._ahead.setdefault(job.name, frozenset(self.held_back))

    def reservation(self, job: Job, free: HostSet) -> BackfillReservation | None:
        """Return when and where `job` can start; None when the ends of all gangs and windows do not
        make the room: hosts are out of service, or promised to others. Cost: O(gangs)."""
        if self.is_hopeless(job):
            return None
        self.note_order(job)
        key = (job.tenant, job.is_preemptible)
        # Short jobs may have room before others of their tenant that long ones have not.
        lasts_ns = time_limit_ns(job, self._options) if self._before(job) else 0
        reads = self._affinity.reads(job)
        dataset = job.spec.dataset if reads else None
        bound = (*key, job.request.room_key, job.spec.affinity, job.needed, lasts_ns, dataset)
        if bound in self._bound_in_vain:
            return None
        for has_repairs in (False, True) if self.repairs() else (False,):
            earliest = self._earliest(job, free, has_repairs, is_sure=True)
            if earliest is None and self._quotas.has_cells:
                earliest = self._earliest(job, free, has_repairs, is_sure=False)
            if earliest is not None:
                return earliest
        if reads or is_bound(job.request, job.spec.affinity):
            self._bound_in_vain.add(bound)
        else:
            self._hopeless[key] = (job.needed, lasts_ns)
        return None

    def _earliest(
        self, job: Job, free: HostSet, has_repairs: bool, is_sure: bool
    ) -> BackfillReservation | None:
        """The first moment at which `job` has room. `has_repairs`: if hosts under repair come
        back when they are taken to. `is_sure`: though whoever is guaranteed
        cells should find them all, wherever they may be chosen then. None from where it would
        take room below a limit that one before it waits for: then the limit holds it back too."""
        before, lasts_ns = self._before(job), time_limit_ns(job, self._options)
        if not _leaves(job, self._now_ns + lasts_ns, before):
            return None
        moments, has_windows = self._moments_for(job, has_repairs), bool(self.calendar)
        if (reads := self.read_reservation(job)) is None:
            return None
        closed = self._closed_after(job, moments)
        least = 0 if before else job.needed
        for end_ns, then, quotas in self._futures(free, least, moments):
            left = then.bit_count() - (quotas.due_in_cells(job) if is_sure else 0)
            if before and not _leaves(job, end_ns + lasts_ns, before):
                return None
            may_take = end_ns >= reads.from_ns and self._may_take(job, then, quotas)
            if left < job.needed or not may_take:
                continue
            barred = closed.get(end_ns, 0) | avoided(job, self._state.tenants.restarts, end_ns)
            if has_windows:
                barred |= self.calendar.closed(job, end_ns, end_ns + lasts_ns)
            reach = then & ~(quotas.withheld_from(job, then) | barred)
            reach = self._affinity.fitting(job, self._readable(job, reach, end_ns))
            if reach.bit_count() >= job.needed:
                surplus = min(left, reach.bit_count()) - job.needed
                earliest = self._reserved(job, end_ns, then, reach, free, quotas, surplus)
                if has_repairs:
                    back = (hosts for at_ns, hosts in self.repairs() if at_ns <= end_ns)
                    earliest = replace(earliest, repairs=sum(map(int.bit_count, back)))
                is_among = not earliest.kept and (has_windows or then & barred)
                return replace(earliest, among=reach) if is_among else earliest
        return None

    def read_reservation(self, job: Job) -> ReadReservation | None:
        """Return when the storage has left what the job reads, as gangs end; None: never."""
        if not self._affinity.has_reads:
            return ReadReservation(0, inf)
        missing, store = self._affinity.missing_reads(job), self._affinity.holding_store(job)
        if not missing and self._may_read_somewhere(job, self._now_ns):
            return ReadReservation(0, inf)
        for gang in self.ends():
            ended = self._state.jobs[gang.name]
            if self._affinity.holding_store(ended) != store:
                continue
            missing -= self._affinity.reads(ended)
            if missing <= ROUNDING_GB_PER_S and self._may_read_somewhere(job, gang.end_ns):
                # Which paths it takes is not known before it starts: nobody takes what they leave.
                has_paths = store is not None and store.paths
                return ReadReservation(gang.end_ns, 0.0 if has_paths else -missing)
        return None

    def _may_read_somewhere(self, job: Job, at_ns: int) -> bool:
        """Whether the paths to the store of `job` leave what it reads, wherever it lies, once the
        gangs have ended that do by then."""
        everywhere = hostset.full(self._fabric.host_count)
        return self._readable(job, everywhere, at_ns).bit_count() >= job.needed

    def _readable(self, job: Job, hosts: HostSet, at_ns: int) -> HostSet:
        """Return the hosts on which `job` may read once the gangs have ended that do by then."""
        store = self._affinity.holding_store(job)
        if store is None or not store.paths:
            return hosts
        ended = {gang.name for gang in self.ends() if gang.end_ns <= at_ns}
        return self._affinity.without(ended).readable(job, hosts)

    def _before(self, job: Job) -> dict[str, BackfillReservation]:
        """For each limit on `job`: the job before it that waits for room below it."""
        ahead = self._ahead.get(job.name)
        limits = self._quotas.limits_on(job) if ahead else ()
        return {name: self.held_back[name] for name in limits if ahead and name in ahead}

    def is_hopeless(self, job: Job) -> bool:
        """Return whether no reservation was found before for a job of this tenant that is no larger
        and no longer than this one."""
        known = self._hopeless.get((job.tenant, job.is_preemptible))
        if known is None or job.needed < known[0]:
            return False
        return not known[1] or time_limit_ns(job, self._options) >= known[1]

    def _moments_for(self, job: Job, has_repairs: bool) -> Sequence[Release]:
        """The moments among `moments`, and when `job` may use hosts again that stopped it."""
        moments = self.moments(has_repairs)
        if not job.strikes:
            return moments
        clear = clear_moments(job, self._state.tenants.restarts, self._now_ns)
        if not clear:
            return moments
        return sorted([*moments, *(Release(at_ns, "", "", 0, 0) for at_ns in clear)])

    def _closed_after(self, job: Job, moments: Sequence[Release]) -> dict[int, HostSet]:
        """Hosts that gangs close to `job` after each of these moments."""
        by_name = self._affinity.closed_by(job.name, job.spec.affinity)
        closed, later = dict[int, HostSet](), 0
        for gang in reversed(moments) if by_name else ():
            closed.setdefault(gang.end_ns, later)
            later |= by_name.get(gang.name, 0)
        return closed

    def moments(self, has_repairs: bool = False) -> Sequence[Release]:
        """Return when hosts come free, first end first: gangs by name, and the ends of windows and,
        where they count, of repairs, which have no name."""
        returns = self.calendar.returns(self._now_ns)
        returns += self.repairs() if has_repairs else ()
        returning = [Release(end_ns, "", "", 0, hosts) for end_ns, hosts in returns]
        gangs = self.ends()
        return sorted([*gangs, *returning]) if returning else gangs

    def shared_until_ns(self, host: int) -> int:
        """Return when the last of the jobs that shared this host before this decision is expected
        to end."""
        jobs = map(self._state.jobs.__getitem__, self._state.index.shared.get(host, ()))
        ends = (expected_end_ns(job, self._now_ns, self._options) for job in jobs)
        return max(ends, default=0)

    @property
    def is_anybody_late(self) -> bool:
        """Return whether a gang has outrun the time limit that it states."""
        self._still_running()
        return bool(self._late)

    def is_late(self, until_ns: int) -> bool:
        """Return whether one of the gangs that are expected to end by `until_ns` has outrun its
        time limit."""
        gangs = self._still_running()
        if not self._late:
            return False
        return any(gang.end_ns <= until_ns and gang.name in self._late for gang in gangs)

    def repairs(self) -> tuple[tuple[int, HostSet], ...]:
        """Predict when which hosts are back in service: hosts that failed, are under repair or with
        their maker, and that nobody has cordoned. Cost: O(hosts that are not well)."""
        if self._repairs is None:
            state = self._state
            self._repairs = repairs(state, self._now_ns) if state.index.unhealthy else ()
        return self._repairs

    def _futures(
        self, free: HostSet, least: int, moments: Sequence[Release]
    ) -> Iterator[tuple[int, HostSet, FutureQuota]]:
        """Each of the moments, with the free hosts and quotas after
        it; what pending windows close is still among the hosts. Moments at which it is plain
        that fewer than `least` are free are left out."""
        later, is_open, most = self._quotas.later(), self._quotas.is_open, free.bit_count()
        for end_ns, ending in groupby(moments, attrgetter("end_ns")):
            for gang in ending:
                free |= gang.hosts
                most += gang.held or gang.hosts.bit_count()
                if gang.held and not is_open:
                    later.remove_gang(gang, self._own_hosts(gang))
            if most >= least:
                yield end_ns, free, later

    def _own_hosts(self, gang: Release) -> HostSet:
        """All that it holds, or has lent."""
        return gang.hosts | self._state.jobs[gang.name].owned

    def _may_take(self, job: Job, then: HostSet, quotas: FutureQuota) -> bool:
        """Whether limits and promises leave so many hosts."""
        if self._quotas.is_open:
            return True
        book, rooms = quotas.book, (room for _, room in self._rooms_of_kinds(job, quotas))
        if job.needed > min([book.headroom(job.tenant)[0], *rooms]):
            return False
        borrowed = self._quotas.borrowed(job, job.needed, book)
        return borrowed <= max(0, then.bit_count() - book.promised)

    def _reserved(
        self,
        job: Job,
        start_ns: int,
        then: HostSet,
        reach: HostSet,
        free: HostSet,
        quotas: FutureQuota,
        surplus: int,
    ) -> BackfillReservation:
        book = quotas.book
        place = self._place(job, reach, free)
        kept = self._affinity.hosts_to_reserve(job, place)
        borrowed = self._quotas.borrowed(job, job.needed, book)
        return BackfillReservation(
            job.name,
            start_ns,
            place,
            # Where the place is kept, any number may be taken elsewhere.
            self._fabric.host_count if kept else surplus,
            then.bit_count() - book.promised - borrowed if borrowed else None,
            kept,
            None,
            *self._own(job, then, book),
            self._below_limits(job, quotas),
        )

    def _rooms_of_kinds(self, job: Job, held: Quotas | FutureQuota) -> Iterator[tuple[str, int]]:
        """Yield each limit on a kind of hosts that counts all of `job`, with what it leaves."""
        for name in self._quotas.path(job.tenant):
            for kind in self._quotas.kinds_of(job, name):
                yield limit_key(name, kind.text), kind.limit - held.count_held(name, kind.hosts)

    def _below_limits(self, job: Job, quotas: FutureQuota) -> tuple[tuple[str, int, int], ...]:
        """For each limit on `job`: what it leaves beside it now, and then, and beside
        those before it that wait for room below it, if `job` may count on what they leave."""
        if self._quotas.is_open:
            return ()
        now, then = (
            (*held.book.headrooms(job.tenant), *self._rooms_of_kinds(job, held))
            for held in (self._quotas, quotas)
        )
        before = self._before(job)
        extra = {name: first.extra for name, first in before.items() if job.needed <= first.extra}
        return tuple(
            (name, room - job.needed, min(later, extra.get(name, later)) - job.needed)
            for (name, room), (_, later) in zip(now, then, strict=True)
        )

    def _own(self, job: Job, then: HostSet, book: QuotaBook) -> tuple[tuple[str, ...], int]:
        """Tenants whose promises cover `job`, and how many hosts more they, or what may be
        borrowed then, cover beside it."""
        if self._quotas.is_open or job.is_preemptible:
            return (), 0
        covered = book.covered(job.tenant, job.needed)
        more = book.covered(job.tenant, self._fabric.host_count) - covered
        borrowable = then.bit_count() - book.promised - (job.needed - covered)
        return self._quotas.path(job.tenant), more + max(0, borrowable)

    def _place(self, job: Job, reach: HostSet, free: HostSet) -> HostSet:
        """The hosts to reserve, of the ones that `AffinityIndex.room` leaves."""
        where, fabric = job.request.where, self._fabric
        if where.same:
            domains = masks(fabric, tier_of(fabric, where.same, "constraints.same"))
            fits = [reach & mask for mask in domains if (reach & mask).bit_count() >= job.needed]
            reach = min(fits, key=int.bit_count)
        place = hosts_for_roles(fabric, job.request, reach)
        others = job.needed - place.bit_count()
        return place | nearest(fabric, reach & ~place, free, others)

    def limit_reservation(self, job: Job, allowed: Allowance) -> BackfillReservation | None:
        """Predict when the ends of gangs of the tenant `allowed.whose` leave `job` room below that
        tenant's limit. Jobs on parts of hosts are not counted: which of them frees a host depends
        on who else ends."""
        tenant, room, kind = allowed.whose, allowed.limit, None
        if allowed.kind:
            kind = self._quotas.kind_limit(tenant, allowed.kind)
        for end_ns, ending in groupby(self.ends(), attrgetter("end_ns")):
            room += sum(
                (gang.hosts & kind.hosts).bit_count() if kind else gang.held
                for gang in ending
                if tenant in self._quotas.path(gang.tenant) and not gang.part_gpus
            )
            if room >= job.needed:
                return BackfillReservation(job.name, end_ns, 0, room - job.needed)
        return None


def _leaves(job: Job, end_ns: int, before: dict[str, BackfillReservation]) -> bool:
    """Whether `job`, until `end_ns`, leaves those before it their room below limits."""
    return all(end_ns <= first.start_ns or job.needed <= first.extra for first in before.values())


def nearest(fabric: Fabric, hosts: HostSet, free: HostSet, count: int) -> HostSet:
    """Choose `count` of `hosts` in few outermost domains: the fullest domain that holds all, else
    the emptiest first. Hosts that are not `free` now come before free ones."""
    if not fabric.tiers:
        return _busy_first(hosts, free, count)
    parts = [hosts & mask for mask in domain_masks(fabric, fabric.tiers[0].name)]
    roomy = [part for part in parts if part.bit_count() >= count]
    if roomy:
        return _busy_first(min(roomy, key=int.bit_count), free, count)
    chosen = 0
    for part in sorted(parts, key=int.bit_count, reverse=True):
        chosen |= _busy_first(part, free, min(count, part.bit_count()))
        count -= min(count, part.bit_count())
    return chosen


def _busy_first(hosts: HostSet, free: HostSet, count: int) -> HostSet:
    busy = highest(hosts & ~free, count)
    return busy | highest(hosts & free, count - busy.bit_count())
