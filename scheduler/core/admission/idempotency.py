"""A request that was carried out before does nothing a second time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from scheduler.core.admission.report import asked as asked_of_report
from scheduler.core.model.commands import (
    CancelJob,
    Command,
    EndJob,
    LoadHealth,
    LoadTenants,
    MoveHost,
    MoveLink,
    RemoveWindow,
    ReportHost,
    ReportLink,
    SetWindow,
    SubmitJob,
    UpdateJob,
)
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.rejected import Rejected, invalid
from scheduler.core.model.state import State


@dataclass(frozen=True, slots=True)
class Earlier:
    """What a command with a known request_id is answered."""

    answer: tuple[()] | Rejected


def earlier(state: State, command: Command) -> Earlier | None:
    """The answer to a request that was carried out before; None: it is a new one."""
    if isinstance(command, LoadTenants | LoadHealth) or not command.request_id:
        return None
    if isinstance(command, SubmitJob) and (job := state.by_request(command.request_id)):
        what = asked(command) if job.spec == command.spec else ()
        return was_done(state, command.request_id, what)
    return was_done(state, command.request_id, asked(command))


def was_done(state: State, request_id: str, asked: tuple[str, ...]) -> Earlier | None:
    """The answer to a request of this id that asks for one of `asked`; None: it is new."""
    done = state.requests.get(request_id)
    if done is None:
        return None
    if done.what in asked:
        return Earlier(())
    message = f"{request_id!r} was used for another request: {done.what}"
    return Earlier(invalid("request_id", message))


def asked(command: Command) -> tuple[str, ...]:
    """What `command` asks for, in the words of `remembered`."""
    match command:
        case SubmitJob():
            return (f"submit {command.spec.name}",)
        case UpdateJob():
            return (f"update {command.name}",)
        case CancelJob():
            return (f"{JobState.CANCELLED} {command.name}",)
        case EndJob():
            return (f"{command.outcome} {command.name}",)
        case MoveHost():
            return (f"{command.move} {command.host}",)
        case ReportHost():
            return asked_of_report(command)
        case ReportLink():
            return (f"report link {command.link}",)
        case MoveLink():
            return (f"{command.move} link {command.link}",)
        case SetWindow():
            return (f"set window {command.window.name}",)
        case RemoveWindow():
            return (f"remove window {command.name}",)
        case LoadTenants() | LoadHealth():
            return ()
    assert_never(command)
