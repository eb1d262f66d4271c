"""What the interceptors of a server share: a handler with something around its function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from muster.structs import struct

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Continuation: TypeAlias = "Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]"

_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


@struct(frozen=True, slots=True)
class Undecodable:
    """Stands for a request whose bytes cannot be decoded."""

    reason: str


def _decoding(deserializer: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def decode(content: bytes) -> Any:
        try:
            return deserializer(content)
        except DecodeError as error:
            return Undecodable(str(error))

    return decode


def wrapped(handler: Handler, around: Callable[[Any], Any]) -> Handler:
    """Return a gRPC handler, of whichever of the four kinds, with `around` put around its function,
    which may get an Undecodable."""
    kind = next(kind for kind in _KINDS if getattr(handler, kind) is not None)
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    function = around(getattr(handler, kind))
    decode = _decoding(handler.request_deserializer) if handler.request_deserializer else None
    made: Handler = make(function, decode, handler.response_serializer)
    return made
