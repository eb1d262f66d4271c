"""Where a job would run on free hosts: placement, with the number of spares to hold."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from placement import BY_DEFAULT, INDIFFERENT, Hint, Taste, place
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric, Uplink
from placement.workload.request import Objective, Placement
from scheduler.core.capacity.spare_pools import SparePools
from scheduler.core.model.job import Job
from scheduler.core.model.policy import SchedulingOptions, time_limit_ns
from scheduler.core.model.state import State
from scheduler.core.rules.links import fabric_between
from scheduler.core.rules.neighbours import Neighbour, add, beside, busy, loads

# (job, free hosts, hosts it may hold at most) -> where it would run
Placer = Callable[[Job, HostSet, int], Placement | None]
BY_CAPACITY = (Objective.TIME, Objective.BOTTLENECK)  # what uplinks carry makes a difference


def make_placer(
    state: State,
    limits: SchedulingOptions,
    hint: Hint | None = None,
    *,
    now_ns: int | None = None,
) -> Placer:
    """Placement on at most so many hosts, spares included, with links as they will be while the
    gang runs from now on, which is the time of the newest event unless it is given. Large gangs
    take golden hosts first, and those in their early life last. `hint`: where the gang was, of
    which few blocks move."""

    start_ns = state.seen_ns if now_ns is None else now_ns
    pools, large = SparePools(state), Taste(state.golden, state.early)
    traffic = _Traffic(state)

    def find(job: Job, free: HostSet, most: int) -> Placement | None:
        spares = most - job.gang_hosts
        fabric = fabric_between(state, start_ns, start_ns + time_limit_ns(job, limits))
        is_beside = limits.neighbours and job.request.objective in BY_CAPACITY
        if is_beside:
            fabric = traffic.around(fabric, free)
        answer = place(
            *(fabric, free, job.request, limits.place, hint),
            most_spares=spares,
            sizing=pools.for_placing() if job.request.spares.is_auto else BY_DEFAULT,
            taste=large if job.gang_hosts >= state.health.large_hosts else INDIFFERENT,
        )
        if not isinstance(answer, Placement):
            return None
        if is_beside:
            traffic.placed(job, answer)
        return answer

    return find


class _Traffic:
    """What the gangs of a state send over uplinks, and those that were placed since: a placement
    is taken to start once none of its hosts is free any more."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._placed: list[tuple[Job, Placement]] = []

    @cached_property
    def _running(self) -> dict[Uplink, float]:
        return loads(self._state, self._state.loaded_fabric)

    def around(self, fabric: Fabric, free: HostSet) -> Fabric:
        """The fabric with what is left of its uplinks."""
        found = self._running
        for job, placement in self._placed:
            if not placement.held & free:
                gang = Neighbour(job.request, placement.hosts, placement.step)
                found = dict(found)
                add(found, busy(fabric, gang))
        return beside(fabric, found)

    def placed(self, job: Job, placement: Placement) -> None:
        self._placed.append((job, placement))
