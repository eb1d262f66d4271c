"""What callers who are bound to a tenant can name and see: their own jobs, nobody else's.

A job of somebody else is not there: naming it is answered as naming nothing (AIP-211),
and lists leave it out. Where an answer speaks of such a job, as of what stands in one's
way, its name is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from scheduler.access.methods import MethodRule
from scheduler.core import Job, State
from scheduler.identity import HIDDEN, Caller
from scheduler.service.errors import denied, invalid, not_found

_TOKEN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")

# Fields that hold places or the caller's own words, in which a name means something else.
_NO_JOBS: Final = frozenset(
    {
        *(
            "domain",
            "domains",
            "hosts",
            "chosen_hosts",
            "spares",
            "rooms",
            "reserved_in",
            "tier",
            "zone",
        ),
        *("spec", "uid", "next_page_token", "etag", "digest", "tenant", "default_tenant"),
        *("Fabric.name", "Fabric.kind", "FabricTier.name", "Host.name"),
        *("Tenant.name", "Tenant.parent", "Window.name"),
    }
)


class TenantFilter:
    """`state`: the newest one; None while the server replays its log."""

    def __init__(self, state: Callable[[], State | None]) -> None:
        self._state = state
        self._ended: Mapping[str, Job] | None = None
        self._ended_tenants: dict[str, set[str]] = {}

    def check(self, rule: MethodRule, who: Caller, request: Any) -> None:
        """Hold `request` to what `who` may name. Raises: ApiError."""
        state = self._state()
        if not who.tenant or state is None:
            return
        if rule.job and not self._shows(state, who, name := _get(request, rule.job)):
            raise not_found("job", name)  # before the service looks at anything else
        if rule.tenant:
            _set(request, rule.tenant, _tenant(state, who, _get(request, rule.tenant)))
        for at, condition in enumerate(_get(request, rule.conditions) if rule.conditions else ()):
            for name in condition.split()[1:]:
                if self._hides(state, who, name):
                    raise invalid(f"suppose[{at}]", f"{condition!r}: no job {name!r}")

    def clean(self, who: Caller, answer: Message) -> None:
        """Hide the names of jobs that are not `who`'s own, wherever they stand in `answer`."""
        if who.tenant and (state := self._state()) is not None:
            self._clean(state, who, answer)

    def _clean(self, state: State, who: Caller, message: Message) -> None:
        for field, value in message.ListFields():
            if field.name in _NO_JOBS or f"{message.DESCRIPTOR.name}.{field.name}" in _NO_JOBS:
                continue
            if field.type == FieldDescriptor.TYPE_STRING:
                self._clean_text(state, who, message, field, value)
            elif field.type == FieldDescriptor.TYPE_MESSAGE and not is_map(field):
                if field.is_repeated:
                    _keep(value, lambda item: who.sees(state.tenants, getattr(item, "tenant", "")))
                for inner in value if field.is_repeated else (value,):
                    self._clean(state, who, inner)

    def _clean_text(
        self, state: State, who: Caller, message: Message, field: FieldDescriptor, value: Any
    ) -> None:
        def told(match: re.Match[str]) -> str:
            return HIDDEN if self._hides(state, who, match[0]) else match[0]

        if not field.is_repeated:
            setattr(message, field.name, _TOKEN.sub(told, value))
            return
        texts = [_TOKEN.sub(told, text) for text in value]
        del value[:]
        value.extend(texts)

    def _shows(self, state: State, who: Caller, name: str) -> bool:
        job = state.find(name)
        return job is not None and who.sees(state.tenants, job.tenant)

    def _hides(self, state: State, who: Caller, name: str) -> bool:
        """Whether jobs have this name, and none of them is `who`'s."""
        if job := state.jobs.get(name):
            return not who.sees(state.tenants, job.tenant)
        tenants = self._tenants_of_ended(state).get(name, ())
        return bool(tenants) and not any(who.sees(state.tenants, tenant) for tenant in tenants)

    def _tenants_of_ended(self, state: State) -> dict[str, set[str]]:
        """By name of an ended job; kept until another one ends."""
        if self._ended is not state.ended:
            found: dict[str, set[str]] = {}
            for job in state.ended.values():
                found.setdefault(job.name, set()).add(job.tenant)
            self._ended_tenants, self._ended = found, state.ended
        return self._ended_tenants


def _tenant(state: State, who: Caller, asked: str) -> str:
    if not asked:
        return who.tenant
    if not who.sees(state.tenants, asked):
        raise denied(f"{who.name} belongs to tenant {who.tenant}, not to {asked}")
    return asked


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
