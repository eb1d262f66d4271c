"""Who may call what: one table, in which every method of the server stands.

A method that is missing here is refused to everybody, and fails a test.
"""

from __future__ import annotations

from typing import Final

from muster.structs import struct
from scheduler.identity import Role

_SCHEDULER: Final = "/scheduler.v1.SchedulerService/"
_HEALTH: Final = "/grpc.health.v1.Health/"
CONSOLE: Final = "/muster.console.Console/"  # called by the server's own console alone
REFLECTION: Final = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


@struct(frozen=True, slots=True)
class MethodRule:
    """Who may call a method. `role`: the least one; None: anybody, unidentified.

    `tenant`: path of the request's field that names a tenant; callers who are bound to a tenant
    may name theirs alone there, and it is the default. Fields that name jobs are read by
    service.names.

    `refused`: the reasons with which a call of its own may end, besides ANY_CALL and, where
    something is changed, ANY_CHANGE.
    """

    role: Role | None
    tenant: str = ""
    refused: tuple[str, ...] = ()
    is_read: bool = False  # although viewers may not call it

    @property
    def is_change(self) -> bool:
        return self.role is not None and self.role > Role.VIEWER and not self.is_read


ANY_CALL: Final = (
    *("INVALID", "UNAUTHENTICATED", "PERMISSION_DENIED", "EXHAUSTED", "STARTING", "STOPPING"),
    *("NOT_CAUGHT_UP", "INTERNAL"),
)
ANY_CHANGE: Final = ("NOT_LEADER", "NOT_WRITTEN", "STORE_FAILED")
_GONE, _OTHER, _STATE = "NOT_FOUND", "ETAG_MISMATCH", "WRONG_STATE"
_STORE: Final = "STORE_FAILED"
_OF_WATCH: Final = ("WATCH_BEHIND", "COMPACTED", _STORE)

_RULES: Final = {
    "CreateJob": MethodRule(
        Role.SUBMITTER, tenant="spec.tenant", refused=("ALREADY_EXISTS", _STATE, "INFEASIBLE")
    ),
    "GetJob": MethodRule(Role.VIEWER, refused=(_GONE, _STATE, "COMPACTED", _STORE)),
    "TailLogs": MethodRule(Role.VIEWER, refused=(_GONE, _STATE, _STORE)),
    "OpenChannel": MethodRule(Role.SUBMITTER, refused=(_GONE, _STATE, *ANY_CHANGE), is_read=True),
    "ListStepTimes": MethodRule(Role.VIEWER, refused=(_GONE, _STATE, _STORE)),
    "ListJobs": MethodRule(Role.VIEWER, refused=(_STORE,)),
    "UpdateJob": MethodRule(Role.SUBMITTER, refused=(_GONE, _STATE, "INFEASIBLE", _OTHER)),
    "CancelJob": MethodRule(Role.SUBMITTER, refused=(_GONE, _STATE, _OTHER)),
    "HoldJob": MethodRule(Role.SUBMITTER, refused=(_GONE, _STATE, _OTHER)),
    "ReleaseJob": MethodRule(Role.SUBMITTER, refused=(_GONE, _STATE, _OTHER)),
    "RequeueJob": MethodRule(Role.SUBMITTER, refused=(_GONE, _STATE, _OTHER)),
    "ResizeJob": MethodRule(
        Role.SUBMITTER, refused=(_GONE, _STATE, "INFEASIBLE", "CONFLICT", _OTHER)
    ),
    "EndJob": MethodRule(Role.LAUNCHER, refused=(_GONE, _STATE, _OTHER)),
    "SumUsage": MethodRule(Role.VIEWER, refused=(_STORE,)),
    "ListAuditRecords": MethodRule(Role.OPERATOR, refused=(_STORE,), is_read=True),
    "ExportState": MethodRule(Role.OPERATOR, refused=(_STORE,), is_read=True),
    "ExplainJob": MethodRule(Role.VIEWER, refused=(_GONE, _STORE)),
    "ListSlots": MethodRule(Role.VIEWER, tenant="tenant"),
    "Defragment": MethodRule(Role.OPERATOR, refused=(_GONE, "INFEASIBLE", "CONFLICT", _OTHER)),
    "WatchJobs": MethodRule(Role.VIEWER, refused=_OF_WATCH),
    "WatchHosts": MethodRule(Role.VIEWER, refused=(_GONE, *_OF_WATCH)),
    "ListSpares": MethodRule(Role.VIEWER),
    "GetFabric": MethodRule(Role.VIEWER),
    "ApplyFabric": MethodRule(Role.OPERATOR, refused=(_STATE, _OTHER)),
    "GetTenant": MethodRule(Role.VIEWER, refused=(_GONE,)),
    "ListTenants": MethodRule(Role.VIEWER),
    "GetHost": MethodRule(Role.VIEWER, refused=(_GONE,)),
    "ListHosts": MethodRule(Role.VIEWER),
    "CordonHost": MethodRule(Role.OPERATOR, refused=(_GONE, _STATE, _OTHER)),
    "UncordonHost": MethodRule(Role.OPERATOR, refused=(_GONE, _STATE, _OTHER)),
    "DrainHost": MethodRule(Role.OPERATOR, refused=(_GONE, _STATE, _OTHER)),
    "ReportHost": MethodRule(Role.OPERATOR, refused=(_GONE, _STATE)),
    "ReportHosts": MethodRule(Role.OPERATOR),
    "ListLinks": MethodRule(Role.VIEWER),
    "ReportLink": MethodRule(Role.OPERATOR, refused=(_GONE,)),
    "CordonLink": MethodRule(Role.OPERATOR, refused=(_GONE, _OTHER)),
    "UncordonLink": MethodRule(Role.OPERATOR, refused=(_GONE, _OTHER)),
    "DrainLink": MethodRule(Role.OPERATOR, refused=(_GONE, _OTHER)),
    "GetStatus": MethodRule(Role.VIEWER),
    "ListIncidents": MethodRule(Role.VIEWER, refused=(_STORE,)),
    "CreateWindow": MethodRule(Role.OPERATOR, refused=("ALREADY_EXISTS", _STATE)),
    "GetWindow": MethodRule(Role.VIEWER, refused=(_GONE,)),
    "ListWindows": MethodRule(Role.VIEWER),
    "UpdateWindow": MethodRule(Role.OPERATOR, refused=(_GONE, _STATE, "CONFLICT", _OTHER)),
    "DeleteWindow": MethodRule(Role.OPERATOR, refused=(_GONE, _OTHER)),
}

METHODS: Final[dict[str, MethodRule]] = {
    **{_SCHEDULER + name: rule for name, rule in _RULES.items()},
    **{_HEALTH + name: MethodRule(None) for name in ("Check", "List", "Watch")},
    CONSOLE + "HoldSession": MethodRule(Role.VIEWER),
    REFLECTION: MethodRule(Role.VIEWER),
}
