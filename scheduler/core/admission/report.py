"""What a report does: the facts that it makes true, checked against the state."""

from __future__ import annotations

from functools import reduce

from muster.structs import replace
from placement.fabric import hostset
from scheduler.core.capacity.window_hosts import domain
from scheduler.core.fold.apply import apply
from scheduler.core.fold.hosts import is_trouble, reported
from scheduler.core.model.commands import ReportHost
from scheduler.core.model.events import Event, HostMoved, HostSignalled
from scheduler.core.model.lifecycle import HOST_MOVES, HostMove, HostState, Mover
from scheduler.core.model.records.host import HostRecord, parse_measures
from scheduler.core.model.rejected import Code, Rejected, invalid, no_host
from scheduler.core.model.state import State
from scheduler.core.policies.health import BLAMES, HealthPolicy, LemonAction, PreventionAction
from scheduler.core.policies.health_signals import ENDS, LEMON, MEASURED, SIGNALS, XID, Effect
from scheduler.core.policies.xids import MOST, UNKNOWN, XIDS
from scheduler.core.rules.hosts.evaluation import lemon_text
from scheduler.core.rules.hosts.prevention import preventive_swap

_SECOND_NS = 1_000_000_000
_ORDER = (Effect.NOTE, Effect.SUSPECT, Effect.RETIRE, Effect.FAIL, Effect.RMA)
_MOVES: dict[Effect, HostMove] = {
    each: HostMove(each.value) for each in Effect if each not in (Effect.NOTE, Effect.RMA)
}
_OUT = (HostState.FAILED, HostState.IN_REPAIR)
# What these say is in the move alone; other reports are written down before what they do.
_BARE = (Effect.FAIL, Effect.REPAIR, Effect.INSTALL)


def report(state: State, command: ReportHost, now_ns: int) -> tuple[Event, ...] | Rejected:
    """Return the events of a health report; none where it was reported so already."""
    if command.signal not in SIGNALS:
        known = ", ".join(SIGNALS)
        return invalid("signal", f"unknown {command.signal!r}; known are {known}")
    if wrong := _misfit(state, command):
        return wrong
    if SIGNALS[command.signal].is_domain:
        return _of_domain(state, command, now_ns)
    index = state.loaded_fabric.index_by_name.get(command.host)
    if index is None and domain(state.loaded_fabric, command.host):
        return invalid("signal", f"{command.signal} is of a host; {command.host} is a domain")
    if index is None:
        return no_host(command.host)
    ended = ENDS.get(command.signal)
    if ended is not None and state.host(index).signal not in ended:
        return ()  # it is out for another reason, or not at all
    effect = _effect(state.health, state.record(index), command, now_ns)
    if effect is SIGNALS[command.signal].effect and effect in _BARE:
        events = _move_only(state, index, command, effect, now_ns)
    else:
        is_suspect, note = effect is Effect.SUSPECT, ""
        if is_suspect and (swap := preventive_swap(state, index, command.signal, now_ns)):
            is_wanted = state.health.prevention.action is PreventionAction.SWAP
            effect = Effect.RETIRE if is_wanted and swap.pays else effect
            note = f"; {swap.text}"
        consequence = _consequence(state, index, command, effect, now_ns, note)
        events = (_signalled(command, now_ns), *consequence)
    if isinstance(events, Rejected):
        return events
    return (*events, *_lemon_reported(state, index, command, events, now_ns))


def _lemon_reported(
    state: State, index: int, command: ReportHost, events: tuple[Event, ...], now_ns: int
) -> tuple[HostSignalled, ...]:
    """Say that a host has become a lemon by `events`, once until it comes back into service. What
    a burn-in has measured makes none of it."""
    policy, is_measure = state.health, command.signal == MEASURED
    if policy.lemons.action is not LemonAction.REPORT or not events or is_measure:
        return ()
    record = reduce(apply, events, state).record(index)
    if record.trouble_ns <= record.mended_ns or record.lemon_ns > record.mended_ns:
        return ()
    text = lemon_text(record, policy.lemons, now_ns)
    return (HostSignalled(now_ns, command.host, LEMON, text),) if text else ()


def _misfit(state: State, command: ReportHost) -> Rejected | None:
    if command.signal == XID and not 0 < command.xid <= MOST:
        return invalid("xid", f"must be the code, 1 to {MOST:,}, not {command.xid}")
    if command.signal != XID and command.xid:
        return invalid("xid", f"is of the signal {XID}, not of {command.signal}")
    if command.value < 0:
        return invalid("value", "must not be negative")
    if command.value and not SIGNALS[command.signal].has_value:
        counts = ", ".join(name for name, signal in SIGNALS.items() if signal.has_value)
        return invalid("value", f"is of signals that count errors: {counts}")
    gpus = state.loaded_fabric.gpus_per_host
    if command.gpu is not None and not 0 <= command.gpu < gpus:
        most = f"must be 0 to {gpus - 1}" if gpus > 1 else "must be 0, for a host has one GPU"
        return invalid("gpu", f"{most}, not {command.gpu}")
    if command.signal == MEASURED and not _are_measures(command.detail):
        return invalid("detail", "must be NAME=VALUE, separated by blanks: memory=9.81 network=1.2")
    if command.signal == "excluded" and not command.detail:
        return invalid("detail", "must name the job that excludes the host")
    return None


def _are_measures(text: str) -> bool:
    try:
        return bool(parse_measures(text))
    except ValueError:
        return False


def _effect(policy: HealthPolicy, record: HostRecord, command: ReportHost, now_ns: int) -> Effect:
    """The strongest of what the report does by itself and with those before it."""
    signal = policy.signal(command.signal)
    effect = BLAMES[policy.blame(command.xid)] if command.signal == XID else signal.effect
    if effect not in _ORDER or not is_trouble(policy, command.signal, command.xid):
        return effect
    after = reported(record, _signalled(command, now_ns), policy)
    met = [
        t.then
        for t in signal.thresholds
        if after.amount(
            command.signal, now_ns - t.within_s * _SECOND_NS, command.gpu if t.per_gpu else None
        )
        >= t.count
    ]
    return max((effect, *met), key=_ORDER.index)


def _move_only(
    state: State, index: int, command: ReportHost, effect: Effect, now_ns: int
) -> tuple[Event, ...] | Rejected:
    """The host fails, is repaired or is another one; no events: it was so already."""
    now, name, move = state.host(index).state, command.host, _MOVES[effect]
    if move is HostMove.REPAIR and now is HostState.RMA:
        hint = "it goes back to the vendor; report its replacement as installed"
        return Rejected(Code.PRECONDITION, f"host {name} is rma: {hint}")
    if move is HostMove.REPAIR and state.health.has_burn_in:
        move = HostMove.TEST if now in _OUT else move
    is_used = move not in HOST_MOVES[now] or bool(state.holders(index))
    if move is HostMove.INSTALL and now is not HostState.NEW and is_used:
        return Rejected(Code.PRECONDITION, f"host {name} is {now}: drain it first")
    if move not in HOST_MOVES[now]:
        return ()
    moved = _move_by_signal(command, name, move, now_ns, command.request_id)
    return (moved, *_cordoned_again(state, index, move, now_ns))


def _consequence(
    state: State, index: int, command: ReportHost, effect: Effect, now_ns: int, note: str
) -> tuple[Event, ...]:
    """Return the events that a report causes in the host's state; often none. `note`: ends the
    reason of its move."""
    host, name = state.host(index), command.host
    if effect is Effect.RMA:
        moves = [HostMove.FAIL] if HostMove.FAIL in HOST_MOVES[host.state] else []
        moves += [HostMove.RETURN] if host.state is not HostState.RMA else []
        return tuple(_move_by_signal(command, name, move, now_ns) for move in moves)
    move = _MOVES.get(effect)
    if move is None or move not in HOST_MOVES[host.state]:
        has_trouble = is_trouble(state.health, command.signal, command.xid)
        is_tarnished = has_trouble and host.state is HostState.GOLDEN
        return (_move_by_signal(command, name, HostMove.DEMOTE, now_ns),) if is_tarnished else ()
    if move is HostMove.START_REPAIR and state.runs_gang(index):
        return ()
    moved = _move_by_signal(command, name, move, now_ns)
    events = [replace(moved, reason=moved.reason + note)]
    if move is HostMove.RETIRE and not state.runs_gang(index):
        empty = HostMoved(now_ns, name, HostMove.EMPTY, _text(command), cause=Mover.POLICY)
        events.append(empty)
    return (*events, *_cordoned_again(state, index, move, now_ns))


def _cordoned_again(state: State, index: int, move: HostMove, now_ns: int) -> tuple[HostMoved, ...]:
    """An operator's cordon outlasts failures, repairs and tests."""
    host = state.host(index)
    if host.cordon is None or move not in (HostMove.REPAIR, HostMove.PASS):
        return ()
    name = state.loaded_fabric.hosts[index]
    return (HostMoved(now_ns, name, HostMove.CORDON, host.cordon),)


def _of_domain(state: State, command: ReportHost, now_ns: int) -> tuple[Event, ...] | Rejected:
    """One report for all hosts of a domain: one decision deals with them together.

    A switch that is up again brings back the hosts that are out for its sake alone.
    """
    fabric = state.loaded_fabric
    hosts = domain(fabric, command.host)
    if not hosts:
        message = f"no domain and no host {command.host!r} in this fabric"
        return Rejected(Code.NOT_FOUND, message, missing=("domain", command.host))
    if SIGNALS[command.signal].effect is Effect.NOTE:
        return (_signalled(command, now_ns),)
    ended = ENDS.get(command.signal)
    move = HostMove.FAIL if ended is None else HostMove.REPAIR
    events: list[Event] = []
    for index in hostset.members(hosts):
        host = state.host(index)
        if ended is not None and host.signal not in ended:
            continue
        if move in HOST_MOVES[host.state]:
            events.append(_move_by_signal(command, fabric.hosts[index], move, now_ns))
            events += _cordoned_again(state, index, move, now_ns)
    return (_signalled(command, now_ns), *events) if events else ()


def _signalled(command: ReportHost, now_ns: int) -> HostSignalled:
    return HostSignalled(
        now_ns,
        command.host,
        command.signal,
        command.detail,
        command.request_id,
        command.value,
        command.gpu,
        command.xid,
    )


def _move_by_signal(
    command: ReportHost, host: str, move: HostMove, now_ns: int, request_id: str = ""
) -> HostMoved:
    text = _text(command, command.host if command.host != host else "")
    return HostMoved(now_ns, host, move, text, request_id, Mover.SIGNAL, command.signal)


def _text(command: ReportHost, domain_name: str = "") -> str:
    """`xid: 79, GPU has fallen off the bus: GPU 3: words of the monitor`."""
    xid = XIDS.get(command.xid, UNKNOWN)
    parts = [domain_name] if domain_name else []
    parts += [f"{command.xid}, {xid.text}"] if command.xid else []
    parts += [f"GPU {command.gpu}"] if command.gpu is not None else []
    parts += [f"{command.value:,} errors"] if command.value else []
    parts += [command.detail] if command.detail else []
    return ": ".join((command.signal, *parts))
