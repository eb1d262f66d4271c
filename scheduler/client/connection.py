"""One connection: calls with deadlines and plain errors, lists by pages, streams that resume."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import grpc
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from grpc_status import rpc_status

from scheduler.client.credentials import Credentials
from scheduler.client.diagnosis import unreachable
from scheduler.client.failover import PINGS, UNANSWERED, FailoverChannel, addresses
from scheduler.files.errors import InputError, Problem
from scheduler.v1 import service_pb2, service_pb2_grpc

_WATCH_TRIES = 8
_BOOKMARK_S = 60  # a watch that sees little resumes no further back than that

_RETRIES = {
    "methodConfig": [
        {
            "name": [{"service": "scheduler.v1.SchedulerService"}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.1s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": [code.name for code in UNANSWERED],
            },
        }
    ]
}

_OPTIONS = (
    ("grpc.service_config", json.dumps(_RETRIES)),
    # A server that restarts is found again soon: the default waits up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)

_LATEST = (("muster-read", "latest"),)

Message = TypeVar("Message")


class ServiceError(Exception):
    """The server refused a call, or did not answer.

    `code`: name of the gRPC code. `reason`: the server's word to switch on, one of
    ErrorReason without its prefix, "" when it did not answer. `violations`: (field,
    message) of each field at fault. `retry_s`: the same call may succeed so much later.
    `metadata`: of the reason.
    """

    def __init__(
        self,
        code: str,
        message: str,
        reason: str = "",
        violations: tuple[tuple[str, str], ...] = (),
        retry_s: float | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason
        self.violations = violations
        self.retry_s = retry_s
        self.metadata = dict(metadata or {})


class Connection:
    """Connection to one server, or to several that share a store. Use from any thread."""

    def __init__(
        self, address: str, deadline_s: float, who: Credentials, *, retries: bool, latest: bool
    ) -> None:
        """Raises: InputError for an address that names no server."""
        self.address = address
        self._who = who
        self.channel = _channel(address, who, retries=retries)
        self.stub = service_pb2_grpc.SchedulerServiceStub(self.channel)
        self._deadline_s = deadline_s
        self._metadata = _LATEST if latest else ()

    def close(self) -> None:
        self.channel.close()

    def call(
        self, method: Callable[..., Message], request: Any, deadline_s: float | None = None
    ) -> Message:
        """Make one call. Raises: ServiceError."""
        try:
            timeout = deadline_s or self._deadline_s
            return method(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise _service_error(error, self.address, self._who) from None

    def all_pages(self, method: Callable[..., Message], request: Any, items: str) -> Message:
        """Return the first page with the `items` of all later pages added."""
        answer: Any = self.call(method, request)
        while answer.next_page_token:
            request.page_token = answer.next_page_token
            page: Any = self.call(method, request)
            getattr(answer, items).extend(getattr(page, items))
            answer.next_page_token = page.next_page_token
        return answer  # type: ignore[no-any-return]

    def stream(self, method: Callable[..., Any], request: Any) -> Iterator[Any]:
        """Yield the messages of a stream that ends. Raises: ServiceError."""
        messages = method(request)
        try:
            yield from messages
        except grpc.RpcError as error:
            raise _service_error(error, self.address, self._who) from None
        finally:
            messages.cancel()

    def watch(
        self,
        method: Callable[..., Any],
        request: Any,
        *,
        initial_list: bool = False,
        timeout_s: float | None = None,
    ) -> Iterator[Any]:
        """Yield the messages of a stream, which is opened again after the last complete change
        where it breaks, until so many seconds have passed. Bookmarks are yielded only where they
        end an initial list."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        request.bookmark_interval.FromSeconds(_BOOKMARK_S)
        after = request.after_version if request.HasField("after_version") else None
        failed, is_listing = 0, initial_list
        while True:
            request.initial_list = is_listing  # from its begin, until all of it is here
            if after is not None and not is_listing:
                request.after_version = after
            left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
            stream = method(request, timeout=left_s)
            try:
                # Where a watch "from now on" began, so that it resumes there.
                for key, value in stream.initial_metadata():
                    if key == "muster-version":
                        after, failed = int(value), 0
                for change in _changes_of(stream):
                    is_shown = is_listing or not is_bookmark(change)
                    if is_bookmark(change):
                        is_listing = False
                    if not getattr(change, "more", False):
                        after = change.version
                    failed = 0
                    if is_shown:
                        yield change
            except grpc.RpcError as error:
                failed += 1
                if until_s is not None and time.monotonic() >= until_s:
                    return
                if not _may_resume(error) or failed == _WATCH_TRIES:
                    raise _service_error(error, self.address, self._who) from None
                time.sleep(min(2.0, 0.05 * 2**failed))
            finally:
                stream.cancel()


def _changes_of(messages: Iterable[Any]) -> Iterator[Any]:
    """Yield each change of messages, of which some may have several."""
    for message in messages:
        yield from getattr(message, "changes", ()) or (message,)


def is_bookmark(change: Any) -> bool:
    """Return whether a message of a watch says only up to which version the watch has come."""
    if isinstance(change, service_pb2.WatchJobsResponse):
        return change.change == service_pb2.JOB_CHANGE_BOOKMARK
    return bool(change.bookmark)


def _channel(address: str, who: Credentials, *, retries: bool) -> grpc.Channel:
    """A channel to one address, or to whoever of a list can answer."""
    listed = addresses(address)
    if not listed:
        raise InputError(Problem("address", "must name a server, HOST:PORT"))
    if len(listed) > 1 and retries:
        each = (*_OPTIONS, *PINGS, ("grpc.enable_retries", 0))
        return FailoverChannel(listed, lambda server: who.channel(server, each))
    options = (*_OPTIONS, ("grpc.enable_retries", int(retries)))
    return who.channel(address, options)


def _may_resume(error: grpc.RpcError) -> bool:
    return error.code() in (*UNANSWERED, grpc.StatusCode.ABORTED)


def _service_error(error: grpc.RpcError, address: str, who: Credentials) -> ServiceError:
    code = error.code()
    message, reason = error.details() or code.name, ""
    metadata: dict[str, str] = {}
    violations: list[tuple[str, str]] = []
    retry_s: float | None = None
    status = rpc_status.from_call(error)
    for detail in status.details if status else ():
        info, bad, retry = ErrorInfo(), BadRequest(), RetryInfo()
        if detail.Unpack(info):
            reason, metadata = info.reason, dict(info.metadata)
        elif detail.Unpack(bad):
            violations += [(v.field, v.description) for v in bad.field_violations]
        elif detail.Unpack(retry):
            retry_s = retry.retry_delay.ToMilliseconds() / 1_000
    if not reason and code is grpc.StatusCode.CANCELLED:
        message = f"the server at {address} stopped before it answered"
    elif not reason and code is grpc.StatusCode.UNAVAILABLE:
        message = unreachable(address, who)
    elif "leader" in metadata and len(addresses(address)) > 1:  # asked until the deadline
        message = (
            f"{message}; of {address} it was asked for: {unreachable(metadata['leader'], who)}"
        )
    elif code is grpc.StatusCode.DEADLINE_EXCEEDED:
        message = f"the server at {address} did not answer in time"
    return ServiceError(code.name, message, reason, tuple(violations), retry_s, metadata)
