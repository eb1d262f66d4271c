"""What entries of the auth file share: a role, and the tenant in which it holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from scheduler.files.errors import short
from scheduler.files.field_types import wrong_value
from scheduler.files.job_keys import Keys, Text
from scheduler.identity import Caller, Role

EVERY_TENANT = "*"
_ROLES = {role.name.lower(): role for role in Role}
_OF_TENANTS = (Role.VIEWER, Role.LAUNCHER, Role.SUBMITTER, Role.COORDINATOR)


def _role(value: Any) -> Role:
    if not isinstance(value, str) or value not in _ROLES:
        raise wrong_value(f"must be one of {', '.join(_ROLES)}, not {short(value)}")
    return _ROLES[value]


class EntryKeys(Keys):
    """Keys of one caller in the auth file. `run_as`: users of the hosts as whom ranks of the
    caller's jobs may run, besides the one of its own name; "*": all."""

    role: Annotated[Role, BeforeValidator(_role)]
    tenant: Text = ""
    run_as: list[Text] = Field(default_factory=list)

    def caller(self, name: str) -> Caller:
        tenant = "" if self.tenant == EVERY_TENANT else self.tenant
        return Caller(name, self.role, tenant, tuple(self.run_as))


def tenancy(where: str, role: Role, tenant: str) -> Iterator[tuple[str, str]]:
    """Return the fault (path, what is wrong) of a role that lacks its tenant, or has one that it
    must not have."""
    word = role.name.lower()
    if role in _OF_TENANTS and not tenant:
        yield f"{where}.tenant", f'is required of a {word}: a name, or "{EVERY_TENANT}" for all'
    if role not in _OF_TENANTS and tenant:
        yield f"{where}.tenant", f"role {word} is not of one tenant: leave it out"
