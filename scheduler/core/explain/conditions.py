"""Conditions of a what-if, as text, and the state in which they hold.

    cordon X, drain X, uncordon X, fail X, repair X     X: a host, or a domain of any tier
    cancel JOB, end JOB                                 a job is gone
    requeue JOB                                         its gang is stopped, and it waits again
    without-window W                                    a window is gone
    priority N, class C, limit 90m | 2h                 the job that is asked about differs

Hosts and jobs change by the same commands and events as in earnest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from placement import BadInput
from placement.fabric import hostset
from scheduler.core.admission.admit import Rejected, admit
from scheduler.core.capacity.window_hosts import domain
from scheduler.core.fold.apply import replay
from scheduler.core.model.commands import (
    CancelJob,
    Command,
    EndJob,
    MoveHost,
    RemoveWindow,
    ReportHost,
    RequeueJob,
    UpdateJob,
)
from scheduler.core.model.lifecycle import Hold, HostMove, JobState
from scheduler.core.model.state import State

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

_HOST_COMMANDS: dict[str, Callable[[str], Command]] = {
    "cordon": lambda host: MoveHost(host, HostMove.CORDON),
    "drain": lambda host: MoveHost(host, HostMove.DRAIN),
    "uncordon": lambda host: MoveHost(host, HostMove.UNCORDON),
    "fail": lambda host: ReportHost(host, "host-down"),
    "repair": lambda host: ReportHost(host, "repaired"),
}
JOB_CONDITIONS = ("cancel", "end", "requeue")  # what they name is a job, by its full name
_COMMANDS: dict[str, Callable[[str], Command]] = {
    "cancel": CancelJob,
    "end": lambda name: EndJob(name, JobState.COMPLETED),
    "requeue": RequeueJob,
    "without-window": RemoveWindow,
}


def supposed(state: State, name: str, conditions: Sequence[str], now_ns: int) -> State:
    """Return the state in which `conditions` hold, one after the other.

    `name`: the job that is asked about. Raises: BadInput, field `suppose[i]`, for a condition that
    cannot be read or cannot be.
    """
    for at, condition in enumerate(conditions):
        try:
            state = _supposed(state, name, condition, now_ns)
        except BadInput as error:
            raise BadInput(f"suppose[{at}]", f"{condition!r}: {error.message}") from None
    return state


def _supposed(state: State, name: str, condition: str, now_ns: int) -> State:
    verb, _, rest = condition.strip().partition(" ")
    value = rest.strip()
    if not value or verb not in {*_HOST_COMMANDS, *_COMMANDS, *_UPDATES}:
        known = ", ".join((*_HOST_COMMANDS, *_COMMANDS, *_UPDATES))
        raise BadInput("", f"is not a condition; conditions are {known}")
    if verb in _HOST_COMMANDS:
        return _with_hosts(state, _HOST_COMMANDS[verb], value, now_ns)
    command = _COMMANDS[verb](value) if verb in _COMMANDS else _UPDATES[verb](name, value)
    return _done(state, command, now_ns)


def _done(state: State, command: Command, now_ns: int) -> State:
    answer = admit(state, command, now_ns)
    if isinstance(answer, Rejected):
        raise BadInput("", answer.message)
    return replay(answer, state)


def _with_hosts(state: State, command: Callable[[str], Command], names: str, now_ns: int) -> State:
    """In a domain, the hosts change that can: a failed one is not uncordoned."""
    fabric = state.loaded_fabric
    if names in fabric.index_by_name:
        return _done(state, command(names), now_ns)
    hosts = domain(fabric, names)
    if not hosts:
        raise BadInput("", f"no host and no domain {names!r} in this fabric")
    for index in hostset.members(hosts):
        answer = admit(state, command(fabric.hosts[index]), now_ns)
        if not isinstance(answer, Rejected):
            state = replay(answer, state)
    return state


_CLASS = ("priority", "priority_class")  # either takes the place of the other


def _with_priority(name: str, value: str) -> UpdateJob:
    if not re.fullmatch(r"-?\d+", value):
        raise BadInput("", "is not a whole number")
    return UpdateJob(name, _CLASS, priority=int(value))


def _with_class(name: str, value: str) -> UpdateJob:
    return UpdateJob(name, _CLASS, priority_class=value)


def _with_limit(name: str, value: str) -> UpdateJob:
    match = re.fullmatch(r"(\d+)([smhd])", value)
    if match is None:
        raise BadInput("", "is not a time limit such as 90m, 2h or 1d")
    limit_s = int(match[1]) * _SECONDS[match[2]]
    return UpdateJob(name, ("time_limit_s",), time_limit_s=limit_s, by=Hold.OPERATOR)


_UPDATES: dict[str, Callable[[str, str], UpdateJob]] = {
    "priority": _with_priority,
    "class": _with_class,
    "limit": _with_limit,
}
