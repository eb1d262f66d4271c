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
from scheduler.core.model.records.failure_rates import DAY_NS, SuspicionCount, sizing
from scheduler.core.model.state import State
from scheduler.core.policies.health import PreventionAction, PreventionPolicy
from scheduler.core.policies.spares import DAY_S
from scheduler.core.rules.affinity_index import AffinityIndex
from scheduler.core.rules.calendar import Calendar
from scheduler.core.rules.hosts.evaluation import can_leave, is_early

_HOUR_S = 3600


@struct(frozen=True, slots=True)
class PreventiveSwap:
    """A swap of one host of a gang at its next checkpoint. `risk`: failures of the host until
    anything stops the gang, less those of a host in its place. `loss_s`: GPU-seconds that staying
    is expected to cost; `price_s`: those that the swap costs."""

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
            f"stops its gang next with a probability {100 * self.risk:.2g} % above that of another"
            f" host: staying is expected to cost {loss_h:,.1f} GPU-hours, a swap {price_h:,.1f}"
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
    days_left = math.inf if job.limit_ns is None else max(0, end_ns - now_ns) / DAY_NS
    is_new = is_early(state.health, state.record(index), now_ns)
    risk = failure_risk(
        state.health.prevention,
        next((count for count in state.faults.suspicions if count.signal == signal), None),
        signal,
        NextStop(len(job.hosts) - 1, rates.failures_per_host_day, days_left),
        is_early=is_new,
    )
    return priced_swap(state, job, risk, rates.repair_days * DAY_S)


def priced_swap(state: State, job: Job, risk: float, repair_s: float) -> PreventiveSwap:
    """Price the swap of a host of `job` that has this risk, and is out for `repair_s`."""
    costs = job.costs(state.tenants.preemption.costs)
    failure_s = costs.checkpoint_s / 2 + costs.restart_s + costs.detect_s
    gpus = gpus_wanted(state.loaded_fabric, job.request.where)
    held = len(job.hosts) * gpus
    price_s = costs.restart_s * held + (1 - risk) * repair_s * gpus
    return PreventiveSwap(risk, risk * failure_s * held, price_s)


@struct(frozen=True, slots=True)
class NextStop:
    """When a gang stops next. `others`: its hosts beside the suspect one, each of which fails
    `per_day` times a day. `days_left`: until the gang ends."""

    others: int
    per_day: float
    days_left: float

    def risk(self, share: float, ratio: float) -> float:
        """Return failures of a host until then, less those of another host in its place, if with
        the probability `share` it fails `ratio` times as often as others, and else not at all."""
        total = self.others + ratio
        reached = -math.expm1(-self.per_day * total * self.days_left)
        return max(0.0, reached * (share * ratio - 1) / total)


def failure_risk(
    policy: PreventionPolicy,
    seen: SuspicionCount | None,
    signal: str,
    stop: NextStop,
    *,
    is_early: bool = False,
) -> float:
    """Return the risk of a host that is suspect for `signal`: by what the policy states, which
    counts as so many times, and by what became of the times that the log has `seen`."""
    if not stop.per_day:
        return 0.0
    stated = stop.risk(1, policy.ratio(signal) * (policy.early_ratio if is_early else 1))
    if seen is None:
        return stated
    logged = 0.0
    if seen.failures:
        days = max(1, seen.failed_ns) / DAY_NS / seen.failures
        logged = stop.risk(seen.failures / seen.ended, 1 / days / stop.per_day)
    weight = policy.evidence + seen.ended
    return (policy.evidence * stated + seen.ended * logged) / weight
