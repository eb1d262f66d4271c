"""Several interceptors as one."""

from __future__ import annotations

from typing import Any, NamedTuple

import grpc
import pytest

from scheduler.interceptors import Once


class _Details(NamedTuple):
    method: str


class _Named(grpc.aio.ServerInterceptor):
    """Writes its name around what it is given, and counts."""

    def __init__(self, name: str) -> None:
        self.name, self.count = name, 0

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        self.count += 1
        inner = await continuation(handler_call_details)
        return None if inner is None else f"{self.name}({inner})"


async def _known(details: Any) -> Any:
    return None if details.method == "/a/Nothing" else details.method


@pytest.mark.parametrize("method", ["/a/One", "/a/Two"])
async def test_the_first_is_the_outermost(method: str) -> None:
    once: Any = Once([_Named("a"), _Named("b")])
    assert await once.intercept_service(_known, _Details(method)) == f"a(b({method}))"


async def test_a_method_is_wrapped_once() -> None:
    inner = _Named("a")
    once: Any = Once([inner])
    found = [await once.intercept_service(_known, _Details("/a/One")) for _ in range(3)]
    assert found == ["a(/a/One)"] * 3
    assert inner.count == 1


async def test_a_method_that_is_none_is_asked_for_each_time_and_not_kept() -> None:
    inner = _Named("a")
    once: Any = Once([inner])
    found = [await once.intercept_service(_known, _Details("/a/Nothing")) for _ in range(3)]
    assert found == [None] * 3
    assert inner.count == 3
