"""Check a command against the state: the facts it makes true, or why not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from placement.errors import BadInput
from placement.place import impossible
from placement.traffic import axis_traffic
from scheduler.core import cells, neighbours
from scheduler.core.commands import (
    CancelJob,
    Command,
    EndJob,
    LoadTenants,
    MoveHost,
    ReportHost,
    SubmitJob,
)
from scheduler.core.events import (
    Event,
    HostMoved,
    HostSignalled,
    JobEnded,
    JobSubmitted,
    TenantsLoaded,
)
from scheduler.core.job import Job, JobSpec
from scheduler.core.ledger import level_of, tenant_of
from scheduler.core.lifecycle import (
    HOST_MOVES,
    JOB_MOVES,
    LIVE,
    SIGNALS,
    Effect,
    HostMove,
    HostState,
    JobMove,
    JobState,
)
from scheduler.core.quota import Book, nodes
from scheduler.core.state import State
from scheduler.core.tenants import Tenants

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")


def is_name(text: str) -> bool:
    """1 to 128 letters, digits, '-', '_' or '.', plain at both ends."""
    return _NAME.fullmatch(text) is not None


class Code(StrEnum):
    """Why a command was refused, for a caller who switches on it."""

    INVALID = "invalid"
    NOT_FOUND = "not_found"
    ALREADY_EXISTS = "already_exists"
    PRECONDITION = "precondition"
    INFEASIBLE = "infeasible"
    EXHAUSTED = "exhausted"


@dataclass(frozen=True, slots=True)
class Violation:
    """`field` is a dotted path into the command."""

    field: str
    message: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """A command that changes nothing. `missing`: kind and name of what was not found."""

    code: Code
    message: str
    violations: tuple[Violation, ...] = ()
    missing: tuple[str, str] | None = None


def admit(state: State, command: Command, now_ns: int) -> tuple[Event, ...] | Rejected:
    """The events that `command` causes. No events: it was already true."""
    match command:
        case SubmitJob():
            return _submit(state, command, now_ns)
        case CancelJob():
            return _cancel(state, command, now_ns)
        case EndJob():
            return _end(state, command, now_ns)
        case MoveHost():
            return _move_host(state, command, now_ns)
        case ReportHost():
            return _report(state, command, now_ns)
        case LoadTenants():
            return _load_tenants(state, command.tenants, now_ns)
    assert_never(command)


def _submit(state: State, command: SubmitJob, now_ns: int) -> tuple[Event, ...] | Rejected:
    spec = command.spec
    if command.request_id and (earlier := state.by_request(command.request_id)):
        return () if earlier.spec == spec else _reused(command.request_id, earlier)
    if not is_name(spec.name):
        return _invalid(
            "name", "must be 1 to 128 letters, digits, '-', '_' or '.', and start and end plain"
        )
    if spec.time_limit_s is not None and spec.time_limit_s < 1:
        return _invalid("time_limit_s", "must be at least 1")
    if spec.name in state.jobs:
        return Rejected(
            Code.ALREADY_EXISTS, f"a job {spec.name} is {state.jobs[spec.name].state} already"
        )
    if wrong := _misnamed(spec, state.tenants):
        return _invalid(*wrong)
    try:
        axis_traffic(spec.request)
        neighbours.check(state.loaded_fabric, spec.neighbours)
        never = impossible(state.loaded_fabric, spec.request)
    except BadInput as error:
        return _invalid(error.field, error.message)
    if never is not None:
        return Rejected(Code.INFEASIBLE, never.reason)
    if refusal := _beyond_quota(state, spec):
        return Rejected(Code.INFEASIBLE, refusal)
    return (JobSubmitted(now_ns, command.uid, spec, command.request_id),)


def _misnamed(spec: JobSpec, tenants: Tenants) -> tuple[str, str] | None:
    """The field that names a tenant or a class that is not there, and what is wrong."""
    tenant = tenant_of(spec, tenants)
    leaves = [t.name for t in tenants.tenants if t.name not in tenants.inner]
    if tenant not in tenants.by_name:
        return "tenant", f"no tenant {tenant!r}; there are {', '.join(leaves)}"
    if tenant in tenants.inner:
        below = [name for name in leaves if tenant in tenants.path(name)]
        return "tenant", f"{tenant} has sub-tenants: name one of {', '.join(below)}"
    if spec.priority_class and spec.priority_class not in tenants.class_by_name:
        known = ", ".join(tenants.class_by_name) or "none"
        return "priority_class", f"no class {spec.priority_class!r}; there are {known}"
    return None


def _beyond_quota(state: State, spec: JobSpec) -> str | None:
    """Why the job could not start on a cluster that is otherwise empty."""
    fabric, tenants = state.loaded_fabric, state.tenants
    gang = spec.request.hosts_needed(fabric.gpus_per_host)
    needed = gang + spec.request.spares.required(gang)
    tenant = tenant_of(spec, tenants)
    empty = Book(nodes(tenants, fabric), {})
    most, whose = empty.headroom(tenant)
    if needed > most:
        return f"needs {needed:,} hosts; the limit of tenant {whose} is {most:,}"
    if level_of(spec, tenants).is_preemptible:
        return None
    most = empty.most(tenant, fabric.host_count)
    if needed > most:
        return (
            f"needs {needed:,} hosts; tenant {tenant} can have {most:,},"
            " the rest is guaranteed to others (preemptible jobs may use it)"
        )
    return None


def _load_tenants(state: State, tenants: Tenants, now_ns: int) -> tuple[Event, ...] | Rejected:
    if tenants == state.tenants:
        return ()
    try:
        cells.check(tenants, state.loaded_fabric)
    except BadInput as error:
        return _invalid(error.field, error.message)
    for job in state.jobs.values():
        if wrong := _misnamed(job.spec, tenants):
            message = f"job {job.name} is {job.state}: {wrong[1]}"
            return Rejected(Code.PRECONDITION, message)
    return (TenantsLoaded(now_ns, tenants.digest, tenants),)


def _reused(request_id: str, earlier: Job) -> Rejected:
    message = f"was used for job {earlier.name} with another specification"
    return _invalid("request_id", f"{request_id!r} {message}")


def _cancel(state: State, command: CancelJob, now_ns: int) -> tuple[Event, ...] | Rejected:
    job = state.find(command.name)
    if job is None:
        return _no_job(command.name)
    if job.state is JobState.CANCELLED:
        return ()
    if job.state not in LIVE:
        return Rejected(Code.PRECONDITION, f"job {job.name} is already {job.state}")
    return (JobEnded(now_ns, job.name, JobState.CANCELLED, command.reason),)


_OUTCOMES = {JobState.COMPLETED: JobMove.COMPLETE, JobState.FAILED: JobMove.FAIL}


def _end(state: State, command: EndJob, now_ns: int) -> tuple[Event, ...] | Rejected:
    if command.outcome not in _OUTCOMES:
        return _invalid("outcome", "must be completed or failed")
    job = state.find(command.name)
    if job is None:
        return _no_job(command.name)
    if job.state is command.outcome and command.attempt in (0, job.attempt):
        return ()
    if command.attempt not in (0, job.attempt):
        return Rejected(
            Code.PRECONDITION,
            f"job {job.name} is at attempt {job.attempt}, not {command.attempt}",
        )
    if _OUTCOMES[command.outcome] not in JOB_MOVES[job.state]:
        return Rejected(Code.PRECONDITION, f"job {job.name} is {job.state}, not running")
    return (JobEnded(now_ns, job.name, command.outcome, command.reason),)


_REACHED = {
    HostMove.CORDON: (HostState.CORDONED,),
    HostMove.UNCORDON: (HostState.HEALTHY,),
    HostMove.DRAIN: (HostState.DRAINING,),
    HostMove.FAIL: (HostState.FAILED,),
    HostMove.REPAIR: (HostState.HEALTHY, HostState.CORDONED, HostState.DRAINING),
}


def _move_host(state: State, command: MoveHost, now_ns: int) -> tuple[Event, ...] | Rejected:
    if command.move not in (HostMove.CORDON, HostMove.UNCORDON, HostMove.DRAIN):
        return _invalid("move", "must be cordon, uncordon or drain")
    return _moved(state, command.host, command.move, command.reason, now_ns)


def _moved(
    state: State, host: str, move: HostMove, reason: str, now_ns: int
) -> tuple[Event, ...] | Rejected:
    index = state.loaded_fabric.index_by_name.get(host)
    if index is None:
        return _no_host(host)
    now = state.host(index).state
    is_drained = now is HostState.CORDONED and not _runs_gang(state, index)
    if now in _REACHED[move] or (move is HostMove.DRAIN and is_drained):
        return ()
    if move not in HOST_MOVES[now]:
        hint = "; report it repaired first" if now is HostState.FAILED else ""
        return Rejected(Code.PRECONDITION, f"host {host} is {now}: cannot {move}{hint}")
    events: list[Event] = [HostMoved(now_ns, host, move, reason)]
    if move is HostMove.DRAIN and not _runs_gang(state, index):
        events.append(HostMoved(now_ns, host, HostMove.EMPTY))
    return tuple(events)


def _runs_gang(state: State, index: int) -> bool:
    job = state.holder(index)
    return job is not None and index in job.hosts


def _report(state: State, command: ReportHost, now_ns: int) -> tuple[Event, ...] | Rejected:
    effect = SIGNALS.get(command.signal)
    if effect is None:
        return _invalid("signal", f"unknown {command.signal!r}; known are {', '.join(SIGNALS)}")
    if effect is Effect.NOTE:
        if command.host not in state.loaded_fabric.index_by_name:
            return _no_host(command.host)
        return (HostSignalled(now_ns, command.host, command.signal, command.detail),)
    move = HostMove.FAIL if effect is Effect.FAIL else HostMove.REPAIR
    reason = f"{command.signal}: {command.detail}" if command.detail else command.signal
    return _moved(state, command.host, move, reason, now_ns)


def _invalid(field: str, message: str) -> Rejected:
    return Rejected(Code.INVALID, f"{field}: {message}", (Violation(field, message),))


def _no_job(name: str) -> Rejected:
    return Rejected(Code.NOT_FOUND, f"no job {name!r}", missing=("job", name))


def _no_host(name: str) -> Rejected:
    return Rejected(Code.NOT_FOUND, f"no host {name!r} in this fabric", missing=("host", name))
