"""What the policy does by itself, in time: suspects that were quiet are cleared, clean hosts
become golden, lemons leave, and gangs leave hosts that retire when they have just saved.

The state says when somebody may be due; only then does a decision look at the hosts.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from muster.structs import struct
from placement import choose_swaps
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from scheduler.core.model.events import Event, HostMoved, HostsJudged
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import IN_SERVICE, HostMove, HostState, JobState, Mover
from scheduler.core.model.plan import EvaluateHosts, Stale, StaleReason
from scheduler.core.model.records.host import DAY_NS, DailyCount, HostRecord
from scheduler.core.model.scheduling_options import SchedulingOptions, time_limit_ns
from scheduler.core.model.state import Host, State
from scheduler.core.policies.costs import SECOND_NS
from scheduler.core.policies.health import HealthPolicy, LemonAction, LemonPolicy
from scheduler.core.policies.health_signals import STRAGGLER
from scheduler.core.rules.affinity_index import AffinityIndex
from scheduler.core.rules.calendar import Calendar, next_edge_ns

_SECOND_NS = 1_000_000_000
SLOW_SHARE = 0.9  # of the median of all measured hosts, below which a host is slow
_BROKEN = (HostState.FAILED, HostState.IN_REPAIR)


@struct(frozen=True, slots=True)
class HostVerdict:
    """A verdict on a host: the health policy makes `move` at `at_ns`, or, with None, the host's
    early life ends then."""

    at_ns: int
    move: HostMove | None
    reason: str = ""


def straggler_hosts(state: State, now_ns: int) -> HostSet:
    """Return the hosts that were reported as stragglers within the last day. Cost: O(records)."""
    return hostset.of(
        index
        for index, record in state.records.items()
        if any(m.kind == STRAGGLER and m.time_ns > now_ns - DAY_NS for m in record.marks)
    )


def verdict(state: State, index: int, now_ns: int) -> HostVerdict | None:
    """Return the policy's next move of a host at `now_ns`, None without one."""
    policy, host, record = state.health, state.host(index), state.record(index)
    if lemon := _as_lemon(policy, host, record, now_ns):
        return lemon
    verdicts: list[HostVerdict] = []
    if host.state is HostState.SUSPECT:
        quiet_ns = max(host.since_ns, record.trouble_ns) + policy.clear_s * _SECOND_NS
        verdicts.append(HostVerdict(quiet_ns, HostMove.CLEAR, "nothing more was reported"))
    is_tested = record.tested_ns > 0 and record.tested_ns >= record.trouble_ns
    is_proven = is_tested and not record.findings and not hostset.has(state.slow, index)
    if host.state is HostState.HEALTHY and is_proven:
        clean_ns = record.clean_ns + policy.golden_s * _SECOND_NS
        verdicts.append(HostVerdict(clean_ns, HostMove.PROMOTE, "passed its tests, clean record"))
    grown_ns = record.service_ns + policy.early_s * _SECOND_NS
    if record.service_ns and now_ns < grown_ns:
        verdicts.append(HostVerdict(grown_ns, None))
    return min(verdicts, key=lambda v: v.at_ns, default=None)


def _as_lemon(
    policy: HealthPolicy, host: Host, record: HostRecord, now_ns: int
) -> HostVerdict | None:
    """A lemon is dealt with once for each new trouble, not again after every repair."""
    action = policy.lemons.action
    acts = action in (LemonAction.RETIRE, LemonAction.RMA)
    if not acts or record.trouble_ns <= record.mended_ns:
        return None
    if host.state in IN_SERVICE:
        move = HostMove.RETIRE
    elif host.state in _BROKEN and action is LemonAction.RMA:
        move = HostMove.RETURN
    else:
        return None
    text = lemon_text(record, policy.lemons, now_ns)
    return HostVerdict(now_ns, move, text) if text else None


def is_early(policy: HealthPolicy, record: HostRecord, now_ns: int) -> bool:
    """Whether the host began to serve only lately."""
    return record.service_ns > 0 and now_ns < record.service_ns + policy.early_s * _SECOND_NS


def slow_hosts(records: Mapping[int, HostRecord]) -> HostSet:
    """Return the hosts that have less than SLOW_SHARE of the median of something that burn-ins
    measured on three hosts or more. Cost: O(records)."""
    measured: dict[str, list[float]] = {}
    for record in records.values():
        for name, value in record.measures:
            measured.setdefault(name, []).append(value)
    least = {
        name: SLOW_SHARE * statistics.median(values)
        for name, values in measured.items()
        if len(values) >= 3
    }
    return hostset.of(
        index
        for index, record in records.items()
        if any(value < least.get(name, 0) for name, value in record.measures)
    )


def evaluation_due(state: State, now_ns: int) -> EvaluateHosts | None:
    """Return the action of judging hosts where the verdict on one may change now, else None."""
    return EvaluateHosts(state.judge_ns) if 0 < state.judge_ns <= now_ns else None


def evaluation_events(
    state: State, action: EvaluateHosts, now_ns: int
) -> tuple[Event, ...] | Stale:
    """The events of looking at the hosts now. Cost: O(hosts with a record)."""
    if state.judge_ns != action.due_ns:
        return Stale(StaleReason.HEALTH, "the hosts have new reports meanwhile")
    events: list[Event] = []
    for index in sorted({*state.records, *state.hosts}):
        verdicts = verdict(state, index, now_ns)
        if verdicts is None or verdicts.move is None or verdicts.at_ns > now_ns:
            continue
        name = state.loaded_fabric.hosts[index]
        events.append(HostMoved(now_ns, name, verdicts.move, verdicts.reason, cause=Mover.POLICY))
        if verdicts.move is HostMove.RETIRE and not state.runs_gang(index):
            events.append(HostMoved(now_ns, name, HostMove.EMPTY, cause=Mover.POLICY))
    return (*events, HostsJudged(now_ns))


JUST_SAVED_NS = 60 * SECOND_NS  # a checkpoint so young need not be waited for again


def has_just_saved(state: State, job: Job, now_ns: int) -> bool:
    """Return whether leaving now loses next to nothing, by the one rule of costs. A gang that
    stands still loses nothing in any case."""
    if job.state is JobState.INTERRUPTED:
        return True
    costs = state.tenants.preemption.costs
    return job.next_save_ns(now_ns - JUST_SAVED_NS, costs) <= now_ns


def due_ns(state: State, now_ns: int, options: SchedulingOptions) -> tuple[int | None, ...]:
    """Return when something of hosts changes by time alone: windows, evaluations, gangs that
    leave."""
    return (next_edge_ns(state), state.judge_ns or None, leave_ns(state, now_ns, options))


def leave_ns(state: State, now_ns: int, options: SchedulingOptions) -> int | None:
    """Return when the next gang makes a checkpoint after which it could leave its retiring hosts;
    None where none could until something else changes."""
    if not state.index.unhealthy & state.index.held:
        return None
    retiring = hostset.of(i for i, h in state.hosts.items() if h.state is HostState.RETIRING)
    costs = state.tenants.preemption.costs
    if not retiring & state.index.held or not costs.checkpoint_s:
        return None
    calendar, affinity = Calendar(state), AffinityIndex(state)

    def could(job: Job) -> bool:
        barred = calendar.closed(job, now_ns, now_ns + time_limit_ns(job, options))
        barred |= affinity.closed(job.name, job.spec.affinity)
        return can_leave(state, job, retiring, barred)

    gangs = (job for job in state.in_state(JobState.RUNNING) if job.allocation & retiring)
    return min((job.next_save_ns(now_ns, costs) for job in gangs if could(job)), default=None)


def can_leave(state: State, job: Job, hosts: HostSet, barred: HostSet) -> bool:
    """Return whether the gang has blocks on `hosts`, and its own idle spares or free hosts can take
    all of them. `barred`: hosts that it may not use."""
    blocks = [b for b, host in enumerate(job.hosts) if hostset.has(hosts, host)]
    own = hostset.of(job.spares) & ~(state.index.out_of_service | barred)
    free = state.free & ~barred
    swaps = choose_swaps(state.loaded_fabric, job.request, job.hosts, blocks, own, free)
    return bool(blocks) and swaps is not None


@struct(frozen=True, slots=True)
class LemonSignals:
    """The signals of one host; the rate is of single-host starts, in percent.

    Source: Kokolis et al., Revisiting reliability in large-scale machine learning research
    clusters (HPCA 2025), section V: the signals, over 28 days. Failures of jobs counts those
    that the host's failure stopped; what fails by itself is the job's.
    """

    excl_jobid_count: int
    xid_cnt: int
    tickets: int
    out_count: int
    multi_node_node_fails: int
    single_node_node_fails: int
    single_node_failure_percent: int


def seven_signals(record: HostRecord, policy: LemonPolicy, now_ns: int) -> LemonSignals:
    """The seven signals of a host over the days before `now_ns`."""
    from_ns = now_ns - policy.days * DAY_NS

    def count(tally: DailyCount) -> int:
        return record.of_days(tally, from_ns)

    single, starts = count(DailyCount.SINGLE), count(DailyCount.START)
    return LemonSignals(
        record.distinct("job ", from_ns),
        record.distinct("xid ", from_ns),
        count(DailyCount.TICKET),
        count(DailyCount.OUT),
        count(DailyCount.MULTI),
        single,
        min(100, 100 * single // max(1, starts)) if single >= 2 else 0,
    )


def signals_at_threshold(signals: LemonSignals, policy: LemonPolicy) -> tuple[str, ...]:
    """Names of the signals that reach their thresholds; a threshold of 0 is off."""
    return tuple(
        name
        for name in LemonSignals.__dataclass_fields__
        if 0 < getattr(policy, name) <= getattr(signals, name)
    )


def lemon_signals(record: HostRecord, policy: LemonPolicy, now_ns: int) -> tuple[str, ...]:
    """The signals for which the host is a lemon; empty when it is none."""
    names = signals_at_threshold(seven_signals(record, policy, now_ns), policy)
    return names if len(names) >= policy.at_least else ()


def lemon_text(record: HostRecord, policy: LemonPolicy, now_ns: int) -> str:
    """Say why a host is a lemon: `lemon: out_count 4, xid_cnt 3 in 28 days`; "" where it is
    none."""
    names, signals = lemon_signals(record, policy, now_ns), seven_signals(record, policy, now_ns)
    if not names:
        return ""
    counts = ", ".join(f"{name} {getattr(signals, name)}" for name in names)
    return f"lemon: {counts} in {policy.days} days"
