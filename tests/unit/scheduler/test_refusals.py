"""What ends a call, and what has ended it already."""

from typing import Any

import grpc
import pytest

from scheduler.access.methods import ANY_CALL, ANY_CHANGE, METHODS
from scheduler.service.errors import RULES, error_boundary, not_found, word
from scheduler.service.interceptors import wrapped


class _Context:
    """A call whose abort ends as `ends`. Counts aborts."""

    def __init__(self, ends: Exception) -> None:
        self.ends, self.aborts = ends, 0

    async def abort_with_status(self, _: object) -> None:
        self.aborts += 1
        raise self.ends


async def test_a_call_is_ended_once_however_many_layers_look_at_it() -> None:
    for ends in [grpc.aio.AbortError(), grpc.aio.InternalError("caller is gone")]:
        context: Any = _Context(ends)
        async with error_boundary(context):
            pass
        assert context.aborts == 0
        with pytest.raises(type(ends)) as raised:
            async with error_boundary(context), error_boundary(context), error_boundary(context):
                raise not_found("job", "a")
        assert raised.value is ends
        assert context.aborts == 1


def test_every_reason_is_one_of_some_method_and_no_other_is_named() -> None:
    named = {reason for rule in METHODS.values() for reason in rule.refused}
    assert named | {*ANY_CALL, *ANY_CHANGE} == {word(reason) for reason in RULES}


# --- handlers with something around their function -----------------------------------


def test_a_handler_of_any_kind_keeps_all_but_its_function() -> None:
    def around(inner: Any) -> Any:
        return lambda request, context: f"<{inner(request, context)}>"

    for kind in ("unary_unary", "unary_stream", "stream_unary", "stream_stream"):
        handler = getattr(grpc, f"{kind}_rpc_method_handler")(lambda request, _: request, len, str)
        made = wrapped(wrapped(handler, around), around)
        assert getattr(made, kind)("x", None) == "<<x>>"
        assert made.request_deserializer("four") == 4
        assert made.response_serializer(5) == "5"
        assert (made.request_streaming, made.response_streaming) == (
            handler.request_streaming,
            handler.response_streaming,
        )
