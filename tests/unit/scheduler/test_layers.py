"""Layers around the methods of a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from scheduler.service.interceptors import Layered, Unknown, remade


class _Server:
    """What a gRPC server is told of methods. It has none by which it would learn them singly."""

    def __init__(self) -> None:
        self._finders: list[grpc.GenericRpcHandler] = []

    def add_generic_rpc_handlers(self, finders: Any) -> None:
        self._finders += finders

    def found(self, method: str) -> Any:
        """As gRPC looks for the handler of a call."""
        details: Any = SimpleNamespace(method=method, invocation_metadata=())
        found = (finder.service(details) for finder in self._finders)
        return next((handler for handler in found if handler is not None), None)


class _Named:
    """Writes its name around what a method answers, and counts what it wraps."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.wrapped: list[str] = []

    def around(self, method: str, handler: Any) -> Any:
        self.wrapped.append(method)
        return remade(handler, lambda inner: lambda *call: f"{self.name}({inner(*call)})")


@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream", "stream_unary", "stream_stream"])
def test_the_first_is_the_outermost_whatever_the_kind(kind: str) -> None:
    server: Any = _Server()
    handler = getattr(grpc, f"{kind}_rpc_method_handler")(lambda request, _: request, len, str)
    layered = Layered(server, [_Named("a"), _Named("b")])
    layered.add_registered_method_handlers("s", {"One": handler})
    made = server.found("/s/One")
    assert getattr(made, kind)("x", None) == "a(b(x))"
    assert (made.request_deserializer, made.response_serializer) == (len, str)


def test_a_method_is_wrapped_once_and_by_its_full_name() -> None:
    server: Any = _Server()
    layer = _Named("a")
    handler = grpc.unary_unary_rpc_method_handler(lambda request, _: request)
    Layered(server, [layer]).add_registered_method_handlers("s", {"One": handler, "Two": handler})
    for _ in range(3):
        server.found("/s/One").unary_unary("x", None)
    assert layer.wrapped == ["/s/One", "/s/Two"]
    assert server.found("/s/Three") is None
    assert server.found("/t/One") is None


def test_what_nobody_registered_is_told_and_not_answered() -> None:
    told: list[int] = []
    unknown = Unknown(lambda: told.append(1))
    details: Any = None
    assert unknown.service(details) is None
    assert told == [1]
