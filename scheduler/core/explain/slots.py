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
from scheduler.core.tenancy.quota import domain_masks

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
    counter = _Counter(state, now_ns, options, asker)
    return Slots(
        counter.tenant,
        counter.free.bit_count(),
        counter.reach.bit_count(),
        counter.domains,
        tuple((counter.free & mask).bit_count() for mask in counter.masks),
        counter.usable,
        counter.most(1),
        tuple(counter.count(gpus) for gpus in sizes),
    )


class _Counter:
    """Asks a cycle that every waiting job has passed."""

    def __init__(self, state: State, now_ns: int, options: SchedulingOptions, asker: Asker) -> None:
        self._state, self._now_ns, self._asker = state, now_ns, asker
        self._gpus = state.loaded_fabric.gpus_per_host
        self._name = next(name for i in count() if (name := f"slot-{i}") not in state.jobs)
        self._check()
        find = make_placer(state, options, now_ns=now_ns)
        self._cycle = SchedulingCycle(state, now_ns, options, state.free, find, find)
        for _ in self._cycle.verdicts():
            pass
        tiers = state.loaded_fabric.tiers
        self.domains: tuple[str, ...] = tuple(tiers[0].domains) if tiers else ()
        self.masks = domain_masks(state.loaded_fabric, tiers[0].name) if tiers else ()
        job = self._job(1)
        self.tenant = job.tenant
        self.free = self._cycle.free
        self.reach = self._cycle.allowance(job).reach
        self.usable = tuple((self.reach & mask).bit_count() for mask in self.masks)

    def _check(self) -> None:
        """Raises: BadInput when nobody could submit such a job, however small."""
        answer = admit(self._state, SubmitJob(self._spec(1), ""), self._now_ns)
        if isinstance(answer, Rejected) and answer.code is Code.INVALID:
            raise BadInput(answer.violations[0].field, answer.violations[0].message)

    def _spec(self, hosts: int) -> JobSpec:
        axes, asker = Parallelism(tp=self._gpus, dp=hosts), self._asker
        return JobSpec(
            self._name,
            Request(axes, (("tp", 0), ("dp", 0)), spares=NO_SPARES),
            time_limit_s=asker.time_limit_s,
            tenant=asker.tenant,
            priority_class=asker.priority_class,
        )

    def _job(self, hosts: int) -> Job:
        spec, now_ns = self._spec(hosts), self._now_ns
        job = Job(spec, "", hosts, hosts, now_ns, self._state.version + 1, state_ns=now_ns)
        return owned(job, self._state.tenants)

    def most(self, hosts: int) -> int:
        """How many jobs of so many hosts would start, one after the other."""
        totals = range(1, self.free.bit_count() // hosts + 1)
        return bisect_left(totals, 1, key=lambda k: not self._cycle.may_start(self._job(k * hosts)))

    def count(self, gpus: int) -> SlotCount:
        hosts = gpus // self._gpus
        most = self.most(hosts)
        by_domain = tuple(min(most, usable // hosts) for usable in self.usable)
        inside = min(most, sum(usable // hosts for usable in self.usable))
        return SlotCount(gpus, hosts, most, inside, by_domain)
