"""The gRPC face of windows, a part of the servicer."""

from __future__ import annotations

from typing import Any

import grpc

from placement.errors import BadInput
from scheduler.core import State
from scheduler.core.commands import Command, RemoveWindow, SetWindow
from scheduler.core.windows.window import Booking
from scheduler.refusal import invalid, not_found, refusals
from scheduler.v1 import service_pb2
from scheduler.windowproto import changed, window_from_proto, window_to_proto
from scheduler.writer import Writer

Context = grpc.aio.ServicerContext[Any, Any]


class WindowCalls:
    """Methods of a servicer that has a writer, and has commands done."""

    @property
    def _writer(self) -> Writer:
        raise NotImplementedError

    async def _done(
        self, command: Command, prefix: str = "", *, only_checked: bool = False
    ) -> State:
        raise NotImplementedError

    async def CreateWindow(
        self, request: service_pb2.CreateWindowRequest, context: Context
    ) -> service_pb2.CreateWindowResponse:
        async with refusals(context):
            try:
                window = window_from_proto(request.window)
            except BadInput as error:
                raise invalid(f"window.{error.field}", error.message) from None
            command = SetWindow(window, request_id=request.request_id)
            state = await self._done(command, "window.", only_checked=request.validate_only)
            made = window_to_proto(state, _booking(state, window.name))
            return service_pb2.CreateWindowResponse(window=made)

    async def ListWindows(
        self, request: service_pb2.ListWindowsRequest, context: Context
    ) -> service_pb2.ListWindowsResponse:
        async with refusals(context):
            state = self._writer.state
            return service_pb2.ListWindowsResponse(
                windows=[window_to_proto(state, booking) for booking in state.windows.values()],
                version=state.version,
            )

    async def UpdateWindow(
        self, request: service_pb2.UpdateWindowRequest, context: Context
    ) -> service_pb2.UpdateWindowResponse:
        async with refusals(context):
            name = request.window.name
            before = _booking(self._writer.state, name).window
            try:
                window = changed(before, request)
            except BadInput as error:
                inner = error.field.startswith("update_mask")
                field = error.field if inner else f"window.{error.field}"
                raise invalid(field, error.message) from None
            command = SetWindow(window, is_change=True, request_id=request.request_id)
            state = await self._done(command, "window.", only_checked=request.validate_only)
            after = window_to_proto(state, _booking(state, name))
            return service_pb2.UpdateWindowResponse(window=after)

    async def DeleteWindow(
        self, request: service_pb2.DeleteWindowRequest, context: Context
    ) -> service_pb2.DeleteWindowResponse:
        async with refusals(context):
            before = self._writer.state
            command = RemoveWindow(request.name, request.reason, request.request_id)
            await self._done(command, only_checked=request.validate_only)
            booking = before.windows.get(request.name)
            was = window_to_proto(before, booking) if booking else None
            return service_pb2.DeleteWindowResponse(window=was)


def _booking(state: State, name: str) -> Booking:
    booking = state.windows.get(name)
    if booking is None:
        raise not_found("window", name)
    return booking
