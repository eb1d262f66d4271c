"""Trace jobs as gangs: whole hosts, in one data-parallel ring."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from placement.parallelism import Parallelism
from placement.request import Request, SpareRule
from scheduler.core.job import JobSpec
from simulator.traces.record import SECOND_NS, TraceJob

MAPPING = (
    "a job of g GPUs (SWF: processors) is a gang of ceil(g / GPUs per host) whole hosts, pure data"
    " parallel, 1 byte per ring edge and step; jobs of a muster trace keep their own shape"
)
TIME_LIMITS = (
    "a job without a time limit has its run time as limit; one that outruns its limit runs on"
)


def job_spec(job: TraceJob, gpus_per_host: int, spares: SpareRule) -> JobSpec:
    """What the trace's job asks of the scheduler."""
    limit_ns = job.run_ns if job.time_limit_ns is None else job.time_limit_ns
    limit_s = max(1, -(-limit_ns // SECOND_NS))
    if job.spec is not None:
        return replace(job.spec, time_limit_s=limit_s)
    request = _gang(-(-job.gpus // gpus_per_host), gpus_per_host, spares)
    return JobSpec(job.id, request, job.priority, limit_s)


@lru_cache(maxsize=4096)
def _gang(hosts: int, gpus_per_host: int, spares: SpareRule) -> Request:
    # One byte per edge: enough for placement to keep a gang together.
    return Request(Parallelism(dp=hosts * gpus_per_host), traffic=(("dp", 1),), spares=spares)
