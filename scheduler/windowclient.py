"""Windows, as a part of the Python client."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from google.protobuf.field_mask_pb2 import FieldMask

from scheduler.v1 import service_pb2, service_pb2_grpc, window_pb2

Message = TypeVar("Message")


class WindowMethods:
    """Methods of a client that has a stub and calls it."""

    _stub: service_pb2_grpc.SchedulerServiceStub

    def _call(
        self, method: Callable[..., Message], request: Any, deadline_s: float | None = None
    ) -> Message:
        raise NotImplementedError

    def create_window(
        self, window: window_pb2.Window, request_id: str = "", *, dry_run: bool = False
    ) -> window_pb2.Window:
        """Keep hosts for maintenance, or hold them for somebody, between two moments."""
        request = service_pb2.CreateWindowRequest(
            window=window, request_id=request_id or str(uuid.uuid4()), validate_only=dry_run
        )
        return self._call(self._stub.CreateWindow, request).window

    def list_windows(self) -> service_pb2.ListWindowsResponse:
        """Those that are not over, in the order in which they were made."""
        request = service_pb2.ListWindowsRequest()
        return self._call(self._stub.ListWindows, request)

    def update_window(
        self,
        window: window_pb2.Window,
        fields: Sequence[str],
        request_id: str = "",
        *,
        dry_run: bool = False,
    ) -> window_pb2.Window:
        """Give these fields of the window of that name the values in `window`."""
        request = service_pb2.UpdateWindowRequest(
            window=window,
            update_mask=FieldMask(paths=fields),
            request_id=request_id or str(uuid.uuid4()),
            validate_only=dry_run,
        )
        return self._call(self._stub.UpdateWindow, request).window

    def delete_window(
        self, name: str, reason: str = "", request_id: str = "", *, dry_run: bool = False
    ) -> window_pb2.Window:
        """Remove the window; the answer is what it was."""
        request = service_pb2.DeleteWindowRequest(
            name=name,
            reason=reason,
            request_id=request_id or str(uuid.uuid4()),
            validate_only=dry_run,
        )
        return self._call(self._stub.DeleteWindow, request).window
