"""Who may call what: one table, in which every method of the server stands.

A method that is missing here is refused to everybody, and fails a test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from scheduler.identity import Role

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

    `refused`: the reasons with which a call of its own may end, besides ANY_CALL and, where
    something is changed, ANY_CHANGE.
    """

    role: Role | None
    job: str = ""
    tenant: str = ""
    conditions: str = ""
    refused: tuple[str, ...] = ()

    @property
    def is_change(self) -> bool:
        return self.role is not None and self.role > Role.VIEWER


ANY_CALL: Final = (
    *("INVALID", "UNAUTHENTICATED", "PERMISSION_DENIED", "EXHAUSTED", "STARTING", "STOPPING"),
    *("NOT_CAUGHT_UP", "INTERNAL"),
)
ANY_CHANGE: Final = ("NOT_LEADER", "STORE_FAILED")
_GONE, _OTHER, _STATE = "NOT_FOUND", "ETAG_MISMATCH", "WRONG_STATE"
_OF_WATCH: Final = ("WATCH_BEHIND", "COMPACTED", "STORE_FAILED")

_RULES: Final = {
    "CreateJob": Rule(
        Role.SUBMITTER, tenant="spec.tenant", refused=("ALREADY_EXISTS", "INFEASIBLE")
    ),
    "GetJob": Rule(Role.VIEWER, job="name", refused=(_GONE,)),
    "ListJobs": Rule(Role.VIEWER),
    "UpdateJob": Rule(
        Role.SUBMITTER, job="job.name", refused=(_GONE, _STATE, "INFEASIBLE", _OTHER)
    ),
    "CancelJob": Rule(Role.SUBMITTER, job="name", refused=(_GONE, _STATE, _OTHER)),
    "EndJob": Rule(Role.OPERATOR, refused=(_GONE, _STATE, _OTHER)),
    "ExplainJob": Rule(Role.VIEWER, job="name", conditions="suppose", refused=(_GONE,)),
    "ListSlots": Rule(Role.VIEWER, tenant="tenant"),
    "Defragment": Rule(Role.OPERATOR, refused=(_GONE, "INFEASIBLE", "CONFLICT", _OTHER)),
    "WatchJobs": Rule(Role.VIEWER, refused=_OF_WATCH),
    "WatchHosts": Rule(Role.VIEWER, refused=(_GONE, *_OF_WATCH)),
    "ListSpares": Rule(Role.VIEWER),
    "WatchWindows": Rule(Role.VIEWER, refused=_OF_WATCH),
    "GetFabric": Rule(Role.VIEWER),
    "GetTenant": Rule(Role.VIEWER, refused=(_GONE,)),
    "ListTenants": Rule(Role.VIEWER),
    "GetHost": Rule(Role.VIEWER, refused=(_GONE,)),
    "ListHosts": Rule(Role.VIEWER),
    "CordonHost": Rule(Role.OPERATOR, refused=(_GONE, _STATE, _OTHER)),
    "UncordonHost": Rule(Role.OPERATOR, refused=(_GONE, _STATE, _OTHER)),
    "DrainHost": Rule(Role.OPERATOR, refused=(_GONE, _STATE, _OTHER)),
    "ReportHost": Rule(Role.OPERATOR, refused=(_GONE, _STATE)),
    "ReportHosts": Rule(Role.OPERATOR),
    "GetStatus": Rule(Role.VIEWER),
    "CreateWindow": Rule(Role.OPERATOR, refused=("ALREADY_EXISTS", _STATE)),
    "GetWindow": Rule(Role.VIEWER, refused=(_GONE,)),
    "ListWindows": Rule(Role.VIEWER),
    "UpdateWindow": Rule(Role.OPERATOR, refused=(_GONE, _STATE, "CONFLICT", _OTHER)),
    "DeleteWindow": Rule(Role.OPERATOR, refused=(_GONE, _OTHER)),
}

METHODS: Final[dict[str, Rule]] = {
    **{_SCHEDULER + name: rule for name, rule in _RULES.items()},
    **{_HEALTH + name: Rule(None) for name in ("Check", "List", "Watch")},
    REFLECTION: Rule(Role.VIEWER),
}
