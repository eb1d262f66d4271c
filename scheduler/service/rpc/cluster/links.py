"""Calls about the uplinks of domains: read them, report what they carry, say who may cross."""

from __future__ import annotations

from scheduler.core.model.commands import MoveLink, ReportLink
from scheduler.core.model.lifecycle import LinkMove
from scheduler.identity import own_jobs
from scheduler.service.backend import Context, Servicer
from scheduler.service.pagination import links_page
from scheduler.v1 import link_pb2, service_pb2
from scheduler.wire.cluster.links import link_to_proto

MoveRequest = (
    service_pb2.CordonLinkRequest | service_pb2.UncordonLinkRequest | service_pb2.DrainLinkRequest
)


class LinkServicer(Servicer):
    async def ListLinks(
        self, request: service_pb2.ListLinksRequest, context: Context
    ) -> service_pb2.ListLinksResponse:
        return await self._backend.reads.make(links_page, self._backend.writer.state, request)

    async def ReportLink(
        self, request: service_pb2.ReportLinkRequest, context: Context
    ) -> link_pb2.Link:
        command = ReportLink(request.name, request.share, request.detail, request.request_id)
        state = await self._backend.run(command, only_checked=request.validate_only)
        return link_to_proto(state, request.name, own_jobs(state))

    async def CordonLink(
        self, request: service_pb2.CordonLinkRequest, context: Context
    ) -> link_pb2.Link:
        return await self._move_link(request, LinkMove.CORDON)

    async def UncordonLink(
        self, request: service_pb2.UncordonLinkRequest, context: Context
    ) -> link_pb2.Link:
        return await self._move_link(request, LinkMove.UNCORDON)

    async def DrainLink(
        self, request: service_pb2.DrainLinkRequest, context: Context
    ) -> link_pb2.Link:
        return await self._move_link(request, LinkMove.DRAIN)

    async def _move_link(self, request: MoveRequest, move: LinkMove) -> link_pb2.Link:
        command = MoveLink(request.name, move, request.reason, request.etag, request.request_id)
        state = await self._backend.run(command, only_checked=request.validate_only)
        return link_to_proto(state, request.name, own_jobs(state))
