"""What running gangs leave of the uplinks that they share with a gang that is to start.

A gang sends its bytes of a step over an uplink once a step: on average so much a second. While
another gang talks over the same uplink, these are taken to send what they send on average, for
phases of different jobs fall as they may, and all share alike: of capacity C, of which they
keep the part m busy, C / (1 + m) is left. It is the rule by which replays slow gangs down
(simulator/timing/network.py; after Crux, SIGCOMM 2024).

Only uplinks that carry less than the hosts behind them send count, for on others nobody waits,
and only gangs whose step time is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from placement.fabric.links import with_links
from placement.fabric.tree import Fabric, Uplink
from placement.objective.uplink_loads import busy_shares
from placement.workload.request import Request, StepBound
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.state import State

LEAST = 0.001  # of an uplink: less is not worth a line
STEP = 64  # shares are whole parts of this: of little differences no new search comes


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A gang that runs, and how long its steps take."""

    request: Request
    hosts: tuple[int, ...]
    step: StepBound | None


def busy(fabric: Fabric, gang: Neighbour) -> dict[Uplink, float]:
    """The part of each narrow uplink that the gang keeps busy on average."""
    if gang.step is None or not gang.step.seconds:
        return {}
    return busy_shares(fabric, gang.request, gang.hosts, gang.step.seconds)


def loads(state: State, fabric: Fabric) -> dict[Uplink, float]:
    """How busy the running gangs keep narrow uplinks, all together."""
    found: dict[Uplink, float] = {}
    for job in state.in_state(JobState.RUNNING):
        add(found, busy(fabric, Neighbour(job.request, job.hosts, job.step)))
    return found


def add(loads: dict[Uplink, float], more: Mapping[Uplink, float]) -> None:
    for uplink, share in more.items():
        loads[uplink] = loads.get(uplink, 0.0) + share


def beside(fabric: Fabric, loads: Mapping[Uplink, float]) -> Fabric:
    """The fabric with what these loads leave of its uplinks."""
    left = {uplink: round(STEP / (1 + load)) / STEP for uplink, load in loads.items()}
    if all(share == 1 for share in left.values()):
        return fabric
    now = dict(fabric.links)
    shares = {uplink: now.get(uplink, 1.0) * left.get(uplink, 1.0) for uplink in {**now, **left}}
    names = {at: fabric.tiers[at[0]].domains[at[1]] for at in (*shares, *fabric.barred)}
    by_name = {names[at]: share for at, share in sorted(shares.items())}
    return with_links(fabric, by_name, [names[at] for at in fabric.barred])


@dataclass(frozen=True, slots=True)
class SharedUplink:
    """An uplink that a gang shares, with the part that another one keeps busy on average."""

    link: str
    job: Job
    busy: float


def shared_uplinks(state: State, job: Job) -> list[SharedUplink]:
    """The narrow uplinks that a running gang shares, the busiest neighbour first."""
    fabric = state.loaded_fabric
    own = busy(fabric, Neighbour(job.request, job.hosts, job.step))
    found = [
        SharedUplink(fabric.tiers[depth].domains[number], gang, share)
        for gang in state.in_state(JobState.RUNNING)
        if own and gang.name != job.name
        for (depth, number), share in busy(
            fabric, Neighbour(gang.request, gang.hosts, gang.step)
        ).items()
        if (depth, number) in own and share >= LEAST
    ]
    return sorted(found, key=lambda shared: (-shared.busy, shared.link, shared.job.name))
