"""Who may call what: one table, in which every method of the server stands.

A method that is missing here is refused to everybody, and fails a test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from scheduler.access.caller import Role

_SCHEDULER: Final = "/scheduler.v1.SchedulerService/"
_HEALTH: Final = "/grpc.health.v1.Health/"
REFLECTION: Final = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


@dataclass(frozen=True, slots=True)
class Rule:
    """The least role that may call a method; None: anybody, without saying who.

    Fields of the request, by path, in which callers who are bound to a tenant
    `job`: name a job, which must be theirs, or there is none of that name;
    `tenant`: name a tenant, theirs by default;
    `conditions`: name jobs to suppose something of.
    """

    role: Role | None
    job: str = ""
    tenant: str = ""
    conditions: str = ""


_RULES: Final = {
    "CreateJob": Rule(Role.SUBMITTER, tenant="spec.tenant"),
    "GetJob": Rule(Role.VIEWER, job="name"),
    "ListJobs": Rule(Role.VIEWER),
    "UpdateJob": Rule(Role.SUBMITTER, job="job.name"),
    "CancelJob": Rule(Role.SUBMITTER, job="name"),
    "EndJob": Rule(Role.OPERATOR),
    "ExplainJob": Rule(Role.VIEWER, job="name", conditions="suppose"),
    "ListSlots": Rule(Role.VIEWER, tenant="tenant"),
    "Defragment": Rule(Role.OPERATOR),
    "WatchJobs": Rule(Role.VIEWER),
    "WatchHosts": Rule(Role.VIEWER),
    "ListSpares": Rule(Role.VIEWER),
    "ListTenants": Rule(Role.VIEWER),
    "ListHosts": Rule(Role.VIEWER),
    "CordonHost": Rule(Role.OPERATOR),
    "UncordonHost": Rule(Role.OPERATOR),
    "DrainHost": Rule(Role.OPERATOR),
    "ReportHost": Rule(Role.OPERATOR),
    "ReportHosts": Rule(Role.OPERATOR),
    "GetStatus": Rule(Role.VIEWER),
    "CreateWindow": Rule(Role.OPERATOR),
    "GetWindow": Rule(Role.VIEWER),
    "ListWindows": Rule(Role.VIEWER),
    "UpdateWindow": Rule(Role.OPERATOR),
    "DeleteWindow": Rule(Role.OPERATOR),
}

METHODS: Final[dict[str, Rule]] = {
    **{_SCHEDULER + name: rule for name, rule in _RULES.items()},
    **{_HEALTH + name: Rule(None) for name in ("Check", "List", "Watch")},
    REFLECTION: Rule(Role.VIEWER),
}
