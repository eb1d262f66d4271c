"""The stage of a decision in which a job that has to wait may evict others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from functools import cached_property

from muster.structs import replace
from placement.fabric.hostset import HostSet
from placement.workload.request import Placement
from scheduler.core.capacity.outlook import Outlook
from scheduler.core.capacity.shrink_options import ShrinkOptions, Victims
from scheduler.core.capacity.victims import alone, candidates
from scheduler.core.model.job import Job
from scheduler.core.model.plan import BackfillReservation
from scheduler.core.model.scheduling_options import SchedulingOptions
from scheduler.core.model.state import State
from scheduler.core.preemption.victim_search import SearchState, VictimChoice, VictimSearch
from scheduler.core.rules.affinity_index import AffinityIndex, is_bound
from scheduler.core.rules.crash_loop import avoided
from scheduler.core.tenancy.fair_share import Excess, FairShares
from scheduler.core.tenancy.guarantees import highest
from scheduler.core.tenancy.quota_check import Quotas

FOR_EVER = 1 << 62  # ns
TRIES = 32  # jobs of one decision that are tried in vain beyond a count of hosts

Place = Callable[[Job, HostSet, int], Placement | None]


class PreemptionStage:
    """Preemption within one decision. Mutable: gangs that leave are entered.

    `may_preempt`: whether the queue's policy evicts gangs. `is_by_priority`: whether
    jobs come in order of priority. `next_decision_ns`: when a gang that a waiting job may send
    away has had its minimum run time.
    """

    def __init__(
        self,
        state: State,
        now_ns: int,
        options: SchedulingOptions,
        quotas: Quotas,
        outlook: Outlook,
        affinity: AffinityIndex,
        place: Place,
        *,
        may_preempt: bool,
        is_by_priority: bool,
    ) -> None:
        self._state, self._now_ns, self._place = state, now_ns, place
        self._quotas, self._outlook, self._affinity = quotas, outlook, affinity
        self._running = everybody = self._candidates() if may_preempt else ()
        self._options = options
        self._is_ranked = is_by_priority and quotas.is_open and state.tenants.aging is None
        # Evicting a gang takes more priority than it has; getting back a loan, as much.
        least = (v.job.priority - v.job.has_grown for v in everybody)
        self._least = min(least, default=0)
        self._excess = self._shares() if everybody else {}
        self._in_vain: dict[Hashable, int] = {}
        self._tries = TRIES
        self.next_decision_ns: int | None = None

    @cached_property
    def _shrink_options(self) -> ShrinkOptions:
        return ShrinkOptions(self._state, self._now_ns, self._options, self._outlook.calendar)

    def _candidates(self) -> Victims:
        """Without guarantees to take back, those whom the first in the queue outranks, and
        those that have grown."""
        if not self._state.index.queue:
            return ()
        first = self._state.jobs[self._state.index.queue[0]]
        below = first.priority if self._quotas.is_open else None
        return candidates(self._state, self._now_ns, below)

    def _shares(self) -> dict[str, Excess]:
        """Return how far each tenant with gangs that may be evicted is beyond its share of past
        usage; empty where `preemption.by_usage` is off."""
        if not self._state.tenants.preemption.is_by_usage:
            return {}
        shares = FairShares(self._state, self._now_ns, self._quotas.book)
        return {name: shares.excess(name) for name in {v.job.tenant for v in self._running}}

    @property
    def is_idle(self) -> bool:
        """Whether no gang can be evicted."""
        return not self._running

    def is_over(self, job: Job) -> bool:
        """Whether nobody behind `job` in the queue can evict a gang."""
        return self.is_idle or (self._is_ranked and job.priority <= self._least)

    def choice(
        self, job: Job, free: HostSet, end_ns: int, first: BackfillReservation | None
    ) -> VictimChoice | None:
        """Choose the gangs that `job` evicts to start now and end by `end_ns`, and where it starts.

        `first`, the job that waits with a reservation, starts no later for it.
        """
        if self.is_in_vain(job, end_ns):
            return None
        search = self._search(job, self._now_ns, free, end_ns, first)
        self._await(search.unripe)
        best = search.choice() if search.is_hopeful else None
        if not search.is_hopeful:
            self._in_vain[self._kind(job, end_ns)] = job.needed
        elif best is None:
            self._tries -= 1
        return best

    def is_in_vain(self, job: Job, end_ns: int) -> bool:
        """Return whether a search for victims of `job` is known to find none."""
        if self.is_idle or not self._tries:
            return True
        return job.needed >= self._in_vain.get(self._kind(job, end_ns), job.needed + 1)

    def _kind(self, job: Job, end_ns: int) -> Hashable:
        """Return a key that is equal for jobs that may evict the same gangs."""
        barred = avoided(job, self._state.tenants.restarts, self._now_ns)
        windows = self._outlook.calendar.kind(job, end_ns)
        return (self._quotas.allowance_key(job), job.priority, windows, barred)

    def find_future_victims(self, job: Job, free: HostSet, end_ns: int) -> VictimChoice | None:
        """Return gangs that `job` would evict if all had had the minimum run time."""
        if self.is_idle:
            return None
        search = self._search(job, FOR_EVER, free, end_ns, None)
        return search.choice() if search.is_hopeful else None

    def _search(
        self, job: Job, until_ns: int, free: HostSet, end_ns: int, first: BackfillReservation | None
    ) -> VictimSearch:
        fabric, barred = self._state.loaded_fabric, self._barred(job, end_ns)
        trial = _Trial(self, job, end_ns, first, barred)
        board = SearchState(
            self._running,
            free,
            barred,
            self._quotas,
            self._shrink_options,
            until_ns,
            self._excess,
        )
        return VictimSearch(fabric, job, board, trial, self._is_anywhere(job))

    def _barred(self, job: Job, end_ns: int) -> HostSet:
        """Hosts that stopped `job` recently, or that windows close to it if it starts now."""
        barred = avoided(job, self._state.tenants.restarts, self._now_ns)
        return barred | self._outlook.calendar.closed(job, self._now_ns, end_ns)

    def _is_anywhere(self, job: Job) -> bool:
        return self._affinity.is_open and not is_bound(job.spec.request, job.spec.affinity)

    def _await(self, unripe: Victims) -> None:
        moments = [v.ripe_ns for v in unripe]
        if self.next_decision_ns is not None:
            moments.append(self.next_decision_ns)
        self.next_decision_ns = min(moments, default=None)

    def evict_gangs(self, victims: Victims) -> None:
        """Record that gangs are evicted, or made smaller."""
        names = {v.name for v in victims}
        self._running = tuple(v for v in self._running if v.name not in names)
        for gang in victims:
            self._quotas.release_hosts(gang.job, gang.freed)
        self._outlook.remove_gangs(names)
        self._affinity.remove_gangs(names)
        for gang in victims:
            if gang.smaller:
                self._outlook.record_allocation(gang.smaller.job, gang.retained, gang.end_ns)
                self._affinity.record_allocation(gang.job, gang.retained)

    def lend(self, names: Collection[str]) -> None:
        """Record that others start on spares of these gangs, which are not evicted in this
        decision."""
        self._running = tuple(v for v in self._running if v.name not in names)

    def forget_failures(self) -> None:
        """Forget which searches for victims failed: a job starts, so they may succeed now."""
        self._in_vain.clear()

    def place(
        self, job: Job, free: HostSet, barred: HostSet, quotas: Quotas, victims: Victims
    ) -> Placement | None:
        """Place `job` on free hosts outside the `barred` ones, in its tenant's cells if they hold
        it."""
        allowed = quotas.allowance(job, free)
        affinity = alone(self._affinity, victims)
        for hosts in (allowed.own, allowed.reach):
            room = affinity.room(job, hosts & ~barred)
            if room.bit_count() >= job.needed:
                return self._place(job, room, job.needed)
        return None

    def keeps_promise(
        self,
        first: BackfillReservation | None,
        job: Job,
        placement: Placement,
        free: HostSet,
        end_ns: int,
    ) -> bool:
        """Return whether the waiting job `first` still starts as promised once `job` has started
        there. That is checked by placing it, where a count of hosts does not tell: where the start
        may decide in which domains cells are chosen, where not any hosts will do, and where
        promises are drawn on by borrowing."""
        if first is None or end_ns <= first.start_ns:
            return True
        hosts = placement.allocation
        uncovered = self._quotas.uncovered(job, (hosts & free).bit_count())
        is_narrow = (first.kept or first.among is not None) and (
            self._quotas.has_cells or first.lendable is not None
        )
        if not is_narrow and not (first.draws_on and uncovered > first.own):
            return True
        after = self._quotas.copy()
        after.record_allocation(job, hosts, hosts & ~free)
        return self.keeps(job, end_ns, first, (), free & ~hosts, after, hosts)

    def keeps(
        self,
        job: Job,
        end_ns: int,
        first: BackfillReservation,
        victims: Victims,
        free: HostSet,
        quotas: Quotas,
        hosts: HostSet,
    ) -> bool:
        """Return whether `first` still starts as promised once `victims` are gone and `job` has
        `hosts`. `free`, `quotas`: as they are then."""
        waiting = self._state.jobs[first.name]
        if quotas.book.headroom(waiting.tenant)[0] < waiting.needed:
            return False  # held back by its limit it would have no reservation
        if (
            end_ns <= first.start_ns
            and not any(gang.smaller for gang in victims)  # they last longer than they did
            and not (victims and quotas.has_cells)  # cells may be chosen elsewhere without them
        ):
            return True
        after = self._outlook.without({v.name for v in victims}, quotas)
        for gang in victims:
            if gang.smaller:
                after.record_allocation(gang.smaller.job, gang.retained, gang.end_ns)
        after.record_allocation(job, hosts, end_ns)
        reservation = after.reservation(waiting, free)
        return reservation is not None and reservation.start_ns <= first.start_ns


class _Trial:
    """Check the start of one job once others are evicted. A `preempt.Trial`."""

    def __init__(
        self,
        stage: PreemptionStage,
        job: Job,
        end_ns: int,
        first: BackfillReservation | None,
        barred: HostSet,
    ) -> None:
        self._stage, self._job, self._end_ns, self._first = stage, job, end_ns, first
        self._barred = barred

    def keeps_promises(self, free: HostSet, quotas: Quotas, victims: Victims) -> bool:
        return self._keeps(highest(free & ~self._barred, self._job.needed), free, quotas, victims)

    def placed(self, free: HostSet, quotas: Quotas, victims: Victims) -> Placement | None:
        placement = self._stage.place(self._job, free, self._barred, quotas, victims)
        if placement is None:
            return None
        hosts = placement.allocation
        return placement if self._keeps(hosts, free, quotas, victims) else None

    def _keeps(self, hosts: HostSet, free: HostSet, quotas: Quotas, victims: Victims) -> bool:
        if self._first is None:
            return True
        after = quotas.copy()
        after.record_allocation(self._job, hosts)
        return self._stage.keeps(
            self._job, self._end_ns, self._first, victims, free & ~hosts, after, hosts
        )


def note_evictions(choice: VictimChoice) -> Placement:
    """The placement, with a note that says who made room."""
    evicted = ", ".join(v.name for v in choice.victims if v.smaller is None)
    notes = [f"preempted {evicted}"] if evicted else []
    notes += [f"shrank {v.name} to dp {v.dp:,}" for v in choice.victims if v.smaller]
    return replace(choice.placement, notes=(*choice.placement.notes, *notes))
