"""Preemptible jobs of the queue that start on idle spares of running gangs (spares.lending).

Only who does not start otherwise borrows, and as few as it takes. What is borrowed was nobody's to
wait for: a reservation is for hosts that come free, and spares come free with the gang that
holds them.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable

from muster.structs import replace
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.workload.request import Placement
from scheduler.core.model.job import Job
from scheduler.core.model.plan import BackfillReservation
from scheduler.core.model.scheduling_options import SchedulingOptions, expected_end_ns
from scheduler.core.model.state import State
from scheduler.core.rules.affinity_index import AffinityIndex, is_bound
from scheduler.core.rules.calendar import Calendar
from scheduler.core.rules.crash_loop import avoided
from scheduler.core.tenancy.guarantees import highest
from scheduler.core.tenancy.quota import domain_masks
from scheduler.core.tenancy.spare_loans import SpareLoans
from scheduler.core.wording import hosts_text, listed

TRIES = 32  # jobs of one decision that are placed in vain


class QueueLoans:
    """Idle spares that may still be borrowed in this decision. Mutable: each loan is entered.

    `by_name`: of jobs that start so, whose spares they borrow.
    """

    def __init__(
        self,
        state: State,
        now_ns: int,
        options: SchedulingOptions,
        calendar: Calendar,
        may_borrow: bool,
    ) -> None:
        self._state, self._now_ns, self._options = state, now_ns, options
        self._calendar = calendar
        self._may = may_borrow and state.tenants.has_preemptible
        self._job_by_host: dict[int, Job] | None = None
        self._evicted, self._given = set[str](), set[int]()
        self._in_vain: dict[Hashable, int] = {}
        self._least: int | None = None
        self._tries = TRIES
        self.by_name: dict[str, tuple[str, ...]] = {}

    @property
    def _lenders(self) -> dict[int, Job]:
        if self._job_by_host is None:
            lenders = SpareLoans(self._state).lendable(self._evicted) if self._may else {}
            self._job_by_host = {h: job for h, job in lenders.items() if h not in self._given}
        return self._job_by_host

    def remove_gangs(self, names: Collection[str]) -> None:
        """Record gangs that are evicted or smaller: they no longer own what they lent, and need
        other hosts for their idle spares."""
        self._evicted.update(names)
        self._job_by_host = None

    def may(self, job: Job, free: HostSet, kind: Hashable) -> bool:
        """Return whether `job` may borrow, and whether enough spares are there beside what is free.
        `kind`: what it has in common with jobs that are lent the same hosts."""
        if not self._may or not self._tries or not job.is_preemptible:
            return False
        if job.part_gpus or job.needed != job.gang_hosts:  # it insists on spares of its own
            return False
        if job.needed >= self._in_vain.get(_kind(job, kind), 1 << 40):
            return False
        return bool(self._lenders) and job.needed <= free.bit_count() + len(self._lenders)

    def failed(self, job: Job, kind: Hashable) -> None:
        """Record that `job` found too little, and so would a larger one of its kind, until some job
        starts."""
        self._in_vain[_kind(job, kind)] = job.needed

    def starts(self) -> None:
        """Forget failed tries: a start may have made room."""
        self._in_vain.clear()

    def is_open(self, free: HostSet) -> bool:
        """Whether somebody in the queue might still borrow."""
        if not self._may or not self._tries or not self._lenders:
            return False
        if self._least is None:
            queue = map(self._state.jobs.__getitem__, self._state.index.queue)
            self._least = min((j.needed for j in queue if j.is_preemptible), default=1 << 40)
        return self._least <= free.bit_count() + len(self._lenders)

    def room(
        self,
        job: Job,
        reach: HostSet,
        within: HostSet,
        end_ns: int,
        first: BackfillReservation | None,
        affinity: AffinityIndex,
    ) -> HostSet:
        """Return the hosts on which `job` starts: all free hosts that it may `reach`, and spares
        `within`; none if too few. `first` waits for hosts that come free until its start, spares
        that do among them."""
        start_ns = first.start_ns if first is not None and end_ns > first.start_ns else 0
        ends_ns = {
            owner.name: expected_end_ns(owner, self._now_ns, self._options)
            for owner in self._lenders.values()
        }
        lent = hostset.of(h for h, owner in self._lenders.items() if ends_ns[owner.name] > start_ns)
        lent &= within & ~self._calendar.closed(job, self._now_ns, end_ns)
        lent &= ~avoided(job, self._state.tenants.restarts, self._now_ns)
        lent &= ~affinity.closed(job.name, job.spec.affinity)
        if not is_bound(job.request, job.spec.affinity):
            lent = self._nearest(lent, reach, job.needed - reach.bit_count())
        room = affinity.room(job, reach | lent)
        return room if room.bit_count() >= job.needed else 0

    def _nearest(self, lent: HostSet, reach: HostSet, count: int) -> HostSet:
        """So many of these spares, chosen where most other hosts are near."""
        fabric = self._state.loaded_fabric
        zones = domain_masks(fabric, fabric.tiers[0].name) if fabric.tiers else (-1,)
        chosen = 0
        for zone in sorted(zones, key=lambda z: -((lent | reach) & z).bit_count()):
            more = highest(lent & zone, max(0, count))
            chosen, count = chosen | more, count - more.bit_count()
        return chosen

    def record_allocation(
        self, job: Job, placement: Placement | None, free: HostSet
    ) -> Placement | None:
        """Record that `job` starts there, and note who lends it spares; None where it has no
        place."""
        if placement is None:
            self._tries -= 1
            return None
        borrowed = [host for host in placement.hosts if not hostset.has(free, host)]
        names = tuple(dict.fromkeys(self._lenders.pop(host).name for host in borrowed))
        self._given.update(borrowed)
        self.by_name[job.name] = names
        note = f"{hosts_text(len(borrowed))} borrowed from the spares of {listed(names)}"
        return replace(placement, notes=(*placement.notes, note)) if borrowed else placement


def _kind(job: Job, kind: Hashable) -> Hashable:
    return (kind, job.request.room_key, job.spec.affinity, job.spec.dataset)
