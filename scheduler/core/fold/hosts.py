"""What the events of hosts make of the state and of the records of hosts, and what readers of the
log see of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import assert_never

from muster.structs import replace
from placement.fabric import hostset
from scheduler.core.collections.persistent_map import with_entry
from scheduler.core.fold.effects import (
    EventEffect,
    HostReport,
    HostTransition,
    JobChange,
    JobChangeKind,
    hosts_change,
    job_change,
)
from scheduler.core.fold.goodput import account
from scheduler.core.fold.index import check_move, with_host, with_job
from scheduler.core.model.events import (
    HealthLoaded,
    HostEvent,
    HostMoved,
    HostSignalled,
    HostsJudged,
)
from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.model.lifecycle import (
    HOST_MOVES,
    IN_SERVICE,
    RUNS,
    HostMove,
    HostState,
    JobMove,
    after,
)
from scheduler.core.model.records import failure_rates
from scheduler.core.model.records.host import (
    BLANK,
    DailyCount,
    HostMark,
    HostRecord,
    parse_measures,
)
from scheduler.core.model.state import Host, State
from scheduler.core.policies.health import HealthPolicy
from scheduler.core.policies.health_signals import ENDS, LEMON, MEASURED, PROBED, SIGNALS, XID
from scheduler.core.policies.xids import Blame
from scheduler.core.rules.crash_loop import record_strike, remove_strike, since_stop
from scheduler.core.rules.hosts.evaluation import is_early, slow_hosts, verdict
from scheduler.core.wording import listed

_REACHED = "agent-reached"  # the signal of a host that had only been cut off
_NOT_ITS_FAULT = frozenset(chain.from_iterable(ENDS.values()))  # a switch is to blame, say
_CORDONS = (HostMove.CORDON, HostMove.DRAIN)
_COUNTED = frozenset(HostMove) - {HostMove.CORDON, HostMove.DRAIN, HostMove.EMPTY}


def applied(state: State, event: HostEvent) -> State:
    """Return the state after an event of hosts. Raises: KeyError on a host or a move that cannot
    be."""
    match event:
        case HostMoved():
            return _move_host(state, event)
        case HostSignalled():
            return _record_signal(state, event)
        case HealthLoaded():
            return next_reviews(replace(state, health=event.policy), event.time_ns)
        case HostsJudged():
            return next_reviews(state, event.time_ns)
        case _:
            assert_never(event)


def effects(before: State, event: HostEvent, after: State) -> Iterator[EventEffect]:
    """Yield the effects of `event` on the host that it names, and on the job that held it."""
    match event:
        case HostMoved():
            index = after.loaded_fabric.index_by_name[event.host]
            yield from _stopped(before, event, after, index)
            detail = event.reason.removeprefix(event.signal).removeprefix(": ")
            yield HostTransition(event.host, event.move, event.cause, event.signal, detail)
            yield from hosts_change(before, event, after, 1 << index)
        case HostSignalled():
            yield HostReport(event.host, event.signal)
        case HealthLoaded() | HostsJudged():
            return
        case _:
            assert_never(event)


def _stopped(before: State, event: HostMoved, after: State, index: int) -> Iterator[JobChange]:
    """The job that lost a host by a failure, if any; those that shared it."""
    for job in before.holders(index) if event.move is HostMove.FAIL else ():
        is_block = index in job.hosts
        kind = JobChangeKind.INTERRUPTED if is_block else JobChangeKind.SPARE_LOST
        yield job_change(before, event, after, job.name, kind)


def _record_signal(state: State, event: HostSignalled) -> State:
    index = state.loaded_fabric.index_by_name.get(event.host)
    if index is None:
        return state  # of a domain: what it does to its hosts stands after it
    before = state.records.get(index) or HostRecord(since_ns=event.time_ns)
    record = reported(before, event, state.health)
    state = with_record(state, index, record)
    if event.signal == MEASURED and (slow := slow_hosts(state.records)) != state.slow:
        return next_reviews(replace(state, slow=slow), event.time_ns)  # others may be golden now
    return _due(state, index, event.time_ns)


def _move_host(state: State, event: HostMoved) -> State:
    index = state.loaded_fabric.index_by_name[event.host]
    before = state.host(index)
    now = after(HOST_MOVES, before.state, event.move)
    cordon = before.cordon if now not in IN_SERVICE else None
    is_said = event.move in _CORDONS
    cordon, cordon_ns = (event.reason, event.time_ns) if is_said else (cordon, before.cordon_ns)
    zone = state.loaded_fabric.zone_of(index)
    is_empty = event.move is HostMove.EMPTY  # what was said last still holds
    source, said_ns = (before, before.said_ns) if is_empty else (event, event.time_ns)
    host = Host(
        now,
        event.time_ns,
        source.reason,
        cordon,
        source.signal,
        said_ns,
        0 if cordon is None else cordon_ns,
    )
    seen = failure_rates.record_move(
        state.faults, before.is_down, host.is_down, event.time_ns, zone
    )
    is_over = before.state is HostState.SUSPECT and now is not HostState.SUSPECT
    if is_over and event.move is not HostMove.RETIRE:  # whether it would have failed is not known
        has_failed = event.move is HostMove.FAIL and not is_blameless(event.signal)
        suspect_ns = event.time_ns - before.since_ns
        seen = failure_rates.record_suspicion(
            seen, before.signal, suspect_ns, has_failed=has_failed
        )
    moved = with_host(replace(state, faults=seen), index, host)
    lost = moved.holders(index) if event.move is HostMove.FAIL else ()
    if now not in RUNS and hostset.has(moved.index.lent, index):
        moved = _unlent(moved, index, event.time_ns)
    if event.move in _COUNTED:
        stopped = max((len(job.hosts) for job in lost if index in job.hosts), default=0)
        old = state.records.get(index) or HostRecord(since_ns=event.time_ns)
        new = record_move(old, event, stopped)
        moved = with_record(moved, index, new) if new != old else moved
        if old.measures and not new.measures:
            moved = replace(moved, slow=slow_hosts(moved.records))
        moved = _due(moved, index, event.time_ns)
    for job in lost:
        moved = _struck(moved, job, index, event)
    return _absolved(moved, index, before.since_ns) if event.signal == _REACHED else moved


def _absolved(state: State, index: int, failed_ns: int) -> State:
    """Return the state in which no job avoids a host for having been cut off."""
    struck_jobs = [job for job in state.jobs.values() if job.strikes]
    for job in struck_jobs:
        if (freed := remove_strike(job, index, failed_ns)) is not job:
            state = with_job(state, job, freed, 0)
    return state


def _due(state: State, index: int, now_ns: int) -> State:
    """When the policy next looks, now that something is new of this host."""
    record, bit = state.records.get(index, BLANK), 1 << index
    judgement = verdict(state, index, now_ns)
    early = state.early & ~bit | bit * is_early(state.health, record, now_ns)
    if early != state.early:
        state = replace(state, early=early)
    if judgement is None or 0 < state.judge_ns <= judgement.at_ns:
        return state
    return replace(state, judge_ns=judgement.at_ns)


def next_reviews(state: State, now_ns: int) -> State:
    """Return the state with the time of the next look of the health policy at the hosts, and with
    the hosts that are in their early life. Cost: O(records)."""
    due_ns, early = [], 0
    for index in {*state.records, *state.hosts}:
        record = state.records.get(index, BLANK)
        early |= is_early(state.health, record, now_ns) << index
        judgement = verdict(state, index, now_ns)
        due_ns += [] if judgement is None else [judgement.at_ns]
    return replace(state, judge_ns=min(due_ns, default=0), early=early)


def _struck(state: State, job: Job, index: int, event: HostMoved) -> State:
    """A held host failed: a gang stops at once, a spare is simply lost."""
    if index in job.spares:
        left, spent = tuple(s for s in job.spares if s != index), account(state, job, event)
        hit = replace(job, gang=replace(job.present, spares=left), goodput=spent)
        return with_job(state, job, hit, event.time_ns)
    hit = record_strike(job, index, event.time_ns, state.tenants.preemption.costs)
    hit = replace(
        hit,
        state_ns=event.time_ns,
        reason=_failed_text(state, since_stop(hit)),
        goodput=account(state, job, event),
    )
    check_move(job, JobMove.INTERRUPT, hit)
    return with_job(state, job, hit, event.time_ns, is_last=True)


def _failed_text(state: State, indices: Sequence[int]) -> str:
    """`host a failed: gpu-lost`; of several all, with the reasons of those not yet repaired."""
    names = tuple(state.loaded_fabric.names(indices))
    hosts = [host for i in indices if (host := state.host(i)).state is HostState.FAILED]
    reasons = tuple(dict.fromkeys(host.reason for host in hosts))
    return f"host{'' if len(names) == 1 else 's'} {listed(names)} failed: {listed(reasons)}"


def _unlent(state: State, index: int, now_ns: int) -> State:
    """A spare that was lent failed: its holder has it back no more."""
    job = next(j for j in state.holding if index in j.present.lent)
    lent = tuple(h for h in job.present.lent if h != index)
    return with_job(state, job, replace(job, gang=replace(job.present, lent=lent)), now_ns)


def empty_hosts(state: State, left: Job, time_ns: int) -> State:
    """Mark draining and retiring hosts empty that `left` no longer holds."""
    left_empty = left.allocation & ~state.index.held & state.index.unhealthy
    for index in hostset.members(left_empty) if left_empty else ():
        host = state.hosts[index]
        if HostMove.EMPTY in HOST_MOVES[host.state]:
            empty = after(HOST_MOVES, host.state, HostMove.EMPTY)
            state = with_host(state, index, replace(host, state=empty, since_ns=time_ns))
    return state


# --- the records of hosts -------------------------------------------------------------------


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
        keep_ns = max((t.within_s for t in signal.thresholds), default=0) * SECOND_NS
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
