"""The gRPC face of what there is, the fabric, its hosts and tenants; a part of the servicer."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from scheduler.core.tenancy.standing import standings
from scheduler.engine.writer import Writer
from scheduler.identity import caller
from scheduler.service import pagination
from scheduler.service.errors import error_boundary, not_found
from scheduler.service.queries import host_message
from scheduler.v1 import service_pb2
from scheduler.wire.tenants import fabric_to_proto, tenant_to_proto

Context = grpc.aio.ServicerContext[Any, Any]


class HostCalls:
    """Methods of a servicer that has a writer. A tenant that does not concern the caller is
    not there."""

    @property
    def _writer(self) -> Writer:
        raise NotImplementedError

    async def GetFabric(
        self, request: service_pb2.GetFabricRequest, context: Context
    ) -> service_pb2.GetFabricResponse:
        async with error_boundary(context):
            fabric = await asyncio.to_thread(fabric_to_proto, self._writer.state)
            return service_pb2.GetFabricResponse(fabric=fabric)

    async def GetTenant(
        self, request: service_pb2.GetTenantRequest, context: Context
    ) -> service_pb2.GetTenantResponse:
        async with error_boundary(context):
            state, now_ns = self._writer.state, self._writer.now_ns()
            name = request.name
            if name not in state.tenants.by_name or not caller().knows(state.tenants, name):
                raise not_found("tenant", name)
            found = next(one for one in standings(state, now_ns) if one.tenant.name == name)
            return service_pb2.GetTenantResponse(tenant=tenant_to_proto(state, found))

    async def ListTenants(
        self, request: service_pb2.ListTenantsRequest, context: Context
    ) -> service_pb2.ListTenantsResponse:
        async with error_boundary(context):
            return pagination.tenants_page(self._writer.state, request, self._writer.now_ns())

    async def GetHost(
        self, request: service_pb2.GetHostRequest, context: Context
    ) -> service_pb2.GetHostResponse:
        async with error_boundary(context):
            state = self._writer.state
            if request.name not in state.loaded_fabric.index_by_name:
                raise not_found("host", request.name)
            host = host_message(state, request.name, self._writer.now_ns())
            return service_pb2.GetHostResponse(host=host)

    async def ListHosts(
        self, request: service_pb2.ListHostsRequest, context: Context
    ) -> service_pb2.ListHostsResponse:
        async with error_boundary(context):
            state, now_ns = self._writer.state, self._writer.now_ns()
            return await asyncio.to_thread(pagination.hosts_page, state, request, now_ns)
