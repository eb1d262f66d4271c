"""What the interceptors of a server share: a handler with something around its function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Continuation: TypeAlias = "Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]"

_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


def wrapped(handler: Handler, around: Callable[[Any], Any]) -> Handler:
    """The handler, whichever of gRPC's four kinds it is of, with `around` its function."""
    kind = next(kind for kind in _KINDS if getattr(handler, kind) is not None)
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    function = around(getattr(handler, kind))
    made: Handler = make(function, handler.request_deserializer, handler.response_serializer)
    return made
