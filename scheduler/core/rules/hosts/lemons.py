"""Hosts that fail again and again: the seven signals of a lemon.

Source: Kokolis et al., Revisiting reliability in large-scale machine learning research
clusters (HPCA 2025), section V: the signals, over 28 days. Failures of jobs counts those
that the host's failure stopped; what fails by itself is the job's.
"""

from __future__ import annotations

from muster.structs import struct
from scheduler.core.model.records.host import DAY_NS, DailyCount, HostRecord
from scheduler.core.policies.health import LemonPolicy


@struct(frozen=True, slots=True)
class LemonSignals:
    """The signals of one host; the rate is of single-host starts, in percent."""

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


def passed(signals: LemonSignals, policy: LemonPolicy) -> tuple[str, ...]:
    """Names of the signals that reach their thresholds; a threshold of 0 is off."""
    return tuple(
        name
        for name in LemonSignals.__dataclass_fields__
        if 0 < getattr(policy, name) <= getattr(signals, name)
    )


def lemon_signals(record: HostRecord, policy: LemonPolicy, now_ns: int) -> tuple[str, ...]:
    """The signals for which the host is a lemon; empty when it is none."""
    names = passed(seven_signals(record, policy, now_ns), policy)
    return names if len(names) >= policy.at_least else ()


def lemon_text(record: HostRecord, policy: LemonPolicy, now_ns: int) -> str:
    """`lemon: out_count 4, xid_cnt 3 in 28 days`, or nothing."""
    names, signals = lemon_signals(record, policy, now_ns), seven_signals(record, policy, now_ns)
    if not names:
        return ""
    counts = ", ".join(f"{name} {getattr(signals, name)}" for name in names)
    return f"lemon: {counts} in {policy.days} days"
