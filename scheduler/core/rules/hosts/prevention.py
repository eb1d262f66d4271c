"""Whether a gang should leave a host that is likelier to fail than others before it fails.

The next failure stops the gang anyway, whichever of its hosts it is, and then it leaves its suspect
hosts at no cost. So what counts is whether the suspect host is that next one. In a gang of n hosts
of which one fails r times as often as each other, the next failure comes 1 / (n - 1 + r) mean times
between failures of a host from now; until then the suspect host fails r / (n - 1 + r) times on
average, and one in its place would fail 1 / (n - 1 + r) times. A failure costs the gang half of a
checkpoint interval, a restart and the time until it is noticed. A swap at a checkpoint costs it a
restart, and the fleet a host for as long as a repair takes. Without the repair a swap pays where
(r - 1) / (n - 1 + r) is more than the cost of a swap by that of a failure: of large gangs hardly
ever, for another host stops them first.
"""

from __future__ import annotations

import math

from muster.structs import struct
from placement.fabric.constraints import gpus_wanted
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.records.failure_rates import DAY_NS, FailureRates, sizing
from scheduler.core.model.records.host import HostRecord
from scheduler.core.model.state import State
from scheduler.core.policies.health import HealthPolicy, PreventionAction, PreventionPolicy
from scheduler.core.policies.spares import DAY_S
from scheduler.core.rules.affinity_index import AffinityIndex
from scheduler.core.rules.calendar import Calendar
from scheduler.core.rules.hosts.evaluation import can_leave, is_early

_HOUR_S = 3600


@struct(frozen=True, slots=True)
class PreventiveSwap:
    """A swap of one host of a gang at its next checkpoint. `ratio`: how many times as often as
    others the host fails. `risk`: failures of it until anything stops the gang, less those of a
    host in its place. `loss_s`: GPU-seconds that staying is expected to cost; `price_s`: those that
    the swap costs."""

    ratio: float
    risk: float
    loss_s: float
    price_s: float

    @property
    def pays(self) -> bool:
        return self.loss_s > self.price_s

    @property
    def text(self) -> str:
        """Say what staying and the swap cost, for operators."""
        loss_h, price_h = self.loss_s / _HOUR_S, self.price_s / _HOUR_S
        return (
            f"fails {self.ratio:,.1f} times as often as others: staying is expected to cost"
            f" {loss_h:,.1f} GPU-hours, a swap {price_h:,.1f}"
        )


def preventive_swap(state: State, index: int, signal: str, now_ns: int) -> PreventiveSwap | None:
    """Price the swap of a host that is suspect for `signal`; None where the policy asks for none,
    no gang runs on the host, or no free host could take its place. Cost: O(hosts of the gang)."""
    if state.health.prevention.action is PreventionAction.OFF:
        return None
    gangs = (job for job in state.holders(index) if index in job.hosts and not job.part_gpus)
    job = next((job for job in gangs if job.state is JobState.RUNNING), None)
    if job is None:
        return None
    end_ns = job.release.end_ns if job.limit_ns is not None else now_ns + DAY_NS
    barred = Calendar(state).closed(job, now_ns, max(end_ns, now_ns))
    barred |= AffinityIndex(state).closed(job.name, job.spec.affinity)
    if not can_leave(state, job, 1 << index, barred):
        return None
    rates = sizing(state.tenants.spares, state.faults, state.loaded_fabric.host_count, now_ns)
    per_day, policy = rates.failures_per_host_day, state.health
    ratio = signal_ratio(policy.prevention, state.faults, signal, per_day)
    ratio *= early_ratio(policy, state.record(index), now_ns)
    days_left = math.inf if job.limit_ns is None else max(0, end_ns - now_ns) / DAY_NS
    repair_s = rates.repair_days * DAY_S
    return priced_swap(state, job, ratio, per_day, days_left, repair_s)


def priced_swap(
    state: State, job: Job, ratio: float, per_day: float, days_left: float, repair_s: float
) -> PreventiveSwap:
    """Price the swap of a host of `job` that fails `ratio` times as often as others, which fail
    `per_day` times a day. `days_left`: until the gang ends; `repair_s`: for which the host is
    out."""
    others = len(job.hosts) - 1
    reached = -math.expm1(-per_day * (others + ratio) * days_left)
    risk = reached * (ratio - 1) / (others + ratio)
    costs = job.costs(state.tenants.preemption.costs)
    failure_s = costs.checkpoint_s / 2 + costs.restart_s + costs.detect_s
    gpus = gpus_wanted(state.loaded_fabric, job.request.where)
    held = len(job.hosts) * gpus
    price_s = costs.restart_s * held + (1 - risk) * repair_s * gpus
    return PreventiveSwap(ratio, risk, risk * failure_s * held, price_s)


def signal_ratio(
    policy: PreventionPolicy, faults: FailureRates, signal: str, per_day: float
) -> float:
    """Return how many times as often as others, which fail `per_day` times a day, hosts fail that
    are suspect for `signal`: what the policy states, as if seen for its host-days of evidence, and
    what the log has beside it. At least 1."""
    if not per_day:
        return 1.0
    seen = next((count for count in faults.suspicions if count.signal == signal), None)
    failures, days = (seen.failures, seen.host_ns / DAY_NS) if seen else (0, 0.0)
    evidence = policy.evidence_host_days
    if not evidence + days:
        return policy.ratio(signal)
    stated = policy.ratio(signal) * per_day * evidence
    return max(1.0, (stated + failures) / (evidence + days) / per_day)


def early_ratio(policy: HealthPolicy, record: HostRecord, now_ns: int) -> float:
    """Return how many times as often as later a host fails at its present age."""
    return policy.prevention.early_ratio if is_early(policy, record, now_ns) else 1.0
