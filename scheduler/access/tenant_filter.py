"""What callers who are bound to a tenant can name and see: their own jobs, nobody else's.

A job of somebody else is not there: naming it is answered as naming nothing (AIP-211), and lists
leave it out. Where an answer speaks of such a job, as of what stands in one's way, it does so by
its full name, TENANT/NAME in sentences and tenants/TENANT/jobs/NAME in fields, so that the answer
itself says whose job that is: no name is looked up anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from scheduler.access.methods import MethodRule
from scheduler.core import State
from scheduler.engine.authorisation import tenant_refusal, unknown_home
from scheduler.identity import Caller, redact_foreign_jobs
from scheduler.service.errors import denied, invalid
from scheduler.v1 import job_pb2

_PROGRAM: Final = job_pb2.Run.DESCRIPTOR.full_name  # words of the job's own tenant: paths, no names


class TenantFilter:
    """Limits callers who are bound to a tenant to names of that tenant. `state`: the newest one;
    None while the server replays its log."""

    def __init__(self, state: Callable[[], State | None]) -> None:
        self._state = state

    def check(self, rule: MethodRule, who: Caller, request: Any) -> None:
        """Refuse a `request` with names that `who` may not use. Raises: ApiError."""
        state = self._state()
        if who.tenant and state is not None and rule.tenant:
            tenant = _tenant(state, who, _get(request, rule.tenant))
            if message := unknown_home(state.tenants, who, tenant):
                raise invalid(rule.tenant, message)
            _set(request, rule.tenant, tenant)

    def clean(self, who: Caller, answer: Message) -> None:
        """Hide the names of jobs that `who` may not see in `answer`, also inside sentences."""
        if who.tenant and (state := self._state()) is not None:
            _clean(state, who, answer)


def _clean(state: State, who: Caller, message: Message) -> None:
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_STRING:
            if not field.is_repeated:
                if (text := redact_foreign_jobs(state, who, value)) is not value:
                    setattr(message, field.name, text)
                continue
            texts = [redact_foreign_jobs(state, who, text) for text in value]
            if texts != value:
                del value[:]
                value.extend(texts)
        elif field.message_type is not None and field.message_type.full_name == _PROGRAM:
            continue
        elif field.type == FieldDescriptor.TYPE_MESSAGE and not is_map(field):
            if field.is_repeated:
                _keep(value, lambda item: who.sees(state.tenants, getattr(item, "tenant", "")))
            for inner in value if field.is_repeated else (value,):
                _clean(state, who, inner)


def _tenant(state: State, who: Caller, tenant: str) -> str:
    if not tenant:
        return who.tenant
    if message := tenant_refusal(state.tenants, who, tenant):
        raise denied(message)
    return tenant


def _get(message: Any, path: str) -> Any:
    for part in path.split("."):
        message = getattr(message, part)
    return message


def _set(message: Any, path: str, value: str) -> None:
    *outer, last = path.split(".")
    for part in outer:
        message = getattr(message, part)
    setattr(message, last, value)


def _keep(items: Any, is_own: Callable[[Any], bool]) -> None:
    """Drop what belongs to another tenant; what belongs to none stays."""
    for at in reversed(range(len(items))):
        if getattr(items[at], "tenant", "") and not is_own(items[at]):
            del items[at]


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry
