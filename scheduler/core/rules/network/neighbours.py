"""Gangs that share uplinks: what they leave each other, and where a new one had better go.

While a gang talks, others send what they send on average: of capacity C, of which they keep the
part m busy, C / (1 + m) is left (docs/steptime.md, "Neighbours"; replays slow gangs down by the
same rule). A gang that would share an uplink is placed a second time, on what is left, and the
placement stays that costs the gang and its neighbours less GPU time.

Only uplinks that carry less than the hosts behind them send count, for on others nobody waits,
and only gangs whose step time is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

from muster.structs import replace, struct
from placement.fabric.hostset import HostSet
from placement.fabric.links import with_links
from placement.fabric.tree import Fabric, Uplink
from placement.objective.cut import busy_shares
from placement.workload.request import Objective, Placement, Request, StepBound
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.scheduling_options import SchedulingOptions
from scheduler.core.model.state import State
from scheduler.core.rules.network.gang_step import present_step, seconds_now

WORTH_MOVING = 0.02  # of its GPUs that a gang has to save: what spreads out meets others later
MOST_NEIGHBOURS = 16  # whose steps are looked at, the largest
LEAST = 0.001  # of an uplink: less is not worth a line
STEP = 64  # shares are whole parts of this: of little differences no new search comes


@struct(frozen=True, slots=True)
class Neighbour:
    """A gang that runs, and how long its steps take when it is alone."""

    request: Request
    hosts: tuple[int, ...]
    step: StepBound | None

    @property
    def gpus(self) -> int:
        return self.request.parallelism.world_size


def busy(fabric: Fabric, gang: Neighbour) -> dict[Uplink, float]:
    """Return for each narrow uplink the part of the time for which the gang keeps it busy."""
    if gang.step is None or not gang.step.seconds:
        return {}
    return busy_shares(fabric, gang.request, gang.hosts, gang.step.seconds)


def running(state: State) -> list[Neighbour]:
    """Return the running gangs."""
    return [as_neighbour(state, job) for job in state.in_state(JobState.RUNNING)]


def as_neighbour(state: State, job: Job) -> Neighbour:
    """Return a running gang as a neighbour of others."""
    return Neighbour(job.request, job.hosts, present_step(state, job))


def loads(fabric: Fabric, gangs: Iterable[Neighbour]) -> dict[Uplink, float]:
    """Return for how much of the time these gangs together keep each narrow uplink busy."""
    by_uplink: dict[Uplink, float] = {}
    for gang in gangs:
        for uplink, share in busy(fabric, gang).items():
            by_uplink[uplink] = by_uplink.get(uplink, 0.0) + share
    return by_uplink


def subtract_loads(fabric: Fabric, loads: Mapping[Uplink, float]) -> Fabric:
    """The fabric with what these loads leave of its uplinks."""
    left = {uplink: round(STEP / (1 + load)) / STEP for uplink, load in loads.items()}
    if all(share == 1 for share in left.values()):
        return fabric
    now = dict(fabric.links)
    shares = {uplink: now.get(uplink, 1.0) * left.get(uplink, 1.0) for uplink in {**now, **left}}
    names = {at: fabric.tiers[at[0]].domains[at[1]] for at in (*shares, *fabric.barred)}
    by_name = {names[at]: share for at, share in sorted(shares.items())}
    return with_links(fabric, by_name, [names[at] for at in fabric.barred])


class Traffic:
    """The traffic of the gangs of one state, and of gangs placed meanwhile. A placement is expected
    to start once none of its hosts is free any more."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._placed: list[tuple[Placement, Neighbour]] = []

    @cached_property
    def _running(self) -> list[Neighbour]:
        return running(self._state)

    def placed(self, request: Request, placement: Placement) -> None:
        gang = Neighbour(request, placement.hosts, placement.step)
        self._placed.append((placement, gang))

    def best_beside(
        self,
        fabric: Fabric,
        request: Request,
        alone: Placement,
        free: HostSet,
        solve: Callable[[Fabric], Placement | None],
    ) -> Placement:
        """Return `alone`, or what `solve` finds beside the others where that is better for all. The
        step and its bound are those of the gang alone."""
        started = (gang for placed, gang in self._placed if not placed.allocation & free)
        others = [*self._running, *started]
        if alone.step is None:
            return alone
        placements: dict[tuple[int, ...], Placement] = {}

        def hosts(left: Fabric) -> tuple[int, ...] | None:
            apart = solve(left)
            if apart is None:
                return None
            placements[apart.hosts] = apart
            return apart.hosts

        chosen = better_beside(fabric, Neighbour(request, alone.hosts, alone.step), others, hosts)
        if chosen == alone.hosts:
            return alone
        seconds = seconds_now(fabric, request, chosen)
        least_s = min(seconds, alone.step.least_seconds)
        return replace(placements[chosen], step=StepBound(seconds, least_s))


def better_beside(
    fabric: Fabric,
    alone: Neighbour,
    others: Sequence[Neighbour],
    solve: Callable[[Fabric], tuple[int, ...] | None],
) -> tuple[int, ...]:
    """The hosts of a gang that were found without regard to the others, or hosts that `solve`
    finds on what the others leave, where that is better for all."""
    if alone.step is None:
        return alone.hosts
    own, sharing = busy(fabric, alone), loads(fabric, others)
    if own.keys().isdisjoint(sharing):
        return alone.hosts
    least_s = alone.step.seconds
    lost, worth = count_idle_gpus(fabric, alone, others, least_s), WORTH_MOVING * alone.gpus
    if lost <= worth:  # no other place saves so much: most gangs end here
        return alone.hosts
    apart = solve(subtract_loads(fabric, sharing))
    if apart is None or apart == alone.hosts:
        return alone.hosts
    gang = replace(alone, hosts=apart, step=StepBound(seconds_now(fabric, alone.request, apart)))
    return apart if count_idle_gpus(fabric, gang, others, least_s) < lost - worth else alone.hosts


def find_neighbours(state: State, job: Job, options: SchedulingOptions) -> list[Neighbour]:
    """The running gangs beside which this one is placed, where it is placed beside others."""
    if not options.neighbours or job.part_gpus or job.request.objective is not Objective.TIME:
        return []
    gangs = (gang for gang in state.in_state(JobState.RUNNING) if gang.name != job.name)
    return [as_neighbour(state, gang) for gang in gangs]


def count_idle_gpus(
    fabric: Fabric, gang: Neighbour, others: Sequence[Neighbour], least_s: float
) -> float:
    """Return how many GPUs are idle on average because the gang and its neighbours wait for each
    other, or because the gang's steps are longer than `least_s`."""
    own = busy(fabric, gang)
    sharing = [g for g in others if not own.keys().isdisjoint(busy(fabric, g))]
    sharing = sorted(sharing, key=lambda g: (-g.gpus, g.hosts))[:MOST_NEIGHBOURS]
    lost = gang.gpus * (1 - least_s / _shared_step_s(fabric, gang, others))
    for each in sharing:
        rest = [g for g in others if g is not each]
        before_s = _shared_step_s(fabric, each, rest)
        lost += each.gpus * (1 - before_s / _shared_step_s(fabric, each, [*rest, gang]))
    return lost


def _shared_step_s(fabric: Fabric, gang: Neighbour, others: Iterable[Neighbour]) -> float:
    """Seconds of its step beside these."""
    own = busy(fabric, gang)
    left = {uplink: load for uplink, load in loads(fabric, others).items() if uplink in own}
    return seconds_now(subtract_loads(fabric, left), gang.request, gang.hosts)


@struct(frozen=True, slots=True)
class SharedUplink:
    """An uplink that a gang shares, with the part that another one keeps busy on average."""

    link: str
    job: Job
    busy: float


def shared_uplinks(state: State, job: Job) -> list[SharedUplink]:
    """The narrow uplinks that a running gang shares, the busiest neighbour first."""
    fabric = state.loaded_fabric
    own = busy(fabric, as_neighbour(state, job))
    common = [
        SharedUplink(fabric.tiers[depth].domains[number], gang, share)
        for gang in state.in_state(JobState.RUNNING)
        if own and gang.name != job.name
        for (depth, number), share in busy(fabric, as_neighbour(state, gang)).items()
        if (depth, number) in own and share >= LEAST
    ]
    return sorted(common, key=lambda shared: (-shared.busy, shared.link, shared.job.name))
