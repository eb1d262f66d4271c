"""One job for several clusters, each a muster of its own: the best of them makes it.

All are asked at once what the job would get, and the best one is sent it. Nothing is kept here: the
request id of the job is the same in every call, so the cluster that has made it says so. Nothing is
sent while a cluster is silent, for that one may have the job since an earlier call (docs/route.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from math import inf
from typing import TYPE_CHECKING, Protocol

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from muster.structs import replace, struct
from scheduler.client.connection import ServiceError
from scheduler.v1 import job_pb2, placement_pb2

if TYPE_CHECKING:
    from scheduler.core import JobSpec

# The cluster has read the job, and says why it will not have it.
_REFUSALS = ("INVALID", "INFEASIBLE", "NOT_FOUND", "WRONG_STATE", "ALREADY_EXISTS")


class RoutedCluster(Protocol):
    """Calls of a cluster for routing, as Client has them. Raises: ServiceError."""

    def offer(self, spec: JobSpec, request_id: str) -> job_pb2.Job: ...

    def create_job(self, spec: JobSpec, request_id: str) -> job_pb2.Job: ...


@struct(frozen=True, slots=True)
class ClusterView:
    """The answer of a cluster to a request; one of the fields is set. `made`: the job that it has
    made; `offer`: what the job would get; `refusal`: why it cannot have it; `silence`: why nothing
    is known. `is_taken`: it refuses the job for one of the same name or request that it has."""

    name: str
    made: job_pb2.Job | None = None
    offer: Offer | None = None
    refusal: str = ""
    silence: str = ""
    is_taken: bool = False


@struct(frozen=True, slots=True)
class Routed:
    """The job is in `cluster`. `is_repeat`: an earlier call made it."""

    cluster: str
    job: job_pb2.Job
    request_id: str
    is_repeat: bool
    views: tuple[ClusterView, ...]


@struct(frozen=True, slots=True)
class NotRouted:
    """No cluster has the job by this call. `is_unknown`: one that is silent may have it."""

    reason: str
    views: tuple[ClusterView, ...]
    is_infeasible: bool = False
    is_unknown: bool = False


def ask_clusters(
    clusters: Mapping[str, RoutedCluster], spec: JobSpec, request_id: str
) -> tuple[ClusterView, ...]:
    """Ask all clusters at once what they say of a job; change nothing."""
    with ThreadPoolExecutor(len(clusters), "muster-route") as threads:
        return tuple(
            threads.map(lambda name: _view(name, clusters[name], spec, request_id), clusters)
        )


def submit_to_best(
    clusters: Mapping[str, RoutedCluster], spec: JobSpec, request_id: str
) -> Routed | NotRouted:
    """Have the job made by the best cluster, unless one has made it already.

    `clusters`: by the caller's names, in the order of preference where offers are equal.
    """
    views = ask_clusters(clusters, spec, request_id)
    for view in views:
        if view.made is not None:
            return Routed(view.name, view.made, request_id, True, views)
    if silent := [f"{view.name}: {view.silence}" for view in views if view.silence]:
        reason = f"a cluster that does not answer may have the job; {'; '.join(silent)}"
        return NotRouted(reason, views, is_unknown=True)
    for view in views:
        if view.is_taken:
            return NotRouted(f"{view.name}: {view.refusal}", views)
    refused = {view.name: view.refusal for view in views if view.offer is None}
    offers = {view.name: view.offer for view in views if view.offer is not None}
    for name in rank(offers):
        if offers[name].is_impossible:
            refused[name] = offers[name].reason
            continue
        try:
            job = clusters[name].create_job(spec, request_id)
        except ServiceError as error:
            if error.reason not in _REFUSALS:
                reason = f"{name} was sent the job and does not say whether it has it"
                return NotRouted(f"{reason}: {error.message}", views, is_unknown=True)
            refused[name] = error.message
        else:
            return Routed(name, job, request_id, False, views)
    why = "; ".join(f"{name}: {refused[name]}" for name in clusters)
    is_infeasible = all(view.offer is not None and view.offer.is_impossible for view in views)
    return NotRouted(f"no cluster takes the job: {why}", views, is_infeasible)


def _view(name: str, cluster: RoutedCluster, spec: JobSpec, request_id: str) -> ClusterView:
    try:
        answer = cluster.offer(spec, request_id)
    except ServiceError as error:
        view = ClusterView(name, refusal=error.message)
        if any(path == "request_id" for path, _ in error.violations):
            reason = f"it knows this request from another job file: {error.message}"
            return replace(view, refusal=reason, is_taken=True)
        if error.reason in _REFUSALS:
            return replace(view, is_taken=error.reason == "ALREADY_EXISTS")
        return ClusterView(name, silence=error.message)
    if answer.uid:
        return ClusterView(name, made=answer)
    return ClusterView(name, offer=offer_of(answer))


class StartKind(IntEnum):
    """Kinds of start on a cluster, the best first."""

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
    """Return the names of the clusters, the best offer first.

    In this order: it starts now and stops nobody; it starts now, and as few as possible are
    preempted or drop replicas for it; it waits, the earlier its start the better; its start is not
    known. Where that is equal: the shorter step, then the fewer bytes over the outermost tier, then
    the order in which the clusters were named.
    """
    return sorted(offers, key=lambda name: offers[name].key)


def offer_of(answer: job_pb2.Job) -> Offer:
    """Make an offer out of the answer to a dry run."""
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
    """Say in a few words why an offer is not the best one."""
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
