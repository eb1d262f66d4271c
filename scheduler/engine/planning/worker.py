"""What a mirror computes for the writer: a plan, and how long each placement took."""

from __future__ import annotations

from time import perf_counter_ns

from muster.structs import struct
from placement.fabric.hostset import HostSet
from placement.workload.request import Placement
from scheduler.core import Job, Plan, SchedulingOptions, State, decide
from scheduler.core.capacity.placer import make_placer

Spans = list[tuple[int, int]]


@struct(frozen=True, slots=True)
class PlanResponse:
    """The plan, and from when to when each placement was looked for, by perf_counter_ns,
    which all processes of a machine share."""

    plan: Plan
    solves: Spans


def plan_response(state: State, now_ns: int, limits: SchedulingOptions) -> PlanResponse:
    """Decide, and take the time of every placement."""
    solves: Spans = []
    find = make_placer(state, limits, now_ns=now_ns)

    def timed(job: Job, free: HostSet, most: int) -> Placement | None:
        began_ns = perf_counter_ns()
        try:
            return find(job, free, most)
        finally:
            solves.append((began_ns, perf_counter_ns()))

    return PlanResponse(decide(state, now_ns, limits, timed), solves)
