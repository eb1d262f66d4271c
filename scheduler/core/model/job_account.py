"""The account of a job: what its time went to, after an event, now, and for certain."""

from __future__ import annotations

from typing import assert_never

from muster.structs import replace
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.records.goodput import NOTHING, PARTS, Goodput, Parts
from scheduler.core.policies.costs import Costs, Ending, Observed

_HOLDING = (JobState.RUNNING, JobState.INTERRUPTED)


def counted(
    job: Job, time_ns: int, costs: Costs, ending: Ending | None, *, is_restored: bool = False
) -> Goodput:
    """Return the account of a job after an event; `job` is as it was before. `ending`: how the
    event ended its attempt, if it had one; None: it goes on. `is_restored`: what follows loads its
    state from the memory of peers. `costs`: the cluster's."""
    account = _until(job, time_ns)
    if ending is None or job.state not in _HOLDING:
        return account
    costs, observed = job.spec.checkpoint.costs(costs, is_restored=is_restored), job.observed
    if is_restored and observed is not None:
        renewed_ns = job.present.renewed_ns
        if renewed_ns is not None:
            renewed_ns = max(renewed_ns - job.present.start_ns, observed.saved_ns or 0)
        observed = replace(observed, saved_ns=renewed_ns)
    return _shared_out(account, job, ending, costs, observed)


def shown(job: Job, now_ns: int, costs: Costs) -> Goodput:
    """Return the account as it stands now. What a running attempt has done since it started counts
    as productive, for nothing of it is lost yet."""
    if job.state in _HOLDING:
        ending = Ending.COMPLETE if job.state is JobState.RUNNING else Ending.FAILED
        account = _until(job, max(now_ns, job.goodput.counted_ns))
        return _shared_out(account, job, ending, job.costs(costs), job.observed)
    if job.state is JobState.QUEUED:
        return _until(job, max(now_ns, job.goodput.counted_ns))
    return job.goodput


def count_certain_time(job: Job, now_ns: int, costs: Costs) -> Parts:
    """Host time of which it is certain now what it went to: no part of it ever falls. What
    a gang has done since its last checkpoint is not there yet."""
    if job.state not in _HOLDING:
        return shown(job, now_ns, costs).hosts
    account = _until(job, max(now_ns, job.goodput.counted_ns))
    shares = job.costs(costs).shares(job.attempt, account.ran_ns, Ending.FAILED, job.observed)
    sure = Parts(shares.productive_ns, restart=shares.restart_ns)
    return account.hosts + host_time(sure, job, len(job.hosts))


def _until(job: Job, now_ns: int) -> Goodput:
    """The time since the last event goes where the state of the job says."""
    account, hosts = job.goodput, len(job.hosts)
    elapsed_ns, ran_ns = now_ns - account.counted_ns, account.ran_ns
    if not elapsed_ns:
        return account
    time, spares = NOTHING, Parts(spare=elapsed_ns * len(job.spares)) if job.spares else NOTHING
    match job.state:
        case JobState.QUEUED:
            time, hosts = Parts(queueing=elapsed_ns), job.gang_hosts
        case JobState.RUNNING:
            ran_ns += elapsed_ns
        case JobState.INTERRUPTED:
            time = Parts(rescheduling=elapsed_ns)
        case JobState.COMPLETED | JobState.FAILED | JobState.CANCELLED:
            spares = NOTHING
        case _:
            assert_never(job.state)
    return _with(account, now_ns, ran_ns, time, host_time(time, job, hosts) + spares)


def _shared_out(
    account: Goodput, job: Job, ending: Ending, costs: Costs, observed: Observed | None
) -> Goodput:
    """The time that the attempt ran, by what it went to."""
    shares = costs.shares(job.attempt, account.ran_ns, ending, observed)
    ran = Parts(
        shares.productive_ns, shares.rework_ns, shares.detection_ns, restart=shares.restart_ns
    )
    return _with(account, account.counted_ns, 0, ran, host_time(ran, job, len(job.hosts)))


def _with(account: Goodput, counted_ns: int, ran_ns: int, time: Parts, hosts: Parts) -> Goodput:
    return Goodput(counted_ns, ran_ns, account.time + time, account.hosts + hosts)


def host_time(time: Parts, job: Job, hosts: int) -> Parts:
    """Return `time` of so many hosts of the job; of a job on a part of a host, that part of it."""
    if job.part_gpus and time is not NOTHING:
        shares = (getattr(time, name) for name in PARTS)
        return Parts(*[share * job.part_gpus // job.host_gpus for share in shares])
    return time.times(hosts)
