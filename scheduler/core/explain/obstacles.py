"""What stands in a waiting job's way: gangs, jobs ahead, limits, guarantees, dead hosts."""

from __future__ import annotations

from collections import Counter

from placement.fabric import hostset
from scheduler.core.capacity.outlook import Outlook
from scheduler.core.explain.reason import Basis, DomainRoom, Obstacle, ObstacleKind
from scheduler.core.model.job import Job
from scheduler.core.model.plan import BackfillReservation
from scheduler.core.model.scheduling_options import SchedulingOptions, time_limit_ns
from scheduler.core.model.state import State
from scheduler.core.rules.affinity_index import AffinityIndex
from scheduler.core.tenancy.quota import outer_domains
from scheduler.core.tenancy.quota_check import Allowance, Quotas

_MOST_REASONS = 4  # of cordons that are told apart


class Obstacles:
    """Reasons for which jobs wait in one state: gangs, hosts out of service, jobs ahead."""

    def __init__(
        self,
        state: State,
        now_ns: int,
        options: SchedulingOptions,
        quotas: Quotas,
        outlook: Outlook,
    ) -> None:
        self._state, self._now_ns, self._options = state, now_ns, options
        self._quotas, self._outlook = quotas, outlook

    def running(
        self,
        reservation: BackfillReservation | None,
        tenant: str = "",
        hosts_for: Job | None = None,
    ) -> tuple[Obstacle, ...]:
        """Return the gangs that end by the start of `reservation`, first end first. `tenant`: only
        gangs of that tenant; `hosts_for`: only gangs on hosts that this job may have."""
        if reservation is None:
            return ()
        usable = hostset.full(self._state.loaded_fabric.host_count)
        if hosts_for is not None:
            usable = AffinityIndex(self._state).fitting(hosts_for, usable)
        return tuple(
            Obstacle(
                ObstacleKind.RUNNING,
                gang.name,
                gang.held,
                gang.end_ns,
                self._basis(self._state.jobs[gang.name]),
            )
            for gang in self._outlook.ends()
            if gang.end_ns <= reservation.start_ns
            and (not tenant or tenant in self._quotas.path(gang.tenant))
            and (hosts_for is None or gang.hosts & usable)
        )

    def _basis(self, job: Job) -> Basis:
        if job.present.start_ns + time_limit_ns(job, self._options) <= self._now_ns:
            return Basis.OUTRUN
        return Basis.ASSUMED if job.spec.time_limit_s is None else Basis.STATED

    def job_ahead(self, job: Job, reservation: BackfillReservation | None = None) -> Obstacle:
        """Return the waiting job that goes first, as an obstacle. `reservation`: its reservation,
        if that is known."""
        start_ns = None if reservation is None else reservation.start_ns
        return Obstacle(ObstacleKind.AHEAD, job.name, job.needed, start_ns)

    def limit(self, tenant: str) -> Obstacle:
        return Obstacle(ObstacleKind.LIMIT, tenant, self._quotas.book.held[tenant])

    def guarantees(self, job: Job) -> tuple[Obstacle, ...]:
        """Return the other tenants to whom hosts are promised, in the order of the tenants file."""
        own = self._quotas.path(job.tenant)
        return tuple(
            Obstacle(ObstacleKind.GUARANTEE, name, hosts)
            for name, hosts in self._quotas.book.outstanding().items()
            if name not in own
        )

    def windows(self, job: Job) -> tuple[Obstacle, ...]:
        """Windows that close idle hosts to the job if it starts now, first end first."""
        end_ns = self._now_ns + time_limit_ns(job, self._options)
        idle = ~(self._state.index.held | self._state.index.unhealthy)
        windows = [
            Obstacle(
                ObstacleKind.WINDOW,
                booking.window.name,
                (booking.hosts & idle).bit_count(),
                booking.window.end_ns,
            )
            for booking in self._outlook.calendar.closing(job, self._now_ns, end_ns)
            if booking.hosts & idle
        ]
        return tuple(sorted(windows, key=lambda o: (o.clear_ns, o.name)))

    def out_of_service(self) -> tuple[Obstacle, ...]:
        """Hosts that nothing can start on, by the commonest reasons for which they were cordoned,
        then all others."""
        state = self._state
        cordons = Counter(
            host.cordon
            for index, host in state.hosts.items()
            if host.cordon and hostset.has(state.index.unhealthy, index)
        )
        named = cordons.most_common(_MOST_REASONS)
        others = state.index.unhealthy.bit_count() - sum(count for _, count in named)
        return tuple(
            Obstacle(ObstacleKind.OUT_OF_SERVICE, reason, count)
            for reason, count in (*named, ("", others))
            if count
        )

    def rooms(self, allowed: Allowance) -> tuple[DomainRoom, ...]:
        """Each outermost domain, in the order of the fabric; none on a flat fabric."""
        free = self._state.free
        return tuple(
            DomainRoom(name, (free & mask).bit_count(), (free & allowed.reach & mask).bit_count())
            for name, mask in outer_domains(self._state.loaded_fabric)
        )
