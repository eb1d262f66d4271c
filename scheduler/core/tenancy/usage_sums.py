"""What jobs waited for, held and achieved, summed up by tenant, user and day: accounting.

A job is counted whole, on the day (UTC) on which it ended: its account says how much
it held (model/records/goodput.py), not when. A live job is counted until now, on the present day.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import assert_never

from placement.fabric.constraints import gpus_wanted
from placement.fabric.tree import Fabric
from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.model.job_account import shown
from scheduler.core.model.lifecycle import LIVE, JobState
from scheduler.core.model.records.goodput import NOTHING, Goodput
from scheduler.core.policies.costs import Costs


class UsageKey(StrEnum):
    """Key to sum usage by."""

    TENANT = "tenant"
    USER = "user"
    DAY = "day"  # 2026-11-26


class UsageSum:
    """Sums of the time of some jobs. `jobs`: how many, by state. `restarts`: starts after the first
    of each. `time`: their time, in ns. `gpus`: the same of their GPUs, in GPU-ns."""

    def __init__(self) -> None:
        self.jobs: Counter[JobState] = Counter()
        self.restarts = 0
        self.time, self.gpus = NOTHING, NOTHING

    def add(self, job: Job, account: Goodput, gpus_per_host: int) -> None:
        self.jobs[job.state] += 1
        self.restarts += max(0, job.attempt - 1)
        self.time += account.time
        self.gpus += account.hosts.times(gpus_per_host)


class UsageSums:
    """Rows by the values of `keys`. `fabric`, `now_ns`, `costs`: of the present state."""

    def __init__(self, keys: Sequence[UsageKey], fabric: Fabric, now_ns: int, costs: Costs) -> None:
        self.rows: dict[tuple[str, ...], UsageSum] = {}
        self.total = UsageSum()
        self._keys, self._fabric = tuple(keys), fabric
        self._now_ns, self._costs = now_ns, costs

    def add(self, job: Job) -> None:
        key = tuple(self._value(job, key) for key in self._keys)
        account = shown(job, self._now_ns, self._costs)
        gpus = gpus_wanted(self._fabric, job.request.where)
        for row in (self.total, self.rows.setdefault(key, UsageSum())):
            row.add(job, account, gpus)

    def _value(self, job: Job, key: UsageKey) -> str:
        match key:
            case UsageKey.TENANT:
                return job.tenant
            case UsageKey.USER:
                return job.user
            case UsageKey.DAY:
                end_ns = self._now_ns if job.state in LIVE else job.state_ns
                return datetime.fromtimestamp(end_ns // SECOND_NS, UTC).strftime("%Y-%m-%d")
            case _:
                assert_never(key)
