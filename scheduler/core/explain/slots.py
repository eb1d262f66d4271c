"""Slots: how many jobs of a size would start now, in all and inside each domain.

A new job is asked about behind all that wait, with the stages of a decision. As many
small jobs start one after the other as one job of their joint size may have hosts:
limits, promises and reservations are all counted in hosts. Where tenants hold cells the
count is an estimate, for what is kept in their shape depends on who takes what before.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import count

from muster.structs import struct
from placement import BadInput
from placement.workload.parallelism import Parallelism
from placement.workload.request import NO_SPARES, Request
from scheduler.core.admission.admit import Code, Rejected, admit
from scheduler.core.capacity.placer import make_placer
from scheduler.core.model.commands import SubmitJob
from scheduler.core.model.job import Job, JobSpec
from scheduler.core.model.scheduling_options import SchedulingOptions
from scheduler.core.model.state import State
from scheduler.core.queue.cycle import SchedulingCycle
from scheduler.core.tenancy.ownership import owned
from scheduler.core.tenancy.quota import outer_domains

SIZES = (8, 64, 512, 2_048)  # GPUs


@struct(frozen=True, slots=True)
class Asker:
    """Submitter to count slots for: a tenant, priority class and time limit; empty: defaults."""

    tenant: str = ""
    priority_class: str = ""
    time_limit_s: int | None = None


@struct(frozen=True, slots=True)
class SlotCount:
    """Jobs of `gpus` that would start now. `inside`: jobs that one outermost domain
    holds whole; `by_domain`: how many each would hold if all went there."""

    gpus: int
    hosts: int
    in_all: int
    inside: int
    by_domain: tuple[int, ...]


@struct(frozen=True, slots=True)
class Slots:
    """`free`, `usable`: hosts free in each of `domains`, and those not kept for others;
    `free_hosts`, `usable_hosts`: in all. `room`: hosts of the largest job that would
    start now."""

    tenant: str
    free_hosts: int
    usable_hosts: int
    domains: tuple[str, ...]
    free: tuple[int, ...]
    usable: tuple[int, ...]
    room: int
    counts: tuple[SlotCount, ...]


def slots(
    state: State, now_ns: int, options: SchedulingOptions, asker: Asker, sizes: Sequence[int] = ()
) -> Slots:
    """Count the jobs of each size that would start now; sizes are in GPUs, by default those of
    SIZES that fill whole hosts.

    Cost: one walk along the queue.

    Raises: BadInput naming `sizes`, `tenant`, `priority_class` or `time_limit_s`.
    """
    fabric = state.loaded_fabric
    sizes = sizes or [gpus for gpus in SIZES if not gpus % fabric.gpus_per_host]
    for gpus in sizes:
        if gpus < 1 or gpus % fabric.gpus_per_host:
            message = f"{gpus} GPUs do not fill whole hosts of {fabric.gpus_per_host}"
            raise BadInput("sizes", message)
    name = next(name for i in count() if (name := f"slot-{i}") not in state.jobs)
    answer = admit(state, SubmitJob(_spec(state, asker, name, 1), ""), now_ns)
    if isinstance(answer, Rejected) and answer.code is Code.INVALID:  # of any size
        raise BadInput(answer.violations[0].field, answer.violations[0].message)
    find = make_placer(state, options, now_ns=now_ns)
    cycle = SchedulingCycle(state, now_ns, options, state.free, find, find)
    for _ in cycle.verdicts():  # every waiting job passes it first
        pass

    def job_of(hosts: int) -> Job:
        spec = _spec(state, asker, name, hosts)
        job = Job(spec, "", hosts, hosts, now_ns, state.version + 1, state_ns=now_ns)
        return owned(job, state.tenants)

    def most(hosts: int) -> int:
        """How many jobs of so many hosts would start, one after the other."""
        totals = range(1, cycle.free.bit_count() // hosts + 1)
        return bisect_left(totals, 1, key=lambda k: not cycle.may_start(job_of(k * hosts)))

    def count_of(gpus: int) -> SlotCount:
        hosts = gpus // fabric.gpus_per_host
        in_all, whole = most(hosts), [each // hosts for each in usable]
        by_domain = tuple(min(in_all, each) for each in whole)
        return SlotCount(gpus, hosts, in_all, min(in_all, sum(whole)), by_domain)

    job, domains = job_of(1), outer_domains(fabric)
    reach = cycle.allowance(job).reach
    usable = tuple((reach & mask).bit_count() for _, mask in domains)
    return Slots(
        job.tenant,
        cycle.free.bit_count(),
        reach.bit_count(),
        tuple(name for name, _ in domains),
        tuple((cycle.free & mask).bit_count() for _, mask in domains),
        usable,
        most(1),
        tuple(map(count_of, sizes)),
    )


def _spec(state: State, asker: Asker, name: str, hosts: int) -> JobSpec:
    axes = Parallelism(tp=state.loaded_fabric.gpus_per_host, dp=hosts)
    return JobSpec(
        name,
        Request(axes, (("tp", 0), ("dp", 0)), spares=NO_SPARES),
        time_limit_s=asker.time_limit_s,
        tenant=asker.tenant,
        priority_class=asker.priority_class,
    )
