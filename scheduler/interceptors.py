"""Interceptors as one, that wraps each method once and not at every call.

An interceptor sees a call's metadata while it wraps the method; those here look at it
when the wrapped method runs, so that what they made serves every call. gRPC asks each
interceptor anew for each call, which for three costs 40 us.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import grpc

Found: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Found]]


class Once(grpc.aio.ServerInterceptor):
    """`inner`: the outermost first. Each must make the same of a method at every call."""

    def __init__(self, inner: Sequence[grpc.aio.ServerInterceptor]) -> None:
        self._inner = tuple(inner)
        self._made: dict[str, Found] = {}

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Found:
        method = str(handler_call_details.method)
        if method in self._made:
            return self._made[method]
        for interceptor in reversed(self._inner):
            continuation = _before(interceptor, continuation)
        handler = await continuation(handler_call_details)
        if handler is not None:  # the names of methods that are none are the callers' own
            self._made[method] = handler
        return handler


def _before(interceptor: grpc.aio.ServerInterceptor, following: Continuation) -> Continuation:
    async def handler(details: grpc.HandlerCallDetails) -> Found:
        found: Found = await interceptor.intercept_service(following, details)
        return found

    return handler
