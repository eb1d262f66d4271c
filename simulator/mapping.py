"""Trace jobs as gangs: whole hosts, in one data-parallel ring."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from placement.parallelism import Parallelism
from placement.request import Request, SpareRule
from scheduler.core import Tenants
from scheduler.core.admit import is_name
from scheduler.core.job import JobSpec
from simulator.traces.record import SECOND_NS, TraceJob

ODD = re.compile(r"[^A-Za-z0-9._-]")
MAPPING = (
    "a job of g GPUs (SWF: processors) is a gang of ceil(g / GPUs per host) whole hosts, pure data"
    " parallel, 1 byte per ring edge and step; jobs of a muster trace keep their own shape"
)
TIME_LIMITS = (
    "a job without a time limit has its run time as limit; one that outruns its limit runs on"
)
ASSUMED_LIMITS = (
    "a job without a time limit is taken to run {:g} h; one that outruns its limit runs on"
)
TENANTS = (
    "a job belongs to the tenant named like its account, queue or user, else to the default"
    " one; jobs of a muster trace say it themselves"
)


def job_spec(
    job: TraceJob, gpus_per_host: int, spares: SpareRule, assume_limits: bool = False
) -> JobSpec:
    """What the trace's job asks of the scheduler. `assume_limits`: leave a time limit
    that it does not state unstated, where else its run time stands in."""
    limit_ns = job.time_limit_ns
    if limit_ns is None and not assume_limits:
        limit_ns = job.run_ns
    limit_s = None if limit_ns is None else max(1, -(-limit_ns // SECOND_NS))
    if job.spec is not None:
        return replace(job.spec, time_limit_s=limit_s)
    request = _gang(-(-job.gpus // gpus_per_host), gpus_per_host, spares)
    return JobSpec(_name(job), request, job.priority, limit_s)


def _name(job: TraceJob) -> str:
    """The trace's own id, as far as it can name a job; else its line."""
    name = ODD.sub("-", job.id).strip("._-")
    return name if is_name(name) else f"line-{job.line}"


def with_tenant(spec: JobSpec, job: TraceJob, tenants: Tenants | None) -> JobSpec:
    """The tenant that the trace's names stand for, where the job does not say it."""
    if tenants is None or spec.tenant:
        return spec
    leaves = tenants.by_name.keys() - tenants.inner
    tenant = next((name for name in (job.account, job.queue, job.user) if name in leaves), "")
    return replace(spec, tenant=tenant)


@lru_cache(maxsize=4096)
def _gang(hosts: int, gpus_per_host: int, spares: SpareRule) -> Request:
    # One byte per edge: enough for placement to keep a gang together.
    return Request(Parallelism(dp=hosts * gpus_per_host), traffic=(("dp", 1),), spares=spares)
