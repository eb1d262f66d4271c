"""Several gRPC servers of one process at one address.

A gRPC server of asyncio accepts one call after the other, and some six turns of the event
loop pass for each: where many ask at once they wait to be accepted, not to be answered.
Servers that share a port accept beside one another, for the kernel deals the connections
out among the sockets that listen there (socket(7), SO_REUSEPORT; on Linux alone). With
one instead of eight, 64 callers get 23 % fewer durable submits, 1,755 a second instead of 2,288
on two quiet cores, and a submit takes 565 us of the processor instead of 428 (bench-service);
sixteen are no better.

It would deal them out to a second muster on that port as well, which is why a port that
somebody listens on is refused. Between that look and the listening nobody else may
come: an abstract socket named after the port keeps the others off (unix(7)).
"""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import grpc

COUNT = 8 if sys.platform == "linux" else 1
_PATIENCE_S, _PAUSE_S = 5.0, 0.01

# Take an address for one of the servers: the port that it got. Raises: RuntimeError.
Take = Callable[[grpc.aio.Server, str], int]


class Listeners:
    """As many of gRPC's servers, of the same handlers. `options`, `interceptors`: of each."""

    def __init__(
        self,
        options: Sequence[tuple[str, int]] = (),
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        count: int = COUNT,
    ) -> None:
        every = (*options, ("grpc.so_reuseport", int(count > 1)))
        self._servers = tuple(
            grpc.aio.server(interceptors=interceptors, options=every) for _ in range(count)
        )

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        for server in self._servers:
            server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: Mapping[str, Any]
    ) -> None:
        """Called by generated code."""
        for server in self._servers:
            server.add_registered_method_handlers(service_name, method_handlers)

    def bind(self, host: str, port: int, take: Take) -> int:
        """The port, which the kernel chooses for 0. Raises: RuntimeError when it is taken."""
        first, *others = self._servers
        # A port of the kernel's choice is nobody else's, one that is not shared gRPC looks after.
        with _alone(host, port) if port and others else nullcontext():
            bound = take(first, f"{host}:{port}")
            for server in others:
                take(server, f"{host}:{bound}")
        return bound

    async def start(self) -> None:
        for server in self._servers:
            await server.start()

    async def stop(self, grace_s: float | None) -> None:
        """Take no more calls; those under way are cut off after `grace_s`, None: at once."""
        await asyncio.gather(*(server.stop(grace_s) for server in self._servers))


@contextmanager
def _alone(host: str, port: int) -> Iterator[None]:
    """Nobody listens there, and nobody else is about to. Raises: RuntimeError."""
    with socket.socket(socket.AF_UNIX) as lock:
        until_s = time.monotonic() + _PATIENCE_S
        while not _bound(lock, f"\0muster-listen-{port}"):
            if time.monotonic() > until_s:
                raise RuntimeError(f"others have been taking port {port} for {_PATIENCE_S} s")
            time.sleep(_PAUSE_S)
        _check_free(host, port)
        yield


def _check_free(host: str, port: int) -> None:
    """Raises: RuntimeError. A host that cannot be found is for gRPC to refuse."""
    with suppress(socket.gaierror):
        kind = socket.SOCK_STREAM
        for family, _, _, _, at in socket.getaddrinfo(host.strip("[]") or None, port, type=kind):
            with socket.socket(family, kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if not _bound(probe, at):
                    raise RuntimeError(f"another process listens on {host}:{port}")


def _bound(taker: socket.socket, address: object) -> bool:
    """Whether the address could be taken; any other obstacle is gRPC's to find again."""
    try:
        taker.bind(address)  # type: ignore[arg-type]
    except OSError as error:
        return error.errno != errno.EADDRINUSE
    return True
