"""Records of hosts as messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from google.protobuf.timestamp_pb2 import Timestamp

from placement.fabric import hostset
from scheduler.core import State
from scheduler.core.model.records.host import DAY_NS
from scheduler.core.rules.hosts.evaluation import (
    is_early,
    lemon_signals,
    seven_signals,
    signals_at_threshold,
)
from scheduler.v1 import host_pb2

MOST_COUNT = 2**63 - 1  # that a message holds


def record_to_proto(
    state: State, index: int, now_ns: int, timestamp: Callable[[int], Timestamp]
) -> host_pb2.HostRecord | None:
    """Convert the record of a host; None where nothing is known of its past."""
    record, policy = state.records.get(index), state.health
    if record is None:
        return None

    def moment(time_ns: int) -> Timestamp | None:
        return timestamp(time_ns) if time_ns else None

    signals, recent = seven_signals(record, policy.lemons, now_ns), Counter[str]()
    for mark in record.marks:
        if mark.time_ns > now_ns - DAY_NS:
            recent[mark.kind] = min(recent[mark.kind] + mark.amount, MOST_COUNT)
    return host_pb2.HostRecord(
        reports=record.reports,
        failures=record.failures,
        last_trouble_time=moment(record.trouble_ns),
        last_test_time=moment(record.tested_ns),
        service_time=moment(record.service_ns),
        early_life=is_early(policy, record, now_ns),
        lemon_signals=host_pb2.LemonSignals(
            excl_jobid_count=signals.excl_jobid_count,
            xid_cnt=signals.xid_cnt,
            tickets=signals.tickets,
            out_count=signals.out_count,
            multi_node_node_fails=signals.multi_node_node_fails,
            single_node_node_fails=signals.single_node_node_fails,
            single_node_node_failure_rate=signals.single_node_failure_percent / 100,
        ),
        over_threshold=signals_at_threshold(signals, policy.lemons),
        lemon=bool(lemon_signals(record, policy.lemons, now_ns)),
        recent=dict(sorted(recent.items())),
        measures=dict(record.measures),
        measure_time=moment(record.measured_ns),
        slow=hostset.has(state.slow, index),
        findings=record.findings,
    )
