"""A gang that fails again and again: which hosts it avoids, when it tries again, when no more.

The host that stopped a gang is not used by that gang again for a while, even when it is
reported repaired at once; twice as long each time that it stops it again. A gang whose
attempts end one after the other before anything is saved waits between them, longer each
time, and is given up at last: more of the same helps nobody, and every restart of it may
evict others. Source: one job that was requeued 35 times made 548 preemptions (Kokolis
et al., HPCA 2025).
"""

from __future__ import annotations

from muster.structs import replace
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from scheduler.core.model.job import SECOND_NS, Job, Strike
from scheduler.core.policies.costs import Costs, Ending
from scheduler.core.policies.job_terms import RestartRule, StopCause
from scheduler.core.policies.tenants import Restarts
from scheduler.core.wording import duration, listed

MOST_DOUBLINGS = 4
EARLY_S = 60  # an end by itself so soon after the start, before any step, is the program's own
EARLY_ENDS = 3  # of which so many in a row are enough


def record_strike(job: Job, host: int, now_ns: int, costs: Costs) -> Job:
    """Return the job after a host of its gang has failed."""
    before = next((s for s in job.strikes if s.host == host), Strike(host, 0, 0))
    remaining = tuple(s for s in job.strikes if s.host != host)
    hit = replace(job, strikes=(*remaining, Strike(host, before.count + 1, now_ns)))
    return stopped(hit, now_ns, costs, StopCause.HOST)


def remove_strike(job: Job, host: int, at_ns: int) -> Job:
    """Return the job without what it holds against a host that seemed to fail at `at_ns`, and had
    only been cut off."""
    held = tuple(s for s in job.strikes if s.host != host or s.at_ns != at_ns)
    return job if held == job.strikes else replace(job, strikes=held)


def stopped(
    job: Job, now_ns: int, costs: Costs, cause: StopCause | None, code: int = 0, step: int = 0
) -> Job:
    """Return the job after its attempt was stopped, which had come to `step`."""
    if job.present.stop_ns is not None:  # the attempt has been counted
        return job
    failed_attempts = 0 if has_saved(job, now_ns, costs) else job.failed_attempts + 1
    began_ns = job.present.start_ns if job.present.launched_ns is None else job.present.launched_ns
    is_early = cause is StopCause.EXIT and not step and now_ns - began_ns < EARLY_S * SECOND_NS
    return replace(
        job,
        failed_attempts=failed_attempts,
        gang=replace(job.present, stop_ns=now_ns),
        failure=cause,
        exit_code=code,
        early_ends=job.early_ends + 1 if is_early else 0,
    )


def has_saved(job: Job, now_ns: int, costs: Costs) -> bool:
    """Return whether the present attempt has saved anything, in memory or storage: as its ranks
    report, if they ever have reported that, else as its interval makes likely."""
    if job.present.renewed_ns is not None:
        return True
    if job.saved is not None:
        return job.saved.attempt == job.attempt
    ran_ns = max(0, now_ns - job.present.start_ns)
    return job.costs(costs).shares(job.attempt, ran_ns, Ending.FAILED).productive_ns > 0


def since_stop(job: Job) -> tuple[int, ...]:
    """Return the hosts of the gang that have failed since it stopped, in order of failure."""
    if job.present.stop_ns is None:
        return ()
    late = (strike.host for strike in job.strikes if strike.at_ns >= job.present.stop_ns)
    return tuple(host for host in late if host in job.hosts)  # others failed, and were left, before


def avoided(job: Job, terms: Restarts, now_ns: int) -> HostSet:
    """Return the hosts that the job avoids, for they stopped it recently."""
    if not job.strikes:
        return 0
    return hostset.of(s.host for s in job.strikes if _until_ns(s, terms) > now_ns)


def clear_ns(job: Job, terms: Restarts, now_ns: int) -> int | None:
    """Return when the job may use the next of these hosts again; None when it avoids none of
    them."""
    return min((at for s in job.strikes if (at := _until_ns(s, terms)) > now_ns), default=None)


def clear_moments(job: Job, terms: Restarts, now_ns: int) -> tuple[int, ...]:
    """When the job may use each of these hosts again."""
    return tuple(at_ns for s in job.strikes if (at_ns := _until_ns(s, terms)) > now_ns)


def avoided_text(fabric: Fabric, job: Job, terms: Restarts, now_ns: int) -> str:
    """Say which hosts a job avoids, and until when: `of which z0-r0-h0 stopped it recently; avoids
    it for 10 min more`."""
    names = fabric.names(hostset.members(avoided(job, terms, now_ns)))
    left_ns = (clear_ns(job, terms, now_ns) or now_ns) - now_ns
    proposals = "it" if len(names) == 1 else "them"
    wait = duration(-(-left_ns // SECOND_NS))
    return f"of which {listed(names)} stopped it recently; avoids {proposals} for {wait} more"


def is_soon(job: Job, terms: Restarts, now_ns: int) -> bool:
    """Return whether the job may use all of these hosts again so soon that it keeps its other hosts
    meanwhile, if there are no substitutes."""
    last_ns = max((_until_ns(strike, terms) for strike in job.strikes), default=0)
    return now_ns < last_ns <= now_ns + terms.avoid_s * SECOND_NS


def next_attempt_ns(job: Job, terms: Restarts, now_ns: int) -> int | None:
    """Return when something may be done for a gang that stands still; None where only an event can
    change that."""
    moments = (retry_ns(job, terms), clear_ns(job, terms, now_ns) or 0)
    return min((at_ns for at_ns in moments if at_ns > now_ns), default=None)


def _until_ns(strike: Strike, terms: Restarts) -> int:
    doubled = min(strike.count - 1, MOST_DOUBLINGS)
    return strike.at_ns + (terms.avoid_s * SECOND_NS << doubled)


def retry_ns(job: Job, terms: Restarts) -> int:
    """Return when a gang that stands still may run again; 0 for at once."""
    wait_s = pause_s(job.spec.restarts, terms, job.failed_attempts)
    if not wait_s or job.present.stop_ns is None:
        return 0
    return job.present.stop_ns + wait_s * SECOND_NS


def pause_s(rule: RestartRule, terms: Restarts, failures: int) -> int:
    """Return for how many seconds to wait after so many failures in a row."""
    more = failures - (terms.patience if rule.backoff_s is None else 1)
    if more < 0:
        return 0
    backoff_s = terms.backoff_s if rule.backoff_s is None else rule.backoff_s
    return min(backoff_s << min(more, MOST_DOUBLINGS), max(backoff_s, terms.most_backoff_s))


def give_up_reason(job: Job, terms: Restarts) -> str:
    """Return why the job is not started again; "" when it may be."""
    rule = job.spec.restarts
    if refusal := rule.refusal(job.failure, job.exit_code):
        return f"{job.reason}; {refusal}"
    if rule.most == 0:
        return f"{job.reason}; restarts.max is 0"
    if rule.most is None and job.early_ends >= EARLY_ENDS:
        ended = f"ended by themselves within {EARLY_S} s, before a first step"
        return f"{job.early_ends} attempts in a row {ended}; {job.reason}"
    if job.failed_attempts < _most_attempts(job, terms):
        return ""
    return f"{failed_attempts_text(job)}; {job.reason}"


def _most_attempts(job: Job, terms: Restarts) -> int:
    """How many attempts may fail in a row before anything is saved."""
    most = job.spec.restarts.most
    return terms.attempts if most is None else most + 1


def resting_text(fabric: Fabric, job: Job, terms: Restarts, now_ns: int) -> str:
    """Say why and how long a gang waits before it is tried again: `; 4 attempts in a row ...: tries
    again in 10 s, gives up after 10; its 64 GPUs wait ...`; "" where it does not wait."""
    left_ns = retry_ns(job, terms) - now_ns
    if left_ns <= 0:
        return ""
    wait = duration(-(-left_ns // SECOND_NS))
    most = _most_attempts(job, terms)
    gpus = job.part_gpus or job.allocation.bit_count() * fabric.gpus_per_host
    price = gpus * (retry_ns(job, terms) - (job.present.stop_ns or now_ns)) / (3_600 * SECOND_NS)
    held = f"its {gpus:,} GPUs wait meanwhile, {price:,.1f} GPU-hours"
    return f"; {failed_attempts_text(job)}: tries again in {wait}, gives up after {most}; {held}"


def failed_attempts_text(job: Job) -> str:
    return f"{job.failed_attempts} attempts in a row failed before anything was saved"
