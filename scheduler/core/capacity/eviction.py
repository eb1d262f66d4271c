"""Jobs that make room for another one, as a plan, a sentence and the log name them."""

from __future__ import annotations

from collections.abc import Sequence

from muster.structs import replace
from scheduler.core.capacity.shrink import ShrunkGang, resize
from scheduler.core.capacity.victims import Victim, is_taken_back
from scheduler.core.model.events import GangResized, JobPreempted
from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.model.plan import Resize
from scheduler.core.model.state import State
from scheduler.core.rules.job_size import resized
from scheduler.core.tenancy.quota_check import Quotas
from scheduler.core.wording import duration, listed


def parted(victims: Sequence[Victim]) -> tuple[tuple[str, ...], tuple[Resize, ...]]:
    """Split victims into the names of evicted gangs and the resizes of the others."""
    names = tuple(gang.name for gang in victims if gang.smaller is None)
    shrinks = (resize(v.smaller, v.job, "", v.end_ns) for v in victims if v.smaller)
    return names, tuple(shrinks)


def yielding(verbs: tuple[str, str], names: Sequence[str], shrinks: Sequence[Resize]) -> str:
    """Say which gangs make room: `shrinking a to dp 6 and preempting b`, with these verbs for a and
    for b."""
    parts = [f"{verbs[1]} {listed(tuple(f'{s.name} to dp {s.dp:,}' for s in shrinks))}"]
    parts = parts if shrinks else []
    parts += [f"{verbs[0]} {listed(tuple(names))}"] if names else []
    return " and ".join(parts)


def shrunk(gang: Victim, shrink: Resize) -> Victim:
    """Return the gang after this shrink."""
    kept = shrink.placement.allocation
    smaller = ShrunkGang(gang.job.at(shrink.dp), shrink.placement, gang.hosts & ~kept)
    held = gang.held - kept.bit_count()
    return replace(gang, hosts=smaller.freed, held=held, smaller=smaller, end_ns=shrink.end_ns)


def eviction_event(
    state: State, gang: Victim, job: Job, quotas: Quotas, now_ns: int
) -> JobPreempted | GangResized:
    """Return the event that evicts or shrinks a gang; it names the job, and by what right."""
    ran = duration(max(0, now_ns - gang.job.present.start_ns) // SECOND_NS)
    right = _right(gang, job, quotas)
    if gang.smaller is None:
        reason = f"preempted by {job.name} after {ran} ({right})"
        return JobPreempted(now_ns, gang.name, job.name, reason)
    reason = f"shrunk from dp {gang.job.dp:,} by {job.name} after {ran} ({right})"
    action = resize(gang.smaller, gang.job, reason, gang.end_ns)
    return resized(state, gang.job, action, now_ns, preempted_by=job.name)


def _right(gang: Victim, job: Job, quotas: Quotas) -> str:
    if gang.job.is_preemptible and is_taken_back(job, gang, quotas):
        return "hosts guaranteed to its tenant"
    if gang.job.is_preemptible and gang.job.priority < job.priority:
        return f"priority {job.priority} to {gang.job.priority}"
    return f"it had grown from dp {gang.job.present.start_dp:,}"
