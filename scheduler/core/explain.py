"""Why a job waits, and what a job would get: answers that change nothing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from placement import hostset
from placement.fabric import Fabric
from placement.hostset import HostSet
from placement.place import place
from placement.request import Answer, Placement
from scheduler.core.admission import Quotas
from scheduler.core.cells import highest
from scheduler.core.decide import Desk, Hold, Verdict
from scheduler.core.job import SECOND_NS, Job, JobSpec
from scheduler.core.lifecycle import JobState
from scheduler.core.plan import Reservation
from scheduler.core.policy import Limits, Policy, time_limit_ns
from scheduler.core.quota import domain_masks
from scheduler.core.reserve import Outlook
from scheduler.core.state import State
from scheduler.core.words import duration, ending, hosts_text, jobs_text


class Cause(StrEnum):
    """Why a job is not running."""

    NOT_WAITING = "not_waiting"
    DUE = "due"  # fits; starts with the next decision
    HOSTS = "hosts"  # not enough free hosts
    BEHIND = "behind"  # an earlier job holds a reservation
    LIMIT = "limit"  # its tenant may hold no more
    PROMISES = "promises"  # what is free is guaranteed to other tenants


@dataclass(frozen=True, slots=True)
class Reason:
    """Why `name` waits: one sentence, and the facts behind it.

    `start_ns`: the earliest start from the running jobs' limits, None when unknown.
    `waits_for`: running jobs whose ends would make the room, in order. `reserved_in`:
    outermost domains in which hosts are reserved for it.
    """

    name: str
    cause: Cause
    sentence: str
    needed: int = 0
    free: int = 0
    start_ns: int | None = None
    waits_for: tuple[str, ...] = ()
    reserved_in: tuple[str, ...] = ()


def dry_run(state: State, spec: JobSpec, limits: Limits) -> Answer:
    """What `spec` would get if it started now, alone."""
    return place(state.loaded_fabric, state.free, spec.request, limits.place)


def explain(state: State, name: str, now_ns: int, limits: Limits) -> Reason:
    """Why the job waits. Raises: KeyError when no such job is at hand."""
    job = state.find(name)
    if job is None:
        raise KeyError(name)
    if job.state is not JobState.QUEUED:
        return Reason(name, Cause.NOT_WAITING, f"{name} is {job.state}")
    return explain_all(state, {name}, now_ns, limits)[name]


def explain_all(
    state: State, names: Collection[str], now_ns: int, limits: Limits
) -> dict[str, Reason]:
    """The reasons of these queued jobs, from one walk along the queue.

    The stages are those of a decision, except that hosts are counted and not placed.
    Cost: some 5 us for each job of the queue, and 1 ms for each reason.
    """
    reasons: dict[str, Reason] = {}
    told = _Told(state, now_ns, limits)
    for verdict in Desk(state, now_ns, limits, state.free, _counted).verdicts():
        if verdict.job.name in names:
            reasons[verdict.job.name] = told.reason(verdict)
            if len(reasons) == len(names):
                break
        told.passed(verdict)
    return reasons


def _counted(job: Job, free: HostSet, most: int) -> Placement:
    """As many hosts as the job needs, whichever."""
    return Placement(tuple(hostset.members(highest(free, job.needed))))


class _Told:
    """What those ahead in the queue leave to say."""

    def __init__(self, state: State, now_ns: int, limits: Limits) -> None:
        self._state, self._now_ns, self._limits = state, now_ns, limits
        self._quotas = Quotas(state)
        self._outlook = Outlook(state, now_ns, limits, self._quotas)
        self._free = state.free.bit_count()
        self._ahead = self._due = 0
        self._blocker: Job | None = None

    def passed(self, verdict: Verdict) -> None:
        """This job is ahead of those still to come."""
        self._ahead += 1
        self._due += verdict.placement is not None
        if verdict.hold not in (None, Hold.LIMIT) and self._blocker is None:
            self._blocker = verdict.job

    def reason(self, verdict: Verdict) -> Reason:
        job = verdict.job
        if verdict.placement is not None:
            room = hosts_text(verdict.free)
            sentence = f"fits on {job.needed:,} of {room} free; starts with the next decision"
            return Reason(job.name, Cause.DUE, sentence, job.needed, self._free)
        if verdict.hold is Hold.LIMIT:
            return self._limited(verdict)
        if job.needed > self._free:
            return self._short(job)
        if verdict.hold is Hold.HOSTS:
            ahead, room = jobs_text(self._due), hosts_text(verdict.free)
            sentence = f"would fit, but {ahead} ahead of it and due leave {room}"
            return Reason(job.name, Cause.BEHIND, sentence, job.needed, self._free)
        if verdict.hold is Hold.PROMISES:
            return self._promised(verdict)
        return self._behind(verdict)

    def _limited(self, verdict: Verdict) -> Reason:
        job, allowed = verdict.job, verdict.allowed
        book = self._quotas.book
        holds, limit = book.held[allowed.whose], book.limit(allowed.whose)
        sentence = (
            f"needs {hosts_text(job.needed)}; tenant {allowed.whose} holds {holds:,}"
            f" of its limit of {limit:,}"
        )
        found = self._outlook.limit_reservation(job, allowed.whose, limit - holds)
        start_ns = None if found is None else found.start_ns
        return Reason(job.name, Cause.LIMIT, sentence, job.needed, self._free, start_ns)

    def _promised(self, verdict: Verdict) -> Reason:
        job, pool = verdict.job, verdict.allowed.pool
        sentence = (
            f"needs {hosts_text(job.needed)}; {verdict.free:,} are free, of which tenant"
            f" {job.tenant} can have {pool:,}: the rest is guaranteed to others"
        )
        return Reason(job.name, Cause.PROMISES, sentence, job.needed, self._free)

    def _short(self, job: Job) -> Reason:
        free, needed = self._free, job.needed
        found = self._own_reservation(job)
        needs = f"needs {hosts_text(needed)}; {free:,} {'is' if free == 1 else 'are'} free"
        queue = f"; {jobs_text(self._ahead)} ahead of it" if self._ahead else ""
        if found is None:
            return Reason(
                job.name, Cause.HOSTS, f"{needs}; {self._hopeless()}{queue}", needed, free
            )
        waits_for = tuple(g.name for g in self._outlook.ends() if g.end_ns <= found.start_ns)
        wait_s = max(0, found.start_ns - self._now_ns) // SECOND_NS
        limit = self._whose_limits(waits_for)
        when = f"{ending(waits_for)} in {duration(wait_s)} {limit}{self._outrun(waits_for)}"
        sentence = f"{needs}; {when}{queue}"
        is_first = self._blocker is None and self._limits.policy is not Policy.CONSERVATIVE
        fabric = self._state.loaded_fabric
        places = domains_of(fabric, found.hosts) if is_first else ()
        return Reason(
            job.name, Cause.HOSTS, sentence, needed, free, found.start_ns, waits_for, places
        )

    def _own_reservation(self, job: Job) -> Reservation | None:
        """As if the job were the first that waits."""
        free = self._state.free
        return self._outlook.reservation(job, self._quotas.allowance(job, free), free)

    def _hopeless(self) -> str:
        out = self._state.unhealthy.bit_count()
        if not out:
            return "the rest is guaranteed to others"
        return f"of {hosts_text(out)} out of service some must come back first"

    def _whose_limits(self, names: tuple[str, ...]) -> str:
        if all(self._state.jobs[name].spec.time_limit_s is not None for name in names):
            return "by stated limits"
        assumed = duration(self._limits.assumed_limit_s)
        return f"by assumed limits ({assumed} where none is stated)"

    def _outrun(self, names: tuple[str, ...]) -> str:
        """Jobs that have lasted longer than their limits, whose ends are hence a guess."""
        jobs = [self._state.jobs[name] for name in names]
        late = [
            job.name
            for job in jobs
            if job.start_ns + time_limit_ns(job, self._limits) <= self._now_ns
        ]
        return f", which {', '.join(late)} outran" if late else ""

    def _behind(self, verdict: Verdict) -> Reason:
        job = verdict.job
        first = self._blocker
        if verdict.behind is not None:
            first = self._state.jobs[verdict.behind.name]
        if first is None:
            sentence = "would fit, but no placement was found within the limits of the search"
            return Reason(job.name, Cause.BEHIND, sentence, job.needed, self._free)
        rule = (
            "nobody overtakes under fifo"
            if self._limits.policy is Policy.FIFO
            else "starting now would delay it"
        )
        sentence = (
            f"would fit, but {first.name} ({hosts_text(first.needed)}) is ahead of it; {rule}"
        )
        waits_for = (first.name,)
        return Reason(job.name, Cause.BEHIND, sentence, job.needed, self._free, None, waits_for)


def domains_of(fabric: Fabric, hosts: HostSet) -> tuple[str, ...]:
    """Outermost domains with a host of `hosts`, in the order of the fabric."""
    if not fabric.tiers:
        return ()
    tier = fabric.tiers[0]
    masks = domain_masks(fabric, tier.name)
    return tuple(name for name, mask in zip(tier.domains, masks, strict=True) if mask & hosts)
