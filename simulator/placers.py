"""Who chooses the hosts in a replay: the scheduler's own solver, or a rival of it.

The solver minimises what a job is placed by on a server: the step, where the job says enough to
know it, else the cut. A replay by the cut alone takes that choice away from the jobs.

The core's `decide` takes the placer as an argument; queue, quotas, backfill, preemption and
the check of every plan are the same for all. Swaps, and the hosts by which elastic gangs
grow or that they keep, stay the solver's own.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial

from muster.structs import replace
from placement import Choose, at_random, by_spread, chosen, consecutive, place
from placement.fabric.hostset import HostSet
from placement.workload.request import Objective, Placement
from scheduler.core.capacity.placer import Placer, make_placer
from scheduler.core.capacity.spare_pools import SparePools
from scheduler.core.model.job import Job, JobSpec
from scheduler.core.model.scheduling_options import SchedulingOptions
from scheduler.core.model.state import State

PlacerFactory = Callable[[State, SchedulingOptions], Placer]


class PlacementStrategy(StrEnum):
    """Who chooses the hosts of gangs in a replay. STEP_TIME: the scheduler's own, by the step where
    a job says enough to know it, as on a server. MINIMUM_CUT: the scheduler's own, by the cut,
    swaps too. CONSECUTIVE: fewest domains by a count of free hosts, ranks one after the other.
    RANDOM: anywhere. SPREAD: Arnold's."""

    STEP_TIME = "step-time"
    MINIMUM_CUT = "minimum-cut"
    CONSECUTIVE = "consecutive"
    RANDOM = "random"
    SPREAD = "spread"


def placer_factory(placer: PlacementStrategy, seed: int) -> PlacerFactory:
    """Return how `placer` finds hosts. `seed`: of the random one; the same state, job and seed give
    the same hosts."""
    match placer:
        case PlacementStrategy.STEP_TIME | PlacementStrategy.MINIMUM_CUT:
            return make_placer
        case PlacementStrategy.CONSECUTIVE:
            return lambda state, _: _choosing(state, lambda _: consecutive(state.loaded_fabric))
        case PlacementStrategy.RANDOM:
            return lambda state, _: _choosing(state, partial(_drawn, state, seed))
        case PlacementStrategy.SPREAD:
            return _spread


def by_the_cut(spec: JobSpec) -> JobSpec:
    """Return the job as MINIMUM_CUT places it: with the objective *cut* in place of *time*."""
    if spec.request.objective is not Objective.TIME:
        return spec
    return replace(spec, request=replace(spec.request, objective=Objective.CUT))


def _drawn(state: State, seed: int, job: Job) -> Choose:
    return at_random(f"{seed}/placement/{job.uid}/{state.version}")


def _choosing(state: State, choose: Callable[[Job], Choose]) -> Placer:
    pools = SparePools(state)

    def find(job: Job, free: HostSet, most: int) -> Placement | None:
        spares, sizing = most - job.gang_hosts, pools.for_placing()
        return chosen(state.loaded_fabric, free, job.request, choose(job), spares, sizing)

    return find


def _spread(state: State, options: SchedulingOptions) -> Placer:
    pools = SparePools(state)

    def find(job: Job, free: HostSet, most: int) -> Placement | None:
        request, fabric = by_spread(job.request), state.loaded_fabric
        spares, sizing = most - job.gang_hosts, pools.for_placing()
        answer = place(fabric, free, request, options.place, most_spares=spares, sizing=sizing)
        return answer if isinstance(answer, Placement) else None

    return find
