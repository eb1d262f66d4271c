"""A gRPC client of few words: one HTTP/2 connection with one call in flight, on a bare socket.

A client of the gRPC library takes as much of a processor for a call as the server that is
measured. This one sends the same messages and reads every answer to its grpc-status. It
does what RFC 9113 asks of a client that makes one call at a time: SETTINGS and PING are
acknowledged, and the windows of the peer are kept to. The server is asked to index no headers
(RFC 7541, 4.2), so that each header block can be read by itself; its own headers a
connection tells once and then by their numbers, as the library does.
"""

from __future__ import annotations

import socket
from struct import Struct

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _PADDED, _ACK = 1, 4, 8, 1
_TABLE_SIZE, _WINDOW_SIZE, _DEFAULT_WINDOW, _WIDEST = 1, 4, 65_535, 2**31 - 1
_STATIC = 61  # entries of HPACK's own table; a connection's come after, the newest first
_OK = b"\x0bgrpc-status\x010"  # name and value as literals, each behind its length
_HEADERS_OF_ALL = (
    (":method", "POST"),
    (":scheme", "http"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
    ("user-agent", "grpc-python-asyncio/1.85.1 grpc-c/53.1.0 (linux; chttp2)"),
    ("grpc-accept-encoding", "identity, deflate, gzip"),
)

_head = Struct(">BHBBI")  # length in 24 bits, type, flags, stream
_setting = Struct(">HI")
_number = Struct(">I")
_message = Struct(">BI")  # not compressed, length


class WireCallFailed(Exception):
    """A call did not end with grpc-status 0; the message has what came instead."""


class WireConnection:
    """One connection: call `ask`, then `read_answer` whenever the socket is readable, until it
    returns True."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._headers = ((":authority", address), *_HEADERS_OF_ALL)
        self._table: list[tuple[str, str]] = []  # that the server has by now
        self._blocks: dict[tuple[str, int], bytes] = {}  # by path, for the table's length
        self._stream = -1
        self._begun = b""  # of a frame whose end is still to come
        self._length = 0  # bytes of the answer's messages
        self._window = self._stream_window = _DEFAULT_WINDOW  # what the peer takes
        wide = _number.pack(_WIDEST - _DEFAULT_WINDOW)  # 2 GiB of answers
        ours = _setting.pack(_TABLE_SIZE, 0) + _setting.pack(_WINDOW_SIZE, _WIDEST)
        self.socket.sendall(
            _PREFACE + _frame(_SETTINGS, 0, 0, ours) + _frame(_WINDOW_UPDATE, 0, 0, wide)
        )

    def ask(self, path: str, body: bytes) -> None:
        """Begin a call. Raises: WireCallFailed where the peer takes no more bytes now."""
        self._stream += 2
        self._length = 0
        data = _message.pack(0, len(body)) + body
        self._window -= len(data)
        if len(data) > self._stream_window or self._window < 0:
            raise WireCallFailed("the server takes no more")
        self.socket.sendall(
            _frame(_HEADERS, _END_HEADERS, self._stream, self._block(path))
            + _frame(_DATA, _END_STREAM, self._stream, data)
        )

    def close(self) -> None:
        self.socket.close()

    def read_answer(self) -> bool:
        """Read what has come; return whether the call is over. Raises: WireCallFailed."""
        came = self.socket.recv(65_536)
        if not came:
            raise WireCallFailed("the server has closed the connection")
        came, at, is_over = self._begun + came, 0, False
        while len(came) - at >= 9:
            high, low, kind, flags, stream = _head.unpack_from(came, at)
            end = at + 9 + (high << 16 | low)
            if end > len(came):
                break
            is_over |= self._read_frame(kind, flags, stream, came[at + 9 : end])
            at = end
        self._begun = came[at:]
        return is_over

    def _read_frame(self, kind: int, flags: int, stream: int, body: bytes) -> bool:
        """Handle one frame; return whether it ends the call."""
        if kind == _DATA and not flags & _PADDED:
            self._length += len(body)
        elif kind == _HEADERS:
            if not flags & _END_STREAM:
                return False
            if stream != self._stream or _OK not in body or self._length <= _message.size:
                raise WireCallFailed(f"stream {stream}: {self._length} bytes, then {body!r}")
            return True
        elif kind == _SETTINGS and not flags & _ACK:
            for number, value in _setting.iter_unpack(body):
                if number == _WINDOW_SIZE:
                    self._stream_window = value
            self.socket.sendall(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self.socket.sendall(_frame(_PING, _ACK, 0, body))
        elif kind == _WINDOW_UPDATE:
            self._window += _number.unpack(body)[0] if stream == 0 else 0
        elif kind not in (_SETTINGS, _PING):
            raise WireCallFailed(f"a frame of type {kind} on stream {stream}: {body!r}")
        return False

    def _block(self, path: str) -> bytes:
        """The headers of a call: those that the server knows by their numbers."""
        key = path, len(self._table)
        if (known := self._blocks.get(key)) is not None:
            return known
        block, before = bytearray(), len(self._table)
        for entry in ((":path", path), *self._headers):
            if entry in self._table:
                block.append(0x80 | _STATIC + len(self._table) - self._table.index(entry))
            else:
                block += b"\x40" + _text(entry[0]) + _text(entry[1])
                self._table.append(entry)
        if len(self._table) == before:
            self._blocks[key] = bytes(block)
        return bytes(block)


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return _head.pack(len(body) >> 16, len(body) & 0xFFFF, kind, flags, stream) + body


def _text(text: str) -> bytes:
    """A literal of HPACK, not compressed."""
    assert len(text) < 127, text
    return bytes((len(text),)) + text.encode()
