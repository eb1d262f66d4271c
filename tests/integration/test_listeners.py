"""Several gRPC servers at one address: all of them answer, and nobody else comes between."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier

import grpc
import pytest

from scheduler.service.listeners import COUNT, Listeners
from tests.ports import free_port

CALLERS = 32


def _answering() -> grpc.GenericRpcHandler:
    async def answer(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        return request

    handler = grpc.unary_unary_rpc_method_handler(answer)
    return grpc.method_handlers_generic_handler("test.Echo", {"Echo": handler})


def _open(server: grpc.aio.Server, address: str) -> int:
    return server.add_insecure_port(address)


async def _ask(address: str) -> bytes:
    async with grpc.aio.insecure_channel(address, (("grpc.use_local_subchannel_pool", 1),)) as one:
        answer: bytes = await one.unary_unary("/test.Echo/Echo")(b"who")
        return answer


@pytest.mark.skipif(COUNT == 1, reason="here listeners do not share a port")
async def test_each_of_many_connections_is_answered_by_one_of_them() -> None:
    listeners = Listeners(count=4)
    listeners.add_generic_rpc_handlers((_answering(),))
    port = listeners.bind("127.0.0.1", 0, _open)
    await listeners.start()
    assert _listening(port) == 4
    answers = await asyncio.gather(*(_ask(f"127.0.0.1:{port}") for _ in range(CALLERS)))
    assert answers == [b"who"] * CALLERS
    await listeners.stop(None)
    assert _listening(port) == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
@pytest.mark.skipif(COUNT == 1, reason="here gRPC itself refuses")
async def test_a_port_that_others_share_is_refused_all_the_same(host: str) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        listeners = Listeners()
        with pytest.raises(RuntimeError, match="another process listens on"):
            listeners.bind(host, other.getsockname()[1], _open)
        await listeners.stop(None)


@pytest.mark.skipif(COUNT == 1, reason="here listeners do not share a port")
async def test_of_many_who_take_a_port_at_once_one_gets_it() -> None:
    def take(_: grpc.aio.Server, address: str) -> int:
        """A socket that shares its port with anybody, as gRPC's does."""
        host, _, port = address.rpartition(":")
        taken = held.enter_context(socket.socket())
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind((host, int(port)))
        taken.listen()
        return int(port)

    def attempt(listeners: Listeners) -> bool:
        together.wait()
        try:
            return listeners.bind("127.0.0.1", port, take) == port
        except RuntimeError:
            return False

    every = [Listeners() for _ in range(4)]
    for _ in range(10):
        port, together = free_port(), Barrier(4)
        with ExitStack() as held, ThreadPoolExecutor(4) as threads:
            got = list(threads.map(attempt, every))
        assert sorted(got) == [False, False, False, True]
    for listeners in every:
        await listeners.stop(None)


def _listening(port: int) -> int:
    """Sockets that listen there (proc(5), /proc/net/tcp: state 0A)."""
    tables = (Path("/proc/net", name).read_text().splitlines()[1:] for name in ("tcp", "tcp6"))
    rows = [line.split() for table in tables for line in table]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)
