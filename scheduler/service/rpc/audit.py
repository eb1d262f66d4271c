"""Who asked for which change."""

from __future__ import annotations

from typing import Any

import grpc

from scheduler.eventlog.audit import AuditLog
from scheduler.service import pagination
from scheduler.service.backend import Backend
from scheduler.service.errors import error_boundary
from scheduler.v1 import service_pb2

Context = grpc.aio.ServicerContext[Any, Any]


class AuditServicer:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def ListAuditRecords(
        self, request: service_pb2.ListAuditRecordsRequest, context: Context
    ) -> service_pb2.ListAuditRecordsResponse:
        async with error_boundary(context):
            state, log = self._backend.writer.state, AuditLog(self._backend.writer.store)
            return await self._backend.reads.make(pagination.audit_page, state, log, request)
