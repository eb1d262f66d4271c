"""What the server and its gateway say to each other: frames on a socket between two processes."""

from __future__ import annotations

import asyncio
import struct
from enum import IntEnum
from typing import NamedTuple

_HEAD = struct.Struct("=BHI")


class FrameKind(IntEnum):
    # to the gateway
    LEAD = 1  # {"epoch", "ttl_s", "keeps_ranks"}: agents are served from here on
    FOLLOW = 2  # {"leader"}: they are turned away
    SEND = 3  # a word for a host
    DROP = 4  # why the stream of a host ends
    ALIVE = 5  # who says so still is, on either side
    # from the gateway
    READY = 16  # where it listens
    FAILED = 17  # why it does not
    HELLO = 18  # the first word of an agent
    SAID = 19  # another one, unless it is a beat
    BROKEN = 20  # the stream of a host has ended
    LOST = 21  # nothing was heard of a host for a lease
    SILENT = 22  # [host, ...]: a beat of these has not come; said before LOST of some


class Frame(NamedTuple):
    kind: FrameKind
    host: str = ""
    body: bytes = b""

    def encoded(self) -> bytes:
        host = self.host.encode()
        return _HEAD.pack(self.kind, len(host), len(self.body)) + host + self.body


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    """Read one frame. Raises: asyncio.IncompleteReadError when the other side has gone."""
    kind, host_bytes, body_bytes = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    host = await reader.readexactly(host_bytes) if host_bytes else b""
    body = await reader.readexactly(body_bytes) if body_bytes else b""
    return Frame(FrameKind(kind), host.decode(), body)
