"""How agents give each other copies: one request over a TCP connection, proved by both sides.

Both sides prove that they know the secret of the attempt, which the server has told the agents of
its hosts alone; the same proof covers every byte that is sent. The bytes are not encrypted: they
take the way of the gang's own traffic.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import IO, NamedTuple

import msgspec

from scheduler.agent.copies.job_copies import CopyName, Count, JobCopies

PATIENCE_S = 10.0  # for the other side, whenever it is waited for
SIZE = struct.Struct("!Q")
_LENGTH = struct.Struct("!H")
_MOST_FRAME = 2_048
_PIECE = 1 << 20
_ACCEPTED = b"accepted"


class CopyRefused(Exception):
    """The agent of another host does not take or give a copy; the text says why."""


class CopyRequest(NamedTuple):
    """A request of one agent to another: to take a copy of `size` bytes, or to give one."""

    uid: str
    is_put: bool
    name: CopyName
    size: Count

    @staticmethod
    def decoded(data: bytes) -> CopyRequest | None:
        """Read what another agent sent, which may be anything; None: it is no request."""
        try:
            return msgspec.json.decode(data, type=CopyRequest)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None


@contextlib.contextmanager
def open_request(
    address: str, secret: bytes, request: CopyRequest
) -> Iterator[tuple[socket.socket, hmac.HMAC]]:
    """Connect to an agent that accepts the request, and proves that it may. Raises: OSError,
    CopyRefused."""
    host, _, port = address.rpartition(":")
    try:
        link = socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE_S)
    except (ValueError, OverflowError):
        raise ConnectionError("that is no address") from None
    with link:
        data, nonce = msgspec.json.encode(request), os.urandom(32)
        signed = receive_exactly(link, 32) + nonce + address.encode() + data
        proof = hmac.new(secret, signed, "sha256")
        send_frame(link, data)
        link.sendall(nonce + proof.digest())
        check_answer(link)
        proof.update(_ACCEPTED)
        if not hmac.compare_digest(proof.digest(), receive_exactly(link, 32)):
            raise CopyRefused("who answers there does not know the secret of the job")
        yield link, proof


def accept_request(link: socket.socket, proof: hmac.HMAC) -> None:
    """Tell the other side that its request is accepted, and by whom."""
    proof.update(_ACCEPTED)
    send_frame(link, b"")
    link.sendall(proof.digest())


def refuse_request(link: socket.socket, reason: str) -> CopyRefused:
    """Tell the other side why it is refused. Raises: OSError."""
    send_frame(link, reason.encode()[:_MOST_FRAME])
    return CopyRefused(reason)


def check_answer(link: socket.socket) -> None:
    """Raises: CopyRefused."""
    if reason := receive_frame(link):
        raise CopyRefused(reason.decode("utf-8", "replace"))


def send_frame(link: socket.socket, data: bytes) -> None:
    link.sendall(_LENGTH.pack(len(data)) + data)


def receive_frame(link: socket.socket) -> bytes:
    (size,) = _LENGTH.unpack(receive_exactly(link, _LENGTH.size))
    if size > _MOST_FRAME:
        raise ConnectionError("what came is of another protocol")
    return receive_exactly(link, size)


def receive_exactly(link: socket.socket, size: int) -> bytes:
    data, until_s = b"", time.monotonic() + PATIENCE_S
    while len(data) < size:
        if time.monotonic() > until_s:
            raise TimeoutError("the other side sends too little")
        piece = link.recv(size - len(data))
        if not piece:
            raise ConnectionError("the other side has closed the connection")
        data += piece
    return data


def send_bytes(link: socket.socket, proof: hmac.HMAC, file: IO[bytes], size: int) -> None:
    """Send so many bytes of a file, and the proof of them."""
    left = size
    while left:
        piece = file.read(min(left, _PIECE))
        if not piece:
            raise ConnectionError("the copy was cut short while it was sent")
        proof.update(piece)
        link.sendall(piece)
        left -= len(piece)
    link.sendall(proof.digest())


def receive_file(
    link: socket.socket, proof: hmac.HMAC, job: JobCopies, name: CopyName, size: int
) -> None:
    """Write what comes into memory; it gets its name once all of it is proved.

    Raises: OSError, CopyRefused.
    """
    path = job.peer_folder / f"{name.file}.{threading.get_ident()}.partial"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags, 0o400), "wb") as file:
            piece, left = memoryview(bytearray(_PIECE)), size
            while left:
                count = link.recv_into(piece, min(left, _PIECE))
                if not count:
                    raise ConnectionError("the other side has closed the connection")
                proof.update(piece[:count])
                file.write(piece[:count])
                left -= count
            if not hmac.compare_digest(proof.digest(), receive_exactly(link, 32)):
                raise CopyRefused("what came is not what was sent")
            os.fchown(file.fileno(), job.user.pw_uid, job.user.pw_gid)
        os.rename(path, job.peer_folder / name.file)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
