"""Running gangs whose step links hold up: how much slower than with all links up, and by which.

Only gangs whose job says how long a step takes can be judged. `SchedulingOptions.slow_percent` says
from what on a gang is slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from muster.structs import struct
from placement.fabric import hostset
from placement.fabric.tree import Fabric, masks
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.scheduling_options import SchedulingOptions
from scheduler.core.model.state import State
from scheduler.core.rules.network.gang_step import seconds_now
from scheduler.core.wording import listed, share_text


@struct(frozen=True, slots=True)
class SlowGang:
    """A gang whose steps are longer because uplinks carry less than they were built for. `step_s`:
    now, infinite across a link that is down; `built_s`: with all links up. `links`: those it
    crosses that carry less, by domain, each with its share."""

    job: Job
    step_s: float
    built_s: float
    links: tuple[tuple[str, float], ...]

    @property
    def slower(self) -> float:
        """Share by which the step is longer."""
        return self.step_s / self.built_s - 1

    @property
    def text(self) -> str:
        """Say how slow the gang is, and why: `steps take 12 % longer: the uplink of z3 at 50 %`."""
        links = listed(tuple(f"{name} {share_text(share)}" for name, share in self.links))
        uplinks = f"the uplink{'s' * (len(self.links) > 1)} of {links}"
        if not isfinite(self.step_s):
            return f"stands still: {uplinks}"
        return f"steps take {100 * self.slower:.3g} % longer: {uplinks}"


def slow_gangs(state: State, options: SchedulingOptions) -> Iterator[SlowGang]:
    """Yield gangs slowed by degraded links, in order of start. Cost: nothing while all links are
    up; else a step time for each gang that crosses a degraded one, once."""
    if not state.loaded_fabric.links:
        return
    for job in state.in_state(JobState.RUNNING):
        slow = slow_gang(state, job)
        if slow is not None and 100 * slow.slower > options.slow_percent:
            yield slow


def slow_gang(state: State, job: Job) -> SlowGang | None:
    """Return the gang if links make it slow; None where it crosses no degraded link, or its job
    says no step time."""
    fabric = state.loaded_fabric
    if not fabric.links or not job.request.has_step_time:
        return None
    links = _crossed(fabric, hostset.of(job.hosts))
    if not links:
        return None
    now_s = seconds_now(fabric, job.request, job.hosts)
    return SlowGang(job, now_s, seconds_now(fabric.as_built, job.request, job.hosts), links)


def _crossed(fabric: Fabric, gang: hostset.HostSet) -> tuple[tuple[str, float], ...]:
    """Degraded uplinks with blocks on both sides."""
    return tuple(
        (fabric.tiers[depth].domains[number], share)
        for (depth, number), share in fabric.links
        if gang & (inside := masks(fabric, depth)[number]) and gang & ~inside
    )
