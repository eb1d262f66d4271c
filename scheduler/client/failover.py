"""One channel over several servers that share a store: calls find the one that can answer.

    address "a:7443,b:7443,c:7443"

A call goes to the server that answered last. When that one is gone, does not lead, or has
not seen enough, the call is put again: to the leader it names, else to the next in the
list, until the deadline of the call, or until nobody has answered anything for a while.
Repeating is safe for the same reason as with one server: see client.

A leader that others name, and that does not answer here, is asked again until the deadline of the
call: it may be about to be replaced. After a few seconds that is logged, for it may also be this
client that is cut off from it: from then on the others are asked to pass calls on to it.

A server that is there but does not run (a paused process) answers no pings, and after a
few seconds its connection counts as lost.

Answers say which version they come from. Every later call asks for that much, so that
whoever answers it, nothing that was seen is taken back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import Any

import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_status import rpc_status

MIN_VERSION, VERSION, FORWARD = "muster-min-version", "muster-version", "muster-forward"
SILENCE_S = 5.0  # with nobody answering at all
TELL_S = 1.5  # of asking for a leader that does not answer, before that is logged
_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0

# How a call ends that nobody answered. CANCELLED: it arrived while the server stopped, and gRPC
# dropped it; whoever makes a call here and gives it up asks for no more.
UNANSWERED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)

# How fast a server that is there but does not run is noticed, connected or not.
PINGS = (
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.ping_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
)

log = logging.getLogger("muster.client")

Metadata = Sequence[tuple[str, str | bytes]]


def addresses(text: str) -> list[str]:
    """Split a comma-separated list, in its order."""
    return [part.strip() for part in text.split(",") if part.strip()]


class _Servers:
    """Choose which server to ask. Use from any thread."""

    def __init__(self, listed: Sequence[str], connect: Callable[[str], grpc.Channel]) -> None:
        self.count = len(listed)
        self._listed = list(listed)
        self._connect = connect
        self._channels: dict[str, grpc.Channel] = {}
        self._current = self._listed[0]
        self._version = 0
        self._more: Metadata = ()
        self._lock = Lock()

    def current(self) -> tuple[str, grpc.Channel]:
        with self._lock:
            address = self._current
            if address not in self._channels:
                self._channels[address] = self._connect(address)
            return address, self._channels[address]

    def failed(self, address: str, leader: str) -> None:
        """Ask `leader` from now on, "" for the next one."""
        with self._lock:
            if address == self._current:
                self._current = leader or self._after(address)

    def _after(self, address: str) -> str:
        at = self._listed.index(address) if address in self._listed else -1
        return self._listed[(at + 1) % len(self._listed)]

    def saw(self, version: int) -> None:
        with self._lock:
            self._version = max(self._version, version)

    def have_forwarded(self) -> None:
        """Have servers pass on from now on what the leader alone can do."""
        self._more = ((FORWARD, "1"),)

    def metadata(self, given: Metadata | None) -> Metadata:
        return [*(given or ()), (MIN_VERSION, str(self._version)), *self._more]

    def close(self) -> None:
        with self._lock:
            for channel in self._channels.values():
                channel.close()


class FailoverChannel(grpc.Channel):
    """A channel to whichever of several servers answers. `connect`: a channel to one address,
    without retries of its own."""

    def __init__(self, listed: Sequence[str], connect: Callable[[str], grpc.Channel]) -> None:
        self._servers = _Servers(listed, connect)

    def unary_unary(self, method: str, *arguments: Any, **options: Any) -> Any:
        return _Call(self._servers, lambda to: to.unary_unary(method, *arguments, **options))

    def unary_stream(self, method: str, *arguments: Any, **options: Any) -> Any:
        return _Stream(self._servers, lambda to: to.unary_stream(method, *arguments, **options))

    def stream_stream(self, method: str, *arguments: Any, **options: Any) -> Any:
        return _Stream(self._servers, lambda to: to.stream_stream(method, *arguments, **options))

    def stream_unary(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("the service has no such call")

    def subscribe(self, callback: Any, try_to_connect: bool | None = False) -> None:
        raise NotImplementedError("each server has a state of its own")

    unsubscribe = subscribe

    def close(self) -> None:
        self._servers.close()

    def __enter__(self) -> FailoverChannel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Call:
    """One call, put until somebody can answer it."""

    def __init__(self, servers: _Servers, on: Callable[[grpc.Channel], Any]) -> None:
        self._servers = servers
        self._on = on

    def __call__(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: Metadata | None = None,
        **options: Any,
    ) -> Any:
        patience = _Patience(timeout, 2 * self._servers.count)
        named = ""  # the leader, as the last server that spoke says
        while True:
            address, channel = self._servers.current()
            full_metadata = self._servers.metadata(metadata)
            try:
                reply, call = self._on(channel).with_call(
                    request, timeout=patience.remaining_s(), metadata=full_metadata, **options
                )
            except grpc.RpcError as error:
                leader, is_heard = _leader_named(error)
                self._servers.failed(address, leader)
                if address == named and not is_heard:
                    self._servers.have_forwarded()
                    patience.tell_once(f"{named} leads, as others say, and does not answer here")
                elif is_heard and not leader and error.code() in UNANSWERED:
                    patience.tell_once(f"{address} says: {error.details()}")
                named = leader or named
                if not patience.may_repeat(error, is_heard):
                    raise
                patience.pause(is_brief=bool(leader))
            else:
                self._servers.saw(_version(call.trailing_metadata()))
                return reply


class _Stream:
    """One stream from one server; when it breaks, the next stream goes elsewhere."""

    def __init__(self, servers: _Servers, on: Callable[[grpc.Channel], Any]) -> None:
        self._servers = servers
        self._on = on

    def __call__(self, request: Any, metadata: Metadata | None = None, **options: Any) -> Any:
        address, channel = self._servers.current()
        full_metadata = self._servers.metadata(metadata)
        return _Messages(
            self._servers, address, self._on(channel)(request, metadata=full_metadata, **options)
        )


class _Messages:
    """The messages of a stream. Use as the stream itself."""

    def __init__(self, servers: _Servers, address: str, stream: Any) -> None:
        self._servers = servers
        self._address = address
        self._stream = stream

    def __iter__(self) -> Iterator[Any]:
        try:
            for message in self._stream:
                self._servers.saw(getattr(message, "version", 0))
                yield message
        except grpc.RpcError as error:
            self._servers.failed(self._address, _leader_named(error)[0])
            raise

    def initial_metadata(self) -> Metadata:
        metadata: Metadata = self._stream.initial_metadata()
        return metadata

    def cancel(self) -> None:
        self._stream.cancel()


class _Patience:
    """For how long one call is put again, and how fast. `tries`: before it is said that
    nobody answers."""

    def __init__(self, timeout_s: float | None, tries: int) -> None:
        now_s = time.monotonic()
        self._ends_s = None if timeout_s is None else now_s + timeout_s
        self._began_s = self._heard_s = now_s
        self._has_told = False
        self._pause_s = _PAUSE_S
        self._tries = tries

    def remaining_s(self) -> float | None:
        return None if self._ends_s is None else max(0.0, self._ends_s - time.monotonic())

    def may_repeat(self, error: grpc.RpcError, is_heard: bool) -> bool:
        now_s = time.monotonic()
        if is_heard:
            self._heard_s = now_s
        is_over = self._ends_s is not None and now_s + self._pause_s >= self._ends_s
        self._tries -= 1
        is_silent = self._tries <= 0 and now_s - self._heard_s > SILENCE_S
        return error.code() in UNANSWERED and not is_over and not is_silent

    def tell_once(self, trouble: str) -> None:
        """Log what the call waits for, once it has waited for a while."""
        if not self._has_told and time.monotonic() - self._began_s >= TELL_S:
            self._has_told = True
            log.warning("%s; trying again, also elsewhere", trouble)

    def pause(self, is_brief: bool) -> None:
        time.sleep(_PAUSE_S if is_brief else self._pause_s)
        self._pause_s = min(_LONGEST_PAUSE_S, self._pause_s * 1.5)


def _leader_named(error: grpc.RpcError) -> tuple[str, bool]:
    """The leader that the error names, and whether a server spoke at all."""
    status, info = rpc_status.from_call(error), ErrorInfo()
    for detail in status.details if status else ():
        if detail.Unpack(info):
            return info.metadata.get("leader", ""), True
    return "", False


def _version(trailer: Metadata | None) -> int:
    return next((int(value) for key, value in trailer or () if key == VERSION), 0)
