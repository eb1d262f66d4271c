"""Windows, as a part of the Python client."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
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

    def _whole(self, method: Callable[..., Message], request: Any, items: str) -> Message:
        raise NotImplementedError

    def _watch(self, open_stream: Callable[[int | None], Any], after: int | None) -> Iterator[Any]:
        raise NotImplementedError

    def create_window(
        self, window: window_pb2.Window, request_id: str = "", *, dry_run: bool = False
    ) -> window_pb2.Window:
        """Keep hosts for maintenance, or hold them for somebody, between two moments."""
        request = service_pb2.CreateWindowRequest(
            window=window, request_id=request_id or str(uuid.uuid4()), validate_only=dry_run
        )
        return self._call(self._stub.CreateWindow, request).window

    def get_window(self, name: str) -> window_pb2.Window:
        """One that is not over."""
        return self._call(self._stub.GetWindow, service_pb2.GetWindowRequest(name=name)).window

    def list_windows(
        self,
        states: Collection[window_pb2.WindowState.ValueType] = (),
        filter: str = "",
        order_by: str = "",
    ) -> list[window_pb2.Window]:
        """All that are not over, page by page, by default in the order in which they were
        made."""
        return list(self.windows_answer(states, filter, order_by).windows)

    def windows_answer(
        self,
        states: Collection[window_pb2.WindowState.ValueType] = (),
        filter: str = "",
        order_by: str = "",
    ) -> service_pb2.ListWindowsResponse:
        """The same with the version of the first page: a watch from there misses nothing."""
        request = service_pb2.ListWindowsRequest(states=states, filter=filter, order_by=order_by)
        return self._whole(self._stub.ListWindows, request, "windows")

    def watch_windows(
        self, after_version: int | None = None, name: str = ""
    ) -> Iterator[service_pb2.WatchWindowsResponse]:
        """Every change of windows, or of those of one name; as `watch_jobs`."""

        def stream(after: int | None) -> Any:
            request = service_pb2.WatchWindowsRequest(after_version=after, name=name)
            return self._stub.WatchWindows(request)

        return self._watch(stream, after_version)

    def update_window(
        self,
        window: window_pb2.Window,
        fields: Sequence[str],
        request_id: str = "",
        *,
        dry_run: bool = False,
    ) -> window_pb2.Window:
        """Give these fields of the window of that name the values in `window`.

        With `window.etag` set, only if the window is as it was then.
        """
        request = service_pb2.UpdateWindowRequest(
            window=window,
            update_mask=FieldMask(paths=fields),
            request_id=request_id or str(uuid.uuid4()),
            validate_only=dry_run,
        )
        return self._call(self._stub.UpdateWindow, request).window

    def delete_window(
        self,
        name: str,
        reason: str = "",
        request_id: str = "",
        *,
        etag: str = "",
        dry_run: bool = False,
    ) -> window_pb2.Window:
        """Remove the window; the answer is what it was. With `etag`, only if it still is."""
        request = service_pb2.DeleteWindowRequest(
            name=name,
            reason=reason,
            etag=etag,
            request_id=request_id or str(uuid.uuid4()),
            validate_only=dry_run,
        )
        return self._call(self._stub.DeleteWindow, request).window
