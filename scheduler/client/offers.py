"""What clusters offer for a job, and which offer is best.

In this order: it starts now and stops nobody; it starts now, and as few as possible are preempted
or drop replicas for it; it waits, the earlier its start the better; its start is not known. Where
that is equal: the shorter step, then the fewer bytes over the outermost tier, then the order in
which the clusters were named.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from math import inf

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from muster.structs import struct
from scheduler.v1 import job_pb2, placement_pb2


class StartKind(IntEnum):
    """When the job would start, the best first."""

    NOW = 0
    BY_STOPPING_OTHERS = 1
    LATER = 2
    NOT_BEFORE = 3
    UNKNOWN = 4
    NEVER = 5


@struct(frozen=True, slots=True)
class Offer:
    """Dry run of a job on one cluster.

    `start_s`: when it starts, or before when it does not, in seconds since 1970; 0: now, or not
    known. `step_s`, `least_step_s`: of a step and its proved bound; None: not said, or not proved.
    `cut_bytes`: per step over the outermost tier; None: not said. `reason`: a sentence, where it
    does not start now.
    """

    start: StartKind
    start_s: float = 0.0
    preempted: int = 0
    shrunk: int = 0
    step_s: float | None = None
    least_step_s: float | None = None
    cut_bytes: int | None = None
    reason: str = ""

    @property
    def is_impossible(self) -> bool:
        return self.start is StartKind.NEVER

    @property
    def key(self) -> tuple[float, ...]:
        """Return the key to sort offers by: the best offer has the smallest."""
        step = inf if self.step_s is None else self.step_s
        cut = inf if self.cut_bytes is None else self.cut_bytes
        return (self.start, self.preempted, self.shrunk, self.start_s, step, cut)


def rank(offers: Mapping[str, Offer]) -> list[str]:
    """The names of the clusters, the best offer first."""
    return sorted(offers, key=lambda name: offers[name].key)


def offer_of(answer: job_pb2.Job) -> Offer:
    """Out of the answer to a dry run."""
    result, estimate = answer.answer, answer.start_estimate
    if result.outcome == placement_pb2.OUTCOME_PLACED:
        placement = result.placement
        stops = result.preempted_jobs or result.shrunk_jobs
        least = placement.HasField("step_time_lower_bound")
        return Offer(
            StartKind.BY_STOPPING_OTHERS if stops else StartKind.NOW,
            preempted=result.preempted_jobs,
            shrunk=result.shrunk_jobs,
            step_s=_seconds(placement.step_time) if placement.HasField("step_time") else None,
            least_step_s=_seconds(placement.step_time_lower_bound) if least else None,
            cut_bytes=placement.cuts[0].bytes_per_step if placement.cuts else 0,
        )
    if result.outcome == placement_pb2.OUTCOME_INFEASIBLE:
        return Offer(StartKind.NEVER, reason=result.reason)
    if estimate.HasField("start_time"):
        return Offer(StartKind.LATER, _seconds(estimate.start_time), reason=result.reason)
    if estimate.HasField("not_before_time"):
        return Offer(StartKind.NOT_BEFORE, _seconds(estimate.not_before_time), reason=result.reason)
    return Offer(StartKind.UNKNOWN, reason=result.reason)


def _seconds(value: Duration | Timestamp) -> float:
    return value.ToNanoseconds() / 10**9


def compared(offer: Offer, best: Offer) -> str:
    """Why the offer is not the best one, in a few words."""
    if offer.start is not best.start or offer.start_s != best.start_s:
        return _LATE[offer.start]
    if offer.preempted != best.preempted:
        return f"would preempt {offer.preempted - best.preempted:,} more"
    if offer.shrunk != best.shrunk:
        return f"would shrink {offer.shrunk - best.shrunk:,} more"
    if offer.step_s is None and best.step_s is not None:
        return "its step is not known"
    if offer.step_s is not None and best.step_s is not None and offer.step_s > best.step_s:
        return f"its step is {100 * (offer.step_s / best.step_s - 1):.3g} % longer"
    if (offer.cut_bytes or 0) > (best.cut_bytes or 0):
        return "more bytes cross its outermost tier"
    return "as good, and named later"


_LATE = {
    StartKind.NOW: "starts now",
    StartKind.BY_STOPPING_OTHERS: "would stop other jobs",
    StartKind.LATER: "starts later",
    StartKind.NOT_BEFORE: "its start is not foreseen",
    StartKind.UNKNOWN: "its start is not known",
    StartKind.NEVER: "never fits",
}
