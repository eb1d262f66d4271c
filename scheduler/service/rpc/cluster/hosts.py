"""Calls about hosts: read them, report their health, cordon, uncordon and drain."""

from __future__ import annotations

import asyncio

from scheduler.core import State
from scheduler.core.model.commands import MoveHost, ReportHost
from scheduler.core.model.lifecycle import HostMove
from scheduler.identity import own_jobs
from scheduler.service.backend import Context, Servicer
from scheduler.service.errors import ApiError, invalid, not_found
from scheduler.service.pagination import hosts_page
from scheduler.v1 import host_pb2, service_pb2
from scheduler.wire.jobs import host_to_proto, timestamp
from scheduler.wire.lists.listing import describe_host

MoveRequest = (
    service_pb2.CordonHostRequest | service_pb2.UncordonHostRequest | service_pb2.DrainHostRequest
)

MOST_REPORTS = 1_000


class HostServicer(Servicer):
    async def GetHost(self, request: service_pb2.GetHostRequest, context: Context) -> host_pb2.Host:
        writer = self._backend.writer
        if request.name not in writer.state.loaded_fabric.index_by_name:
            raise not_found("host", request.name)
        message = host_message(writer.state, request.name, writer.now_ns())
        agents = self._backend.agents
        if agents and (reading := agents.host_reading(request.name)) is not None:
            message.probe.readings = reading.text
            message.probe.probe_time.CopyFrom(timestamp(reading.time_ns))
        return message

    async def ListHosts(
        self, request: service_pb2.ListHostsRequest, context: Context
    ) -> service_pb2.ListHostsResponse:
        writer = self._backend.writer
        return await self._backend.reads.make(hosts_page, writer.state, request, writer.now_ns())

    async def ReportHost(
        self, request: service_pb2.ReportHostRequest, context: Context
    ) -> service_pb2.ReportHostResponse:
        state = await self._backend.run(
            _report_command(request), only_checked=request.validate_only
        )
        return service_pb2.ReportHostResponse(host=self._host_of_report(state, request.name))

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
            state = await self._backend.run(_report_command(request), only_checked=only_checked)
        except ApiError as refusal:
            return service_pb2.ReportResult(error=refusal.message, reason=refusal.reason)
        return service_pb2.ReportResult(host=self._host_of_report(state, request.name))

    async def CordonHost(
        self, request: service_pb2.CordonHostRequest, context: Context
    ) -> host_pb2.Host:
        return await self._move_host(request, HostMove.CORDON)

    async def UncordonHost(
        self, request: service_pb2.UncordonHostRequest, context: Context
    ) -> host_pb2.Host:
        return await self._move_host(request, HostMove.UNCORDON)

    async def DrainHost(
        self, request: service_pb2.DrainHostRequest, context: Context
    ) -> host_pb2.Host:
        return await self._move_host(request, HostMove.DRAIN)

    async def _move_host(self, request: MoveRequest, move: HostMove) -> host_pb2.Host:
        command = MoveHost(request.name, move, request.reason, request.etag, request.request_id)
        state = await self._backend.run(command, only_checked=request.validate_only)
        return host_message(state, request.name, self._backend.writer.now_ns())

    def _host_of_report(self, state: State, name: str) -> host_pb2.Host | None:
        """None where a domain was named."""
        if name not in state.loaded_fabric.index_by_name:
            return None
        return host_message(state, name, self._backend.writer.now_ns())


def host_message(state: State, name: str, now_ns: int) -> host_pb2.Host:
    index = state.loaded_fabric.index_by_name[name]
    return host_to_proto(state, describe_host(state, index, own_jobs(state)), now_ns)


def _report_command(request: service_pb2.ReportHostRequest) -> ReportHost:
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
