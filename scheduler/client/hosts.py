"""What there is, what is free and whose it is, as a part of the Python client."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from scheduler.v1 import fabric_pb2, host_pb2, service_pb2, service_pb2_grpc, tenant_pb2

Message = TypeVar("Message")


class HostMethods:
    """Methods of a client that has a stub and calls it."""

    _stub: service_pb2_grpc.SchedulerServiceStub

    def _call(
        self, method: Callable[..., Message], request: Any, deadline_s: float | None = None
    ) -> Message:
        raise NotImplementedError

    def _whole(self, method: Callable[..., Message], request: Any, items: str) -> Message:
        raise NotImplementedError

    def get_fabric(self) -> fabric_pb2.Fabric:
        """Tiers, domains and how many hosts."""
        return self._call(self._stub.GetFabric, service_pb2.GetFabricRequest()).fabric

    def get_host(self, name: str) -> host_pb2.Host:
        return self._call(self._stub.GetHost, service_pb2.GetHostRequest(name=name)).host

    def list_hosts(
        self, states: Collection[host_pb2.HostState.ValueType] = (), job: str = "", filter: str = ""
    ) -> list[host_pb2.Host]:
        """All hosts, page by page, in the order of the fabric."""
        return list(self.hosts_answer(states, job, filter).hosts)

    def hosts_answer(
        self, states: Collection[host_pb2.HostState.ValueType] = (), job: str = "", filter: str = ""
    ) -> service_pb2.ListHostsResponse:
        """The same with the version of the first page: a watch from there misses nothing."""
        request = service_pb2.ListHostsRequest(states=states, job=job, filter=filter)
        return self._whole(self._stub.ListHosts, request, "hosts")

    def list_spares(self) -> service_pb2.ListSparesResponse:
        """The spares of each zone: who holds them, what they survive, what one more buys."""
        return self._whole(self._stub.ListSpares, service_pb2.ListSparesRequest(), "zones")

    def list_slots(
        self,
        sizes: Sequence[int] = (),
        tenant: str = "",
        priority_class: str = "",
        time_limit_s: int | None = None,
    ) -> service_pb2.ListSlotsResponse:
        """How many jobs of each size in GPUs would start now."""
        request = service_pb2.ListSlotsRequest(
            sizes=sizes, tenant=tenant, priority_class=priority_class, time_limit_s=time_limit_s
        )
        return self._call(self._stub.ListSlots, request)

    def get_tenant(self, name: str) -> tenant_pb2.Tenant:
        return self._call(self._stub.GetTenant, service_pb2.GetTenantRequest(name=name)).tenant

    def list_tenants(self, filter: str = "") -> service_pb2.ListTenantsResponse:
        """Quotas, and what each tenant holds and has used, parents before children."""
        request = service_pb2.ListTenantsRequest(filter=filter)
        return self._whole(self._stub.ListTenants, request, "tenants")
