"""What the policy does by itself, in time: suspects that were quiet are cleared, clean hosts
become golden, lemons leave.

The state says when somebody may be due; only then does a decision look at the hosts.
"""

from __future__ import annotations

from muster.structs import struct
from scheduler.core.model.events import Event, HostMoved, HostsJudged
from scheduler.core.model.lifecycle import IN_SERVICE, HostMove, HostState, Mover
from scheduler.core.model.plan import EvaluateHosts, Stale, StaleReason
from scheduler.core.model.records.host import HostRecord
from scheduler.core.model.state import Host, State
from scheduler.core.policies.health import HealthPolicy, LemonAction
from scheduler.core.rules.hosts.lemons import lemon_text

_SECOND_NS = 1_000_000_000
_BROKEN = (HostState.FAILED, HostState.IN_REPAIR)


@struct(frozen=True, slots=True)
class HostVerdict:
    """`move` is due at `at_ns`; None: nothing but its early life ends."""

    at_ns: int
    move: HostMove | None
    reason: str = ""


def verdict(
    policy: HealthPolicy, host: Host, record: HostRecord, now_ns: int
) -> HostVerdict | None:
    """What the policy does next with a host, as things are at `now_ns`."""
    if lemon := _as_lemon(policy, host, record, now_ns):
        return lemon
    verdicts: list[HostVerdict] = []
    if host.state is HostState.SUSPECT:
        quiet_ns = max(host.since_ns, record.trouble_ns) + policy.clear_s * _SECOND_NS
        verdicts.append(HostVerdict(quiet_ns, HostMove.CLEAR, "nothing more was reported"))
    is_tested = record.tested_ns > 0 and record.tested_ns >= record.trouble_ns
    if host.state is HostState.HEALTHY and is_tested:
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
    if action is LemonAction.SHOW or record.trouble_ns <= record.mended_ns:
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


def evaluation_due(state: State, now_ns: int) -> EvaluateHosts | None:
    """The action of looking at the hosts, if somebody may be due."""
    return EvaluateHosts(state.judge_ns) if 0 < state.judge_ns <= now_ns else None


def evaluation_events(
    state: State, action: EvaluateHosts, now_ns: int
) -> tuple[Event, ...] | Stale:
    """The events of looking at the hosts now. Cost: O(hosts with a record)."""
    if state.judge_ns != action.due_ns:
        return Stale(StaleReason.HEALTH, "the hosts have new reports meanwhile")
    events: list[Event] = []
    for index in sorted({*state.records, *state.hosts}):
        verdicts = verdict(state.health, state.host(index), state.record(index), now_ns)
        if verdicts is None or verdicts.move is None or verdicts.at_ns > now_ns:
            continue
        name = state.loaded_fabric.hosts[index]
        events.append(HostMoved(now_ns, name, verdicts.move, verdicts.reason, cause=Mover.POLICY))
        if verdicts.move is HostMove.RETIRE and not state.runs_gang(index):
            events.append(HostMoved(now_ns, name, HostMove.EMPTY, cause=Mover.POLICY))
    return (*events, HostsJudged(now_ns))
