"""What would become of a job if something were different: the same functions, on a copy.

The state is a value, so nothing that is tried here touches the real one. Conditions are texts:

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

from muster.structs import struct
from placement import BadInput
from placement.fabric import hostset
from scheduler.core.admission.admit import Rejected, admit
from scheduler.core.capacity.window_hosts import domain
from scheduler.core.commit.commit import Conflict, commit
from scheduler.core.decide import decide
from scheduler.core.explain.dryrun import MOST_DECISIONS
from scheduler.core.explain.explain import domains_of, explain
from scheduler.core.explain.reason import Reason
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
from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.model.lifecycle import Hold, HostMove, JobState
from scheduler.core.model.scheduling_options import SchedulingOptions
from scheduler.core.model.state import State
from scheduler.core.queue.verdict import WaitReason
from scheduler.core.wording import duration, hosts_text, listed

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


@struct(frozen=True, slots=True)
class WhatIf:
    """Effect of supposed conditions on a job. `job`: as it would be once everything that can start
    now has; `before`: why it waits as things are. `after`: why it would wait then.

    `starts`, `stops`: other jobs that would start now, or lose their hosts or the wait.
    """

    sentence: str
    before: Reason
    after: Reason
    job: Job
    starts: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()


def what_if(
    state: State, name: str, conditions: Sequence[str], now_ns: int, options: SchedulingOptions
) -> WhatIf:
    """Decide on a copy what would change for `name`. Cost: the decisions that follow.

    Raises: KeyError when no such job is at hand; BadInput, field `suppose[i]`, for a
    condition that cannot be read or cannot be.
    """
    before = explain(state, name, now_ns, options)
    changed = run_to_rest(supposed(state, name, conditions, now_ns), now_ns, options)
    job = changed.find(name)
    assert job is not None  # it is at least among the ended
    after = explain(changed, name, now_ns, options)
    holding, then = set(state.index.running), set(changed.index.running)
    starts = tuple(n for n in changed.index.running if n not in holding and n != name)
    stops = tuple(n for n in state.index.running if n not in then and n != name)
    is_running = name in state.index.running
    sentence = _sentence(changed, job, before, after, is_running, now_ns)
    return WhatIf(sentence, before, after, job, starts, stops)


def run_to_rest(state: State, now_ns: int, options: SchedulingOptions) -> State:
    """Return the state once nothing more can start at this moment."""
    for _ in range(MOST_DECISIONS):
        events = commit(state, decide(state, now_ns, options), now_ns)
        if isinstance(events, Conflict) or not events:
            break
        state = replay(events, state)
    return state


def _sentence(
    state: State, job: Job, before: Reason, after: Reason, was_running: bool, now_ns: int
) -> str:
    if job.state is JobState.RUNNING:
        return _running(state, job, before, was_running)
    if job.state is not JobState.QUEUED:
        return f"would be {job.state}"
    if was_running:
        return f"would lose its hosts and wait: {job.reason}"
    earlier = _compared(before.start_ns, after.start_ns, now_ns)
    return f"would still wait{earlier}: {after.sentence}"


def _running(state: State, job: Job, before: Reason, was_running: bool) -> str:
    where = listed(domains_of(state.loaded_fabric, job.allocation))
    held = hosts_text(len(job.hosts)) + (f" in {where}" if where else "")
    if was_running:
        return f"would run on {held}, attempt {job.attempt}"
    was_due = ", as it does anyway" if before.cause is WaitReason.DUE else ""
    return f"would start now on {held}{was_due}"


def _compared(before_ns: int | None, after_ns: int | None, now_ns: int) -> str:
    """How its earliest start would change."""
    if before_ns == after_ns:
        return ""
    if after_ns is None:
        return ", until a time that cannot be foreseen"
    wait = duration(max(0, after_ns - now_ns) // SECOND_NS)
    if before_ns is None:
        return f", for at most {wait}"
    change = duration(abs(after_ns - before_ns) // SECOND_NS)
    return f", {change} {'longer' if after_ns > before_ns else 'less'}"


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
