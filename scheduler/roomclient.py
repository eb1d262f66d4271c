"""What is free and whose it is, as a part of the Python client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from scheduler.v1 import service_pb2, service_pb2_grpc

Message = TypeVar("Message")


class RoomMethods:
    """Methods of a client that has a stub and calls it."""

    _stub: service_pb2_grpc.SchedulerServiceStub

    def _call(
        self, method: Callable[..., Message], request: Any, deadline_s: float | None = None
    ) -> Message:
        raise NotImplementedError

    def _whole(self, method: Callable[..., Message], request: Any, items: str) -> Message:
        raise NotImplementedError

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

    def list_tenants(self) -> service_pb2.ListTenantsResponse:
        """Quotas, and what each tenant holds and has used, parents before children."""
        return self._whole(self._stub.ListTenants, service_pb2.ListTenantsRequest(), "tenants")
