"""What the interceptors of a server share: each handler with something around its function, made
once."""

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


def _encoding(serializer: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    def encode(message: Any) -> bytes:
        # A message that is bytes already was made once for all streams that send it.
        return message if isinstance(message, bytes) else serializer(message)

    return encode


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
    encode = handler.response_serializer
    if handler.response_streaming and encode is not None:
        encode = _encoding(encode)
    made: Handler = make(function, decode, encode)
    return made


class WrappingInterceptor(grpc.aio.ServerInterceptor):
    """Wraps the handler of each method when it is first called, and keeps it."""

    def __init__(self) -> None:
        self._wrapped: dict[str, Handler] = {}

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        handler, method = await continuation(handler_call_details), handler_call_details.method
        if handler is None:  # no method has this name, which is the caller's, and not kept
            self.note_unknown()
            return None
        known = self._wrapped.get(method)
        if known is None:
            known = self._wrapped[method] = self.wrap(method, handler)
        return known

    def wrap(self, method: str, handler: Handler) -> Handler:
        """Return the handler of /SERVICE/METHOD with this interceptor around it, or as it is."""
        raise NotImplementedError

    def note_unknown(self) -> None:
        """Note a call of a method that nobody has."""
