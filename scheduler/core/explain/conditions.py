"""Conditions of a what-if, as text, and the state in which they hold.

    cordon X, drain X, uncordon X, fail X, repair X     X: a host, or a domain of any tier
    cancel JOB, end JOB                                 a job is gone
    requeue JOB                                         its gang is stopped, and it waits again
    without-window W                                    a window is gone
    spares 2 | 5% | auto, priority N, limit 90m | 2h    the job that is asked about differs
    tenant T, class C

Hosts and jobs change by the same commands and events as in earnest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from muster.structs import replace
from placement import BadInput
from placement.fabric import hostset
from placement.workload.request import AUTO, SpareRule
from scheduler.core.admission.admit import Rejected, admit
from scheduler.core.capacity.window_hosts import domain
from scheduler.core.collections.name_list import NameList
from scheduler.core.collections.persistent_map import PersistentMap
from scheduler.core.fold.apply import replay
from scheduler.core.model.commands import (
    CancelJob,
    Command,
    EndJob,
    MoveHost,
    RemoveWindow,
    ReportHost,
    RequeueJob,
    SubmitJob,
)
from scheduler.core.model.events import JobEnded
from scheduler.core.model.job import Job, JobSpec
from scheduler.core.model.lifecycle import HostMove, JobState
from scheduler.core.model.state import State

_MOST_SPARES = 1_000_000
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

_HOST_COMMANDS: dict[str, Callable[[str], Command]] = {
    "cordon": lambda host: MoveHost(host, HostMove.CORDON),
    "drain": lambda host: MoveHost(host, HostMove.DRAIN),
    "uncordon": lambda host: MoveHost(host, HostMove.UNCORDON),
    "fail": lambda host: ReportHost(host, "host-down"),
    "repair": lambda host: ReportHost(host, "repaired"),
}
JOB_CONDITIONS = ("cancel", "end", "requeue")  # what they name is a job, by its full name
_JOB_COMMANDS: dict[str, Callable[[str], Command]] = {
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
    if not value or verb not in {*_HOST_COMMANDS, *_JOB_COMMANDS, *_SPEC_CHANGES}:
        known = ", ".join((*_HOST_COMMANDS, *_JOB_COMMANDS, *_SPEC_CHANGES))
        raise BadInput("", f"is not a condition; conditions are {known}")
    if verb in _HOST_COMMANDS:
        return _with_hosts(state, _HOST_COMMANDS[verb], value, now_ns)
    if verb in _JOB_COMMANDS:
        return _done(state, _JOB_COMMANDS[verb](value), now_ns)
    job = state.jobs.get(name)
    if job is None or job.state is not JobState.QUEUED:
        raise BadInput("", f"{name} is not queued; only a queued job can be changed")
    return _respecified(state, job, _SPEC_CHANGES[verb](job.spec, value), now_ns)


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


def _respecified(state: State, job: Job, spec: JobSpec, now_ns: int) -> State:
    """The job with another spec, in the place that this gives it by its own arrival. Held or not,
    and what it depends on, stay as they are, and so do the jobs that depend on it."""
    without = replay([JobEnded(now_ns, job.name, JobState.CANCELLED)], state)
    unbound = replace(spec, hold=False, begin_ns=0, dependencies=())
    trial = _done(without, SubmitJob(unbound, job.uid, user=job.user), now_ns)
    changed = replace(
        trial.jobs[job.name],
        spec=spec,
        submit_ns=job.submit_ns,
        state_ns=job.state_ns,
        sequence=job.sequence,
        attempt=job.attempt,
        hold=job.hold,
        dependencies=job.dependencies,
        awaits_turn=job.awaits_turn,
        eligible_ns=job.eligible_ns,
    )
    jobs = PersistentMap({**state.jobs, job.name: changed})
    queue = NameList(sorted(state.index.queue, key=lambda name: jobs[name].order))
    before = state.index
    index = replace(
        trial.index, queue=queue, deferred=before.deferred, dependants=before.dependants
    )
    return replace(trial, jobs=jobs, index=index, arrays=state.arrays)


def _with_spares(spec: JobSpec, value: str) -> JobSpec:
    if value == "auto":
        rule = AUTO
    elif match := re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", value):
        if not match[2] and "." in value:
            raise BadInput("", "is not a number of hosts, a share such as 5%, or auto")
        number = float(match[1])
        if number > _MOST_SPARES:
            raise BadInput("", f"is more than {_MOST_SPARES:,}")
        rule = SpareRule(share=number / 100) if match[2] else SpareRule(hosts=int(number))
    else:
        raise BadInput("", "is not a number of hosts, a share such as 5%, or auto")
    return replace(spec, request=replace(spec.request, spares=rule))


def _with_priority(spec: JobSpec, value: str) -> JobSpec:
    if not re.fullmatch(r"-?\d+", value):
        raise BadInput("", "is not a whole number")
    return replace(spec, priority=int(value), priority_class="")


def _with_limit(spec: JobSpec, value: str) -> JobSpec:
    match = re.fullmatch(r"(\d+)([smhd])", value)
    if match is None:
        raise BadInput("", "is not a time limit such as 90m, 2h or 1d")
    return replace(spec, time_limit_s=int(match[1]) * _SECONDS[match[2]])


def _with_tenant(spec: JobSpec, value: str) -> JobSpec:
    return replace(spec, tenant=value)


def _with_class(spec: JobSpec, value: str) -> JobSpec:
    return replace(spec, priority_class=value, priority=0)


_SPEC_CHANGES: dict[str, Callable[[JobSpec, str], JobSpec]] = {
    "spares": _with_spares,
    "priority": _with_priority,
    "limit": _with_limit,
    "tenant": _with_tenant,
    "class": _with_class,
}
