"""Calls that report health signals of hosts."""

from __future__ import annotations

import asyncio
from typing import Any

from scheduler.core import State
from scheduler.core.model.commands import ReportHost
from scheduler.service.backend import Context, Servicer
from scheduler.service.errors import ApiError, invalid
from scheduler.service.rpc.hosts import host_message
from scheduler.v1 import service_pb2

MOST_REPORTS = 1_000


class HealthServicer(Servicer):
    async def ReportHost(
        self, request: service_pb2.ReportHostRequest, context: Context
    ) -> service_pb2.ReportHostResponse:
        state = await self._backend.run(_command(request), only_checked=request.validate_only)
        return service_pb2.ReportHostResponse(host=self._host(state, request.name))

    async def ReportHosts(
        self, request: service_pb2.ReportHostsRequest, context: Context
    ) -> service_pb2.ReportHostsResponse:
        if len(request.reports) > MOST_REPORTS:
            raise invalid("reports", f"{len(request.reports):,} are more than {MOST_REPORTS:,}")
        for at, report in enumerate(request.reports):
            if report.validate_only:  # else it would be made, or others would not
                raise invalid(
                    f"reports[{at}].validate_only",
                    "must be unset: validate_only of the request holds for all reports",
                )
        _, only_checked = self._backend.writer, request.validate_only  # UNAVAILABLE at start
        # Entered together they are written together, and what they stop is one decision.
        results = await asyncio.gather(
            *(self._result(report, only_checked) for report in request.reports)
        )
        return service_pb2.ReportHostsResponse(results=results)

    async def _result(
        self, request: service_pb2.ReportHostRequest, only_checked: bool
    ) -> service_pb2.ReportResult:
        try:
            state = await self._backend.run(_command(request), only_checked=only_checked)
        except ApiError as refusal:
            return service_pb2.ReportResult(error=refusal.message, reason=refusal.reason)
        return service_pb2.ReportResult(host=self._host(state, request.name))

    def _host(self, state: State, name: str) -> Any:
        """None where a domain was named."""
        if name not in state.loaded_fabric.index_by_name:
            return None
        return host_message(state, name, self._backend.writer.now_ns())


def _command(request: service_pb2.ReportHostRequest) -> ReportHost:
    gpu = request.gpu if request.HasField("gpu") else None
    return ReportHost(
        request.name,
        request.signal,
        request.detail,
        request.request_id,
        request.value,
        gpu,
        request.xid,
    )
