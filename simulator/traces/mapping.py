"""Trace jobs as gangs of whole hosts."""

from __future__ import annotations

import re

from muster.structs import replace
from placement.workload.request import NO_SPARES, SpareRule
from scheduler.core import Tenants
from scheduler.core.model.job import JobSpec
from scheduler.core.names import is_name
from simulator.traces.record import SECOND_NS, TraceJob
from simulator.traces.shapes import (
    RULES,
    ShapeAssignment,
    ShapeRule,
    part_of_host,
    shaped,
)

AS_RING = ShapeAssignment()
ODD = re.compile(r"[^A-Za-z0-9._-]")
MAPPING = (
    "a job of g GPUs (SWF: processors) is a gang of ceil(g / GPUs per host) whole hosts, {};"
    " jobs of a muster trace keep the shape that they state"
)
SHARED = "one of fewer GPUs than a host takes as many as it asks for, beside others"
NO_STOP = "a job that exceeds its limit is not stopped"
TIME_LIMITS = f"a job without a time limit has its run time as limit; {NO_STOP}"
ASSUMED_LIMITS = "a job without a time limit is assumed to run {:g} h; " + NO_STOP
HEALTH = (
    "health: repair times include the stress test of the policy; a host that the policy retires"
    " stays out of service until its next repair, from which it returns as a new machine"
)
OUTCOMES = (
    "a job that failed or was cancelled in its trace ends so, after the run time that the trace"
    " gives it, and nothing that it did is productive"
)
TENANTS = (
    "a job belongs to the tenant with the name of its account, queue or user, else to the default"
    " tenant, and has the priority class that its class names, if there is one; jobs of a muster"
    " trace name both"
)


def mapping(rule: ShapeRule, shares_hosts: bool = False) -> str:
    """Return the sentence that says how trace jobs became jobs of a run."""
    return MAPPING.format(RULES[rule]) + ("; " + SHARED if shares_hosts else "")


def job_spec(
    job: TraceJob,
    gpus_per_host: int,
    spares: SpareRule | None,
    assume_limits: bool = False,
    attach: ShapeAssignment = AS_RING,
    shares_hosts: bool = False,
) -> JobSpec:
    """Return the specification of a trace's job. `spares`: in place of what it
    states; None leaves that, and none for a job that is but a size. `assume_limits`: leave
    a time limit that it does not state unstated, where else its run time stands in.
    `attach`: the shape of a job that states none. `shares_hosts`: one smaller than a host takes a
    part of it."""
    limit_ns = job.time_limit_ns
    if limit_ns is None and not assume_limits:
        limit_ns = job.run_ns
    limit_s = None if limit_ns is None else max(1, -(-limit_ns // SECOND_NS))
    if job.spec is not None:
        spec = replace(job.spec, time_limit_s=limit_s)
        if spares is None:
            return spec
        return replace(spec, request=replace(spec.request, spares=spares))
    if shares_hosts and job.gpus < gpus_per_host:
        return JobSpec(_name(job), part_of_host(job.gpus), job.priority, limit_s)
    gpus = -(-job.gpus // gpus_per_host) * gpus_per_host
    request, min_dp = shaped(gpus, gpus_per_host, spares or NO_SPARES, attach, job.line)
    return JobSpec(_name(job), request, job.priority, limit_s, min_dp=min_dp)


def _name(job: TraceJob) -> str:
    """The trace's own id, as far as it can name a job; else its line."""
    name = ODD.sub("-", job.id).strip("._-")
    return name if is_name(name) else f"line-{job.line}"


def with_tenant(spec: JobSpec, job: TraceJob, tenants: Tenants | None) -> JobSpec:
    """Return the job with the tenant and the class that the trace's names stand for, where the job
    does not name them. Classes are compared without regard to case, as Alibaba writes `Spot`."""
    if tenants is None:
        return spec
    if job.spec is None and job.priority_class and not spec.priority:
        classes = {name.lower(): name for name in tenants.class_by_name}
        spec = replace(spec, priority_class=classes.get(job.priority_class.lower(), ""))
    if spec.tenant:
        return spec
    leaves = tenants.by_name.keys() - tenants.inner
    tenant = next((name for name in (job.account, job.queue, job.user) if name in leaves), "")
    return replace(spec, tenant=tenant)
