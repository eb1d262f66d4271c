"""Handlers with something around their function."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from scheduler.service.interceptors import wrapped


@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream", "stream_unary", "stream_stream"])
def test_a_handler_of_any_kind_keeps_all_but_its_function(kind: str) -> None:
    def around(inner: Any) -> Any:
        return lambda request, context: f"<{inner(request, context)}>"

    handler = getattr(grpc, f"{kind}_rpc_method_handler")(lambda request, _: request, len, str)
    made = wrapped(wrapped(handler, around), around)
    assert getattr(made, kind)("x", None) == "<<x>>"
    assert made.request_deserializer("four") == 4
    assert made.response_serializer is str
    assert (made.request_streaming, made.response_streaming) == (
        handler.request_streaming,
        handler.response_streaming,
    )
