"""What the time of a job went to: a fold over events, kept with each job.

`apply` calls `counted` for every event that changes a job, so the service, its snapshots
and replays have one and the same account. All of a job's time is in one part:

    queueing       it waits for hosts, at first or again
    restart        a later attempt begins: processes, communicators, loading, warm-up
    productive     steps that no later attempt repeats
    rework         steps that were lost, for they came after the last checkpoint
    detection      a host has failed and nobody knows
    rescheduling   that is known, and the gang stands still until it is decided what to do
    spare          of host time only: hosts held beside the gang

When checkpoints are written and for how long a gang starts is not reported: costs.py
has the rule. Integers throughout, so that parts add up exactly.
"""

from __future__ import annotations

from dataclasses import replace
from operator import add, attrgetter, sub
from typing import TYPE_CHECKING, assert_never

from msgspec import Struct

from scheduler.core.model.lifecycle import JobState
from scheduler.core.policies.costs import Costs, Ending, Observed

if TYPE_CHECKING:
    from scheduler.core.model.job import Job


class Parts(Struct, frozen=True):
    """Time by what it went to, of a job (ns) or of its hosts (host-ns)."""

    productive: int = 0
    rework: int = 0
    detection: int = 0
    rescheduling: int = 0
    restart: int = 0
    queueing: int = 0
    spare: int = 0

    def __add__(self, other: Parts) -> Parts:
        if other is NOTHING:
            return self
        if self is NOTHING:
            return other
        return Parts(*map(add, _values(self), _values(other)))

    def __sub__(self, other: Parts) -> Parts:
        return Parts(*map(sub, _values(self), _values(other)))

    def times(self, hosts: int) -> Parts:
        if self is NOTHING:
            return self
        return Parts(*[value * hosts for value in _values(self)])

    def of_job(self, job: Job, hosts: int) -> Parts:
        """The same of so many hosts of `job`; of one on a part of a host, that part of it."""
        if job.part_gpus and self is not NOTHING:
            return Parts(*[value * job.part_gpus // job.host_gpus for value in _values(self)])
        return self.times(hosts)

    @property
    def total(self) -> int:
        return self.held + self.queueing

    @property
    def held(self) -> int:
        """While hosts were held, spares and stopped gangs included."""
        return self.running + self.rescheduling + self.spare

    @property
    def running(self) -> int:
        """While ranks ran."""
        return self.productive + self.rework + self.detection + self.restart


PARTS = Parts.__struct_fields__
_values = attrgetter(*PARTS)
NOTHING = Parts()
_HOLDING = (JobState.RUNNING, JobState.INTERRUPTED)


class Goodput(Struct, frozen=True):
    """A job's account up to `counted_ns`. `ran_ns`: of the present attempt, which is shared
    out when it ends: only then is it known what of it was lost."""

    counted_ns: int = 0
    ran_ns: int = 0
    time: Parts = NOTHING
    hosts: Parts = NOTHING

    @property
    def ettr(self) -> float:
        """Effective training time ratio: productive time / (held + queued time). Source:
        Kokolis et al., HPCA 2025. 0 before any time has passed."""
        return self.time.productive / self.time.total if self.time.total else 0.0

    @property
    def share(self) -> float:
        """Productive host time / held host time; 0 before hosts were held."""
        return self.hosts.productive / self.hosts.held if self.hosts.held else 0.0


UNCOUNTED = Goodput()


def counted(
    job: Job, time_ns: int, costs: Costs, ending: Ending | None, *, is_restored: bool = False
) -> Goodput:
    """The account after an event, of `job` as it was before. `ending`: how the event ended its
    attempt, if it had one; None: it goes on. `is_restored`: what follows loads its state from the
    memory of peers. `costs`: the cluster's."""
    account = _until(job, time_ns)
    if ending is None or job.state not in _HOLDING:
        return account
    costs, observed = job.spec.checkpoint.costs(costs, is_restored=is_restored), job.observed
    if is_restored and observed is not None:
        observed = replace(observed, saved_ns=None)
    return _shared_out(account, job, ending, costs, observed)


def shown(job: Job, now_ns: int, costs: Costs) -> Goodput:
    """The account now. What a running attempt has done since it started counts as
    productive, for nothing of it is lost yet."""
    if job.state in _HOLDING:
        ending = Ending.COMPLETE if job.state is JobState.RUNNING else Ending.FAILED
        account = _until(job, max(now_ns, job.goodput.counted_ns))
        return _shared_out(account, job, ending, job.costs(costs), job.observed)
    if job.state is JobState.QUEUED:
        return _until(job, max(now_ns, job.goodput.counted_ns))
    return job.goodput


def kept(job: Job, now_ns: int, costs: Costs) -> Parts:
    """Host time of which it is certain now what it went to: no part of it ever falls. What
    a gang has done since its last checkpoint is not there yet."""
    if job.state not in _HOLDING:
        return shown(job, now_ns, costs).hosts
    account = _until(job, max(now_ns, job.goodput.counted_ns))
    shares = job.costs(costs).shares(job.attempt, account.ran_ns, Ending.FAILED, job.observed)
    sure = Parts(shares.productive_ns, restart=shares.restart_ns)
    return account.hosts + sure.of_job(job, len(job.hosts))


def _until(job: Job, now_ns: int) -> Goodput:
    """The time since the last event goes where the state of the job says."""
    account, hosts = job.goodput, len(job.hosts)
    elapsed_ns, ran_ns = now_ns - account.counted_ns, account.ran_ns
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
    return _with(account, now_ns, ran_ns, time, time.of_job(job, hosts) + spares)


def _shared_out(
    account: Goodput, job: Job, ending: Ending, costs: Costs, observed: Observed | None
) -> Goodput:
    """The time that the attempt ran, by what it went to."""
    shares = costs.shares(job.attempt, account.ran_ns, ending, observed)
    ran = Parts(
        shares.productive_ns, shares.rework_ns, shares.detection_ns, restart=shares.restart_ns
    )
    return _with(account, account.counted_ns, 0, ran, ran.of_job(job, len(job.hosts)))


def _with(account: Goodput, counted_ns: int, ran_ns: int, time: Parts, hosts: Parts) -> Goodput:
    return Goodput(counted_ns, ran_ns, account.time + time, account.hosts + hosts)
