"""Who asked for which change."""

from __future__ import annotations

from scheduler.eventlog.audit import AuditLog
from scheduler.service import pagination
from scheduler.service.backend import Context, Servicer
from scheduler.v1 import service_pb2


class AuditServicer(Servicer):
    async def ListAuditRecords(
        self, request: service_pb2.ListAuditRecordsRequest, context: Context
    ) -> service_pb2.ListAuditRecordsResponse:
        state, log = self._backend.writer.state, AuditLog(self._backend.writer.store)
        return await self._backend.reads.make(pagination.audit_page, state, log, request)
