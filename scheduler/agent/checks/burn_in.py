"""Checks of an idle host: that its GPUs are there, how fast its memory and its network are, and
what else the site asks for, by the machinery of gates."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import socket
import struct
import time
from collections.abc import Awaitable, Callable

from scheduler.agent.checks.gate import MOST_SHOWN, GateFailed, run_gate
from scheduler.agent.ranks.allow import AllowList, NotAllowed
from scheduler.agent.ranks.order import order_of
from scheduler.v1 import agent_pb2

NETWORK = "network"
_COPIED, _COPIES = 64 << 20, 8  # bytes of a copy, and how many are timed
_SENT_S = 2.0  # for which a host sends to its peer
_PIECE = 4 << 20
_LISTEN_S = 1_800.0  # for which a peer may come
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")

log = logging.getLogger("muster.agent")


class BurnIn:
    """Runs checks of an idle host. `address`: at which other hosts reach this one. `search`: PATH
    of the checks."""

    def __init__(self, allowed: AllowList, address: str, search: str) -> None:
        self._allowed, self._address, self._search = allowed, address, search
        self._listening: asyncio.Task[None] | None = None

    async def check(self, order: agent_pb2.CheckHost) -> agent_pb2.HostChecked:
        """Run the checks, up to the first that fails, and return what they measured."""
        answer = agent_pb2.HostChecked(request_id=order.request_id)
        for check in order.checks:
            try:
                if check.command:
                    value = await self._run(check)
                elif check.name == NETWORK and not order.peer:
                    answer.address, value = self._listen(order.request_id), None
                elif check.name == NETWORK:
                    value = await asyncio.to_thread(send_to, order.peer, order.request_id)
                else:
                    value = await _BUILT_IN[check.name](order.gpus)
            except (GateFailed, NotAllowed, OSError, ValueError, KeyError) as error:
                answer.failure = f"{check.name}: {error}"
                return answer
            if value is not None:
                answer.measures[check.name] = value
        return answer

    async def _run(self, check: agent_pb2.Gate) -> float | None:
        """Run a program of the site; return the last number in its output, None without one."""
        user = self._allowed.own_name
        if check.command[0] not in self._allowed.gates:
            user = self._allowed.user("").pw_name
        order = order_of(agent_pb2.Prepare(job="burn-in"), user, "/") | {"cgroup": None}
        said = await run_gate(check, order, self._allowed, self._search)
        numbers = _NUMBER.findall(said)
        return float(numbers[-1]) if numbers else None

    def _listen(self, token: str) -> str:
        """Receive what peers send that know `token`, for a while; return HOST:PORT."""
        listening = socket.create_server(("", 0))
        if self._listening is not None:
            self._listening.cancel()
        self._listening = asyncio.create_task(_receive(listening, token))
        return f"{self._address}:{listening.getsockname()[1]}"


async def _receive(listening: socket.socket, token: str) -> None:
    listening.setblocking(False)
    loop = asyncio.get_running_loop()
    with listening:
        try:
            async with asyncio.timeout(_LISTEN_S):
                while True:
                    link, _ = await loop.sock_accept(listening)
                    await asyncio.to_thread(_take, link, token)
        except TimeoutError:
            return


def _take(link: socket.socket, token: str) -> None:
    """Count what one peer sends, and tell it when it ends."""
    buffer, count = bytearray(_PIECE), 0
    with link:
        link.settimeout(5 * _SENT_S)
        try:
            if link.recv(len(token), socket.MSG_WAITALL) != token.encode():
                return
            while size := link.recv_into(buffer):
                count += size
            link.sendall(struct.pack("!Q", count))
        except OSError as error:
            log.info("a peer of the check network is gone: %s", error)


def send_to(peer: str, token: str) -> float:
    """Send to the host that listens at `peer` over one TCP stream, and return how fast the bytes
    came there, in GB/s. Raises: OSError."""
    host, _, port = peer.rpartition(":")
    piece, sent = bytes(_PIECE), 0
    with socket.create_connection((host.strip("[]"), int(port)), timeout=5 * _SENT_S) as link:
        link.sendall(token.encode())
        began_s = time.monotonic()
        while time.monotonic() - began_s < _SENT_S:
            link.sendall(piece)
            sent += len(piece)
        link.shutdown(socket.SHUT_WR)
        if link.recv(8, socket.MSG_WAITALL) != struct.pack("!Q", sent):
            raise ConnectionError(f"{peer} has not received what was sent")
        return sent / (time.monotonic() - began_s) / 1e9


async def _count_gpus(wanted: int) -> float | None:
    """Compare the GPUs that the driver lists with those of the fabric. Raises: GateFailed."""
    path = shutil.which("nvidia-smi")
    if path is None:
        return None
    process = await asyncio.create_subprocess_exec(
        path,
        "--query-gpu=uuid",
        "--format=csv,noheader",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    lines = output.decode("utf-8", "replace").split("\n")
    count = sum("GPU-" in line for line in lines)
    if process.returncode or count < wanted:
        words = " ".join(lines).strip()[-MOST_SHOWN:]
        reason = words if process.returncode else f"{count} of {wanted} GPUs are there"
        raise GateFailed(reason, is_of_site=True)
    return None


async def _copy_memory(_: int) -> float:
    return await asyncio.to_thread(copy_rate)


def copy_rate() -> float:
    """Return how fast one core copies memory: bytes read and written, in GB/s, of the best copy."""
    source, target = bytearray(_COPIED), bytearray(_COPIED)
    best_s = float("inf")
    for _ in range(_COPIES):
        began_s = time.perf_counter()
        target[:] = source
        best_s = min(best_s, time.perf_counter() - began_s)
    return 2 * _COPIED / best_s / 1e9


_BUILT_IN: dict[str, Callable[[int], Awaitable[float | None]]] = {
    "gpus": _count_gpus,
    "memory": _copy_memory,
}
