"""The call for the cluster on one screen."""

from __future__ import annotations

from scheduler.core import State
from scheduler.core.names import stated_tenant
from scheduler.engine.writer import Writer
from scheduler.identity import caller, own_jobs
from scheduler.observe import census
from scheduler.observe.incidents import KEPT, Incident
from scheduler.service import pagination
from scheduler.service.backend import Backend, Context
from scheduler.v1 import service_pb2
from scheduler.wire.cluster.status import ServerFacts, status
from scheduler.wire.reasons import ReasonCache

GANGS, INCIDENTS = 20, 10  # shown when the request names no number


class StatusServicer:
    """Answers calls about the state of the cluster. `started_ns`: when the server started."""

    def __init__(self, backend: Backend, reasons: ReasonCache, started_ns: int) -> None:
        self._backend = backend
        self._reasons = reasons
        self._started_ns = started_ns

    async def GetStatus(
        self, request: service_pb2.GetStatusRequest, context: Context
    ) -> service_pb2.GetStatusResponse:
        return await self._backend.reads.make(self._status, self._backend.writer, request)

    def _status(
        self, writer: Writer, request: service_pb2.GetStatusRequest
    ) -> service_pb2.GetStatusResponse:
        state, now_ns = writer.state, writer.now_ns()
        gangs = pagination.size(request.gangs, GANGS, pagination.MOST_JOBS, "gangs")
        incidents = pagination.size(request.incidents, INCIDENTS, KEPT, "incidents")
        server = ServerFacts(self._started_ns, writer.last_ns, now_ns, writer.is_leading)
        queues = census.queues(state)
        oldest = [queue.oldest.name for queue in queues.values() if queue.oldest]
        why = self._reasons.sentences(state, oldest, now_ns, writer.options)
        known = [each for each in writer.instruments.incidents.newest() if _concerns(state, each)]
        return status(state, server, queues, why, known[:incidents], gangs, own_jobs(state))


def _concerns(state: State, incident: Incident) -> bool:
    """Whether the caller may hear of it: incidents of jobs tell what their tenants wrote, and what
    the ranks said last."""
    tenant = stated_tenant(incident.job) or state.tenants.default
    return not incident.job or caller().sees(state.tenants, tenant)
