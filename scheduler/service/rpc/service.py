"""SchedulerService as gRPC registers it: the servicers of all subjects as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

from scheduler.service.backend import Backend
from scheduler.service.rpc.cluster.defrag import DefragServicer
from scheduler.service.rpc.cluster.fabric import FabricServicer
from scheduler.service.rpc.cluster.hosts import HostServicer
from scheduler.service.rpc.cluster.links import LinkServicer
from scheduler.service.rpc.cluster.spares import SpareServicer
from scheduler.service.rpc.cluster.tenants import TenantServicer
from scheduler.service.rpc.cluster.windows import WindowServicer
from scheduler.service.rpc.jobs.channels import ChannelServicer
from scheduler.service.rpc.jobs.jobs import JobMessages, JobServicer
from scheduler.service.rpc.jobs.logs import LogServicer
from scheduler.service.rpc.jobs.usage import UsageServicer
from scheduler.service.rpc.overview.audit import AuditServicer
from scheduler.service.rpc.overview.incidents import IncidentServicer
from scheduler.service.rpc.overview.state import StateServicer
from scheduler.service.rpc.overview.status import StatusServicer
from scheduler.service.rpc.overview.watch import WatchServicer
from scheduler.v1 import service_pb2
from scheduler.wire.reasons import ReasonCache

SERVICE = service_pb2.DESCRIPTOR.services_by_name["SchedulerService"]


def scheduler_service(
    backend: Backend, new_uid: Callable[[], str], started_ns: int = 0
) -> SimpleNamespace:
    """Return the servicer of all methods of the service. `new_uid`: of jobs. `started_ns`: of the
    server."""
    reasons = ReasonCache()
    return join_servicers(
        (
            JobServicer(backend, JobMessages(backend, reasons), new_uid),
            LogServicer(backend),
            ChannelServicer(backend),
            AuditServicer(backend),
            StateServicer(backend),
            UsageServicer(backend),
            FabricServicer(backend),
            HostServicer(backend),
            TenantServicer(backend),
            WindowServicer(backend),
            SpareServicer(backend),
            LinkServicer(backend),
            DefragServicer(backend),
            WatchServicer(backend),
            StatusServicer(backend, reasons, started_ns),
            IncidentServicer(backend),
        )
    )


def join_servicers(servicers: Sequence[object]) -> SimpleNamespace:
    """Join servicers into one that has each method of the service from the servicer that defines
    it.

    Raises: TypeError for a method that none of them defines, or several.
    """
    methods = {}
    for method in SERVICE.methods:
        owners = [servicer for servicer in servicers if hasattr(servicer, method.name)]
        if len(owners) != 1:
            names = ", ".join(type(owner).__name__ for owner in owners) or "no servicer"
            raise TypeError(f"{method.name} is defined by {names}")
        methods[method.name] = getattr(owners[0], method.name)
    return SimpleNamespace(**methods)
