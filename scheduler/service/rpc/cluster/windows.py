"""Calls about windows."""

from __future__ import annotations

from muster.structs import replace
from placement import BadInput
from scheduler.core import State
from scheduler.core.admission.etag import window_etag
from scheduler.core.model.commands import RemoveWindow, SetWindow
from scheduler.core.model.window import Booking, Window
from scheduler.identity import own_windows
from scheduler.service.backend import Context, Servicer
from scheduler.service.errors import ApiError, conflict, invalid, not_found, wrong_state
from scheduler.service.names import pattern_of
from scheduler.service.pagination import windows_page
from scheduler.v1 import error_pb2, service_pb2, window_pb2
from scheduler.wire.cluster.windows import changed, window_from_proto, window_to_proto


class WindowServicer(Servicer):
    async def CreateWindow(
        self, request: service_pb2.CreateWindowRequest, context: Context
    ) -> window_pb2.Window:
        try:
            window = window_from_proto(request.window)
        except BadInput as error:
            raise invalid(f"window.{error.field}", error.message) from None
        window = _in_full(self._backend.writer.state, window)
        command = SetWindow(window, request_id=request.request_id)
        state = await self._backend.run(command, "window.", only_checked=request.validate_only)
        booking = state.windows.get(window.name)
        if booking is None:
            raise wrong_state(f"window {window.name}, which this request made before, is over")
        return window_to_proto(state, booking)

    async def GetWindow(
        self, request: service_pb2.GetWindowRequest, context: Context
    ) -> window_pb2.Window:
        state = self._backend.writer.state
        booking = _booking(state, request.name)
        if not own_windows(state)(booking):
            raise not_found("window", request.name)
        return window_to_proto(state, booking)

    async def ListWindows(
        self, request: service_pb2.ListWindowsRequest, context: Context
    ) -> service_pb2.ListWindowsResponse:
        return await self._backend.reads.make(windows_page, self._backend.writer.state, request)

    async def UpdateWindow(
        self, request: service_pb2.UpdateWindowRequest, context: Context
    ) -> window_pb2.Window:
        name = request.window.name
        before = _booking(self._backend.writer.state, name)
        try:
            window = changed(before.window, request)
        except BadInput as error:
            inner = error.field.startswith("update_mask")
            field = error.field if inner else f"window.{error.field}"
            raise invalid(field, error.message) from None
        window = _in_full(self._backend.writer.state, window)
        given = request.window.etag
        command = SetWindow(window, True, given or window_etag(before), request.request_id)
        try:
            state = await self._backend.run(command, "window.", only_checked=request.validate_only)
        except ApiError as refusal:  # the fields left alone would go back to what they were
            if given or refusal.reason != error_pb2.ERROR_REASON_ETAG_MISMATCH:
                raise
            raise conflict(f"window {name} changed meanwhile") from None
        return window_to_proto(state, _booking(state, name))

    async def DeleteWindow(
        self, request: service_pb2.DeleteWindowRequest, context: Context
    ) -> window_pb2.Window:
        before = self._backend.writer.state
        command = RemoveWindow(request.name, request.reason, request.etag, request.request_id)
        after = await self._backend.run(command, only_checked=request.validate_only)
        booking = before.windows.get(request.name)
        is_another = request.name in after.windows and not request.validate_only
        if booking is None or is_another:  # an earlier call with this request id removed it
            return window_pb2.Window(name=request.name, state=window_pb2.WINDOW_STATE_OVER)
        return window_to_proto(before, booking)


def _in_full(state: State, window: Window) -> Window:
    """The window with full names of the jobs that it is for. Raises: ApiError."""
    jobs = tuple(
        pattern_of(state, text, f"window.jobs[{at}]") for at, text in enumerate(window.jobs)
    )
    return replace(window, jobs=jobs)


def _booking(state: State, name: str) -> Booking:
    booking = state.windows.get(name)
    if booking is None:
        raise not_found("window", name)
    return booking
