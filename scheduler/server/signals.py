"""What the system says to a server, and what the server says to systemd."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import suppress

_STOPPING = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """`stop` is set by SIGTERM and Ctrl-C, `reload` by SIGHUP; who waits for it clears it.

    A second SIGTERM or Ctrl-C ends the process at once, which loses nothing: what was
    acknowledged is in the log.
    """

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.reload = asyncio.Event()

    def listen(self) -> Signals:
        """Take the process's signals; to be called on the event loop."""
        loop = asyncio.get_running_loop()
        for number in _STOPPING:
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self.reload.set)
        return self

    def _stop(self) -> None:
        self.stop.set()
        for number in _STOPPING:
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)


def tell_systemd(state: str) -> None:
    """sd_notify: `READY=1`, `STOPPING=1`; nothing without systemd (sd_notify(3))."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.connect("\0" + address[1:] if address[0] == "@" else address)
        out.sendall(state.encode())
