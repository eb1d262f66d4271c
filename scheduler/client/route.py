"""One job for several clusters, each a muster of its own: the best of them makes it.

All are asked at once what the job would get, and the best one is sent it. Nothing is kept here: the
request id of the job is the same in every call, so the cluster that has made it says so. Nothing is
sent while a cluster is silent, for that one may have the job since an earlier call (docs/route.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from muster.structs import replace, struct
from scheduler.client.connection import ServiceError
from scheduler.client.offers import Offer, offer_of, rank
from scheduler.v1 import job_pb2

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
    """Answer of a cluster to a request; one of these is set. `made`: the job that it has made;
    `offer`: what the job would get; `refusal`: why it cannot have it; `silence`: why nothing is
    known. `is_taken`: it refuses the job for one of the same name or request that it has."""

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
