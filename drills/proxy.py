"""A TCP proxy that can be told to swallow everything, as a broken network does.

Connections stay open and new ones are accepted: nobody gets an error, nobody an answer.
What was swallowed is delivered when the cut is healed, late.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Event, Thread

_CHUNK_BYTES = 65_536


class Proxy:
    """Forwards loopback `port` to `target`, until `close`."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._open = Event()
        self._open.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._listener]
        self.port = int(self._listener.getsockname()[1])
        Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._open.clear()

    def heal(self) -> None:
        self._open.set()

    def close(self) -> None:
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._open.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        self._sockets.append(near)
        self._open.wait()
        with suppress(OSError):
            far = socket.create_connection(self._target)
            self._sockets.append(far)
            Thread(target=self._pump, args=(near, far), daemon=True).start()
            self._pump(far, near)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                self._open.wait()
                sink.sendall(data)
        self._open.wait()
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
