"""What stands around every method of a server: each method is wrapped when it is registered.

gRPC asks its own interceptors anew for each call, through a chain of coroutines: 15 us for
one, 40 for three. What they look at, a call's metadata and its request, the wrapped method
has too, so what was made once serves every call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import grpc

from scheduler.service.listeners import Listeners

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class Interceptor(Protocol):
    """One of them."""

    def around(self, method: str, handler: Handler) -> Handler:
        """`handler` with this layer around it. `method`: its full name, `/service/Method`."""


class Layered:
    """Stands before `server` while services are registered. `layers`: the outermost first."""

    def __init__(self, server: Listeners, layers: Sequence[Interceptor]) -> None:
        self._server = server
        self._layers = tuple(layers)

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: Mapping[str, Handler]
    ) -> None:
        """Called by the generated code of each service, with all of its methods.

        The server learns them as one handler that finds a method by its name. For methods
        that it knows singly gRPC keeps a pending accept each, and at every call waits on all
        of them anew: 25 us a wait with the methods of this service, and more of others' time.
        """
        wrapped = {
            name: self._wrapped(f"/{service_name}/{name}", handler)
            for name, handler in method_handlers.items()
        }
        found = grpc.method_handlers_generic_handler(service_name, wrapped)
        self._server.add_generic_rpc_handlers((found,))

    def add_generic_rpc_handlers(self, _: object) -> None:
        """The same methods again, as generated code makes them: without layers, so not taken."""

    def _wrapped(self, method: str, handler: Handler) -> Handler:
        for layer in reversed(self._layers):
            handler = layer.around(method, handler)
        return handler


class Unknown(grpc.GenericRpcHandler):
    """Told of each call of a method that nobody has registered, which ends UNIMPLEMENTED."""

    def __init__(self, told: Callable[[], None]) -> None:
        self._told = told

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> None:
        self._told()


def remade(handler: Handler, around: Callable[[Any], Any]) -> Handler:
    """The handler, whichever of gRPC's four kinds it is of, with `around` its function."""
    for kind in _KINDS:
        if (inner := getattr(handler, kind)) is not None:
            make = getattr(grpc, f"{kind}_rpc_method_handler")
            made: Handler = make(
                around(inner), handler.request_deserializer, handler.response_serializer
            )
            return made
    return handler
