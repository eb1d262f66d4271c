"""One job for several clusters, each a muster of its own: the best of them makes it.

All are asked at once what the job would get, and the best one is sent it. Nothing is kept here: the
request id of the job is the same in every call, so the cluster that has made it says so. Nothing is
sent while a cluster is silent, for that one may have the job since an earlier call (docs/route.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import TYPE_CHECKING

from muster.structs import struct
from scheduler.client.client import Client
from scheduler.client.connection import ServiceError
from scheduler.v1 import job_pb2, placement_pb2

if TYPE_CHECKING:
    from scheduler.core import JobSpec

# The cluster has read the job, and says why it will not have it.
_REFUSALS = ("INVALID", "INFEASIBLE", "NOT_FOUND", "WRONG_STATE", "ALREADY_EXISTS")


@struct(frozen=True, slots=True)
class ClusterView:
    """The answer of a cluster to a job. `job`: what it would get by a dry run, or the job that the
    request has made, which has a uid; None: `refusal` says why the cluster cannot have it, or
    `silence` why nothing is known. `is_taken`: it refuses the job for one of the same name or
    request that it has."""

    name: str
    job: job_pb2.Job | None = None
    refusal: str = ""
    silence: str = ""
    is_taken: bool = False

    @property
    def has_job(self) -> bool:
        return self.job is not None and bool(self.job.uid)

    @property
    def is_impossible(self) -> bool:
        """Whether the job never fits the cluster."""
        infeasible = placement_pb2.OUTCOME_INFEASIBLE
        return self.job is not None and self.job.answer.outcome == infeasible


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
    clusters: Mapping[str, Client], spec: JobSpec, request_id: str
) -> tuple[ClusterView, ...]:
    """Ask all clusters at once what they say of a job; change nothing."""
    with ThreadPoolExecutor(len(clusters), "muster-route") as threads:
        return tuple(
            threads.map(lambda name: _view(name, clusters[name], spec, request_id), clusters)
        )


def submit_to_best(
    clusters: Mapping[str, Client], spec: JobSpec, request_id: str
) -> Routed | NotRouted:
    """Have the job made by the best cluster, unless one has made it already.

    `clusters`: by the caller's names, in the order of preference where offers are equal.
    """
    views = ask_clusters(clusters, spec, request_id)
    for view in views:
        if view.job is not None and view.has_job:
            return Routed(view.name, view.job, request_id, True, views)
    if silent := [f"{view.name}: {view.silence}" for view in views if view.silence]:
        reason = f"a cluster that does not answer may have the job; {'; '.join(silent)}"
        return NotRouted(reason, views, is_unknown=True)
    if taken := next((view for view in views if view.is_taken), None):
        return NotRouted(f"{taken.name}: {taken.refusal}", views)
    refused = {view.name: view.job.answer.reason if view.job else view.refusal for view in views}
    for name in rank(views):
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
    is_infeasible = all(view.is_impossible for view in views)
    return NotRouted(f"no cluster takes the job: {why}", views, is_infeasible)


def _view(name: str, cluster: Client, spec: JobSpec, request_id: str) -> ClusterView:
    try:
        return ClusterView(name, cluster.offer(spec, request_id))
    except ServiceError as error:
        if any(path == "request_id" for path, _ in error.violations):
            reason = f"it knows this request from another job file: {error.message}"
            return ClusterView(name, refusal=reason, is_taken=True)
        if error.reason in _REFUSALS:
            is_taken = error.reason == "ALREADY_EXISTS"
            return ClusterView(name, refusal=error.message, is_taken=is_taken)
        return ClusterView(name, silence=error.message)


def rank(views: Sequence[ClusterView]) -> list[str]:
    """Return the names of the clusters that could take the job, the best offer first.

    In this order: it starts now and stops nobody; it starts now, and as few as possible are
    preempted or drop replicas for it; it waits, the earlier its start the better; its start is not
    known. Where that is equal: the shorter step, then the fewer bytes over the outermost tier, then
    the order in which the clusters were named.
    """
    keys = {
        view.name: _key(view.job)
        for view in views
        if view.job is not None and not view.is_impossible
    }
    return sorted(keys, key=lambda name: keys[name])


def _key(job: job_pb2.Job) -> tuple[float, ...]:
    answer, placement, estimate = job.answer, job.answer.placement, job.start_estimate
    if answer.outcome == placement_pb2.OUTCOME_PLACED:
        step_ns = placement.step_time.ToNanoseconds() if placement.HasField("step_time") else inf
        cut = placement.cuts[0].bytes_per_step if placement.cuts else 0
        return (0, answer.preempted_jobs, answer.shrunk_jobs, step_ns, cut)
    if estimate.HasField("start_time"):
        return (1, estimate.start_time.ToNanoseconds())
    if estimate.HasField("not_before_time"):
        return (2, estimate.not_before_time.ToNanoseconds())
    return (3,)
