"""Health signals, as a part of the Python client."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from scheduler.v1 import host_pb2, service_pb2, service_pb2_grpc

Message = TypeVar("Message")
PAGE = 500  # reports of one call


class HealthMethods:
    """Methods of a client that has a stub and calls it."""

    _stub: service_pb2_grpc.SchedulerServiceStub

    def _call(
        self, method: Callable[..., Message], request: Any, deadline_s: float | None = None
    ) -> Message:
        raise NotImplementedError

    def report_host(
        self,
        name: str,
        signal: str,
        detail: str = "",
        *,
        value: int = 0,
        gpu: int | None = None,
        xid: int = 0,
        dry_run: bool = False,
    ) -> host_pb2.Host | None:
        """What a monitor saw of a host, or of a domain; None for a domain."""
        request = service_pb2.ReportHostRequest(
            name=name, signal=signal, detail=detail, value=value, gpu=gpu, xid=xid
        )
        request.request_id = str(uuid.uuid4())
        request.validate_only = dry_run
        response = self._call(self._stub.ReportHost, request)
        return response.host if response.HasField("host") else None

    def report_hosts(
        self, reports: Sequence[service_pb2.ReportHostRequest], *, dry_run: bool = False
    ) -> list[service_pb2.ReportResult]:
        """Many reports, in order; for each what became of it."""
        results: list[service_pb2.ReportResult] = []
        for start in range(0, len(reports), PAGE):
            request = service_pb2.ReportHostsRequest(
                reports=reports[start : start + PAGE], validate_only=dry_run
            )
            for one in request.reports:
                one.request_id = one.request_id or str(uuid.uuid4())
            results += self._call(self._stub.ReportHosts, request).results
        return results
