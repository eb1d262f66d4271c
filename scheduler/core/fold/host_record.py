"""What an event adds to the record of the host that it names."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import assert_never

from muster.structs import replace
from scheduler.core.collections.persistent_map import with_entry
from scheduler.core.model.events import HostMoved, HostSignalled
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.model.records.host import DailyCount, HostMark, HostRecord, parse_measures
from scheduler.core.model.state import State
from scheduler.core.policies.health import HealthPolicy
from scheduler.core.policies.health_signals import ENDS, LEMON, MEASURED, PROBED, SIGNALS, XID
from scheduler.core.policies.xids import Blame

_SECOND_NS = 1_000_000_000
_NOT_ITS_FAULT = frozenset(chain.from_iterable(ENDS.values()))  # a switch is to blame, say


def is_trouble(policy: HealthPolicy, signal: str, xid: int = 0) -> bool:
    """Whether a report counts against its host."""
    if signal not in SIGNALS or not policy.signal(signal).is_trouble:
        return False
    return signal != XID or policy.blame(xid) is not Blame.APPLICATION


def is_blameless(signal: str) -> bool:
    """Return whether a host that fails by this signal fails for something outside it."""
    return signal in _NOT_ITS_FAULT


def reported(record: HostRecord, event: HostSignalled, policy: HealthPolicy) -> HostRecord:
    """Return the record with one report more."""
    now_ns, keep_ns = event.time_ns, 0
    if event.signal in SIGNALS:
        signal = policy.signal(event.signal)
        keep_ns = max((t.within_s for t in signal.thresholds), default=0) * _SECOND_NS
    has_trouble = is_trouble(policy, event.signal, event.xid)
    mark = HostMark(now_ns, event.signal, max(1, event.value), event.gpu)
    record = record.marked(mark, keep_ns if has_trouble else 0)
    if has_trouble:
        record = replace(record, trouble_ns=now_ns)
        record = (
            record.record_signal(f"{XID} {event.xid}", now_ns) if event.signal == XID else record
        )
    if event.signal == "excluded":
        record = record.record_signal(f"job {event.detail}", now_ns)
    if event.signal == MEASURED:
        record = replace(record, measures=parse_measures(event.detail), measured_ns=now_ns)
    if event.signal == PROBED:
        record = replace(record, findings=event.detail)
    if event.signal == LEMON:
        record = replace(record, lemon_ns=now_ns)
    if event.signal == "ticket":
        record = record.counted(DailyCount.TICKET, now_ns)
    if event.signal == "stress-test-passed":
        record = replace(record, tested_ns=now_ns)
    return record


def record_move(record: HostRecord, event: HostMoved, stopped_hosts: int) -> HostRecord:
    """Return the record after a move of its host. `stopped_hosts`: how many hosts the gang has that
    a failure stopped."""
    now_ns = event.time_ns
    match event.move:
        case HostMove.INSTALL:
            return HostRecord(since_ns=now_ns)
        case HostMove.PASS:
            return replace(record, service_ns=now_ns, tested_ns=now_ns, mended_ns=now_ns)
        case HostMove.FAIL | HostMove.RETIRE:
            if is_blameless(event.signal):
                return record
            is_failure = event.move is HostMove.FAIL
            failures = record.failures + is_failure
            record = replace(record, trouble_ns=now_ns, failures=failures)
            record = record.counted(DailyCount.OUT, now_ns)
            if stopped_hosts and is_failure:
                count = DailyCount.SINGLE if stopped_hosts == 1 else DailyCount.MULTI
                record = record.counted(count, now_ns)
            return record
        case HostMove.REPAIR | HostMove.UNCORDON | HostMove.CLEAR:
            return replace(record, mended_ns=now_ns)
        case (
            HostMove.CORDON
            | HostMove.DRAIN
            | HostMove.EMPTY
            | HostMove.SUSPECT
            | HostMove.TEST
            | HostMove.START_REPAIR
            | HostMove.PROMOTE
            | HostMove.DEMOTE
            | HostMove.RETURN
        ):
            return record
        case _:
            assert_never(event.move)


def with_record(state: State, index: int, record: HostRecord) -> State:
    return replace(state, records=with_entry(state.records, index, record))


def begun(
    records: Mapping[int, HostRecord], hosts: tuple[int, ...], time_ns: int
) -> Mapping[int, HostRecord]:
    """Return the records of `hosts` once a gang begins on them. Only gangs of a single host are
    counted."""
    if len(hosts) != 1:
        return records
    (index,) = hosts
    record = records.get(index) or HostRecord(since_ns=time_ns)
    return with_entry(records, index, record.counted(DailyCount.START, time_ns))
