"""Where a job would run on free hosts: placement, with the number of spares to hold."""

from __future__ import annotations

from collections.abc import Callable

from placement import BY_DEFAULT, Hint, Preference, place
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from placement.objective.cut import no_cuts
from placement.workload.request import Objective, Placement
from scheduler.core.capacity.spare_pools import SparePools
from scheduler.core.model.job import Job
from scheduler.core.model.scheduling_options import SchedulingOptions, time_limit_ns
from scheduler.core.model.state import State
from scheduler.core.rules.network.links import fabric_between
from scheduler.core.rules.network.neighbours import Traffic


def on_part(fabric: Fabric, host: int, gpus: tuple[int, ...]) -> Placement:
    """Place a job on some GPUs of one host. Nothing of its traffic leaves the host."""
    return Placement((host,), cuts=no_cuts(fabric), is_optimal=True, gpus=gpus)


# (job, free hosts, hosts it may hold at most) -> where it would run
Placer = Callable[[Job, HostSet, int], Placement | None]


def make_placer(
    state: State,
    options: SchedulingOptions,
    hint: Hint | None = None,
    *,
    now_ns: int | None = None,
) -> Placer:
    """Return a placer, which is asked for at most so many hosts, spares included. Links are as they
    will be while the gang runs from `now_ns` on, else from the time of the newest event. Hosts that
    a burn-in measured as slow are taken last; large gangs take golden hosts first, and those in
    their early life last too. `hint`: where the gang was, of which few blocks move."""

    start_ns = state.seen_ns if now_ns is None else now_ns
    pools, small = SparePools(state), Preference(0, state.slow)
    large = Preference(state.index.golden, state.early | state.slow)
    traffic = Traffic(state)

    def find(job: Job, free: HostSet, most: int) -> Placement | None:
        spares = most - job.gang_hosts

        def solve(fabric: Fabric) -> Placement | None:
            answer = place(
                fabric,
                free,
                job.request,
                options.place,
                hint,
                most_spares=spares,
                sizing=pools.for_placing() if job.request.spares.is_auto else BY_DEFAULT,
                preference=large if job.gang_hosts >= state.health.large_hosts else small,
            )
            return answer if isinstance(answer, Placement) else None

        fabric = fabric_between(state, start_ns, start_ns + time_limit_ns(job, options))
        solved = solve(fabric)
        has_traffic = not job.part_gpus and job.request.objective is Objective.TIME
        if solved is None or not options.neighbours or not has_traffic:
            return solved
        chosen = traffic.best_beside(fabric, job.request, solved, free, solve)
        traffic.placed(job.request, chosen)
        return chosen

    return find
