"""Calls about tenants. A tenant that does not concern the caller is not there."""

from __future__ import annotations

from scheduler.core.tenancy.standing import standings
from scheduler.identity import caller
from scheduler.service.backend import Context, Servicer
from scheduler.service.errors import not_found
from scheduler.service.pagination import tenants_page
from scheduler.v1 import service_pb2, tenant_pb2
from scheduler.wire.cluster.tenants import tenant_to_proto


class TenantServicer(Servicer):
    async def GetTenant(
        self, request: service_pb2.GetTenantRequest, context: Context
    ) -> tenant_pb2.Tenant:
        state, now_ns = self._backend.writer.state, self._backend.writer.now_ns()
        name = request.name
        if name not in state.tenants.by_name or not caller().knows(state.tenants, name):
            raise not_found("tenant", name)
        standing = next(s for s in standings(state, now_ns) if s.tenant.name == name)
        return tenant_to_proto(state, standing)

    async def ListTenants(
        self, request: service_pb2.ListTenantsRequest, context: Context
    ) -> service_pb2.ListTenantsResponse:
        writer = self._backend.writer
        return tenants_page(writer.state, request, writer.now_ns())
