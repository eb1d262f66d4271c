"""The Connect protocol (connectrpc.com/docs/protocol) over the methods of the service.

    POST /scheduler.v1.SchedulerService/GetJob      Content-Type: application/json
    {"name": "tenants/default/jobs/llama"}

Messages are read and written by their descriptors, in JSON (proto3 mapping) or binary, so that a
new method needs nothing here. A stream of answers comes in envelopes: a byte of flags, four of
length, the message; the last one says how the call ended.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final

import grpc
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from scheduler.console.calls import CallContext, CallFailed, Calls
from scheduler.service.interceptors import Undecodable

_HTTP_STATUS: Final = {
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.UNKNOWN: 500,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DATA_LOSS: 500,
    grpc.StatusCode.UNAUTHENTICATED: 401,
}
_JSON, _PROTO = "json", "proto"
_UNARY = {"application/json": _JSON, "application/proto": _PROTO}
_STREAM = {"application/connect+json": _JSON, "application/connect+proto": _PROTO}
_END, _COMPRESSED = 0x02, 0x01
_WORTH_BYTES = 1_024  # shorter answers are not compressed
_LONG_BYTES = 32_768
_LONGEST_S = 86_400 * 366
_GZIP, _IDENTITY = "gzip", "identity"
# Headers that are about the connection or the protocol, not about the call.
_OWN_HEADERS = frozenset(
    {"host", "content-type", "content-length", "content-encoding", "accept", "accept-encoding"}
    | {"connection", "transfer-encoding", "te", "connect-timeout-ms", "connect-protocol-version"}
    | {"connect-content-encoding", "connect-accept-encoding", "cookie"}
)


class ConnectService:
    """Answers calls of the Connect protocol. One service. `most_bytes`: of a request."""

    def __init__(self, service: ServiceDescriptor, calls: Calls, most_bytes: int) -> None:
        self.prefix = f"/{service.full_name}/"
        self._methods: dict[str, MethodDescriptor] = {
            method.name: method for method in service.methods if not method.client_streaming
        }  # those that read a stream are for gRPC alone
        self._calls = calls
        self._most_bytes = most_bytes

    async def answer(self, request: Request) -> Response:
        """Answer a request to a path below `prefix`."""
        name = request.url.path.removeprefix(self.prefix)
        method = self._methods.get(name)
        if method is None:
            error = CallFailed(grpc.StatusCode.UNIMPLEMENTED, f"no method {name[:80]!r}")
            return failed(error, ())
        if request.method != "POST":
            return Response("use POST\n", 405, {"allow": "POST"})
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        is_stream = self._calls.is_stream(self.prefix + name)
        encoding = (_STREAM if is_stream else _UNARY).get(kind)
        if encoding is None:
            accepted = ", ".join(_STREAM if is_stream else _UNARY)
            return Response(
                f"the content type must be one of {accepted}\n", 415, {"accept-post": accepted}
            )
        call = _Call(method, encoding, request)
        try:
            if is_stream:
                return await self._stream(call)
            return await self._unary(call)
        except CallFailed as error:
            return failed(error, call.context.plain_trailer)

    async def _unary(self, call: _Call) -> Response:
        """Raises: CallFailed."""
        sent = call.request.headers.get("content-encoding", _IDENTITY)
        body = _decompressed(await self._body(call.request), sent, self._most_bytes)
        message = call.decode(body)
        answer = await self._calls.unary(call.path, message, call.context, call.timeout_s())
        content = await call.encoded(answer)
        headers = dict(_headers(call.context.initial, ""))
        headers |= dict(_headers(call.context.plain_trailer, "trailer-"))
        if _accepts_gzip(call.request, "accept-encoding") and len(content) > _WORTH_BYTES:
            content, headers["content-encoding"] = gzip.compress(content, 1), _GZIP
        return Response(content, 200, headers, media_type=f"application/{call.encoding}")

    async def _stream(self, call: _Call) -> Response:
        """Raises: CallFailed for a request that is no envelope with one message."""
        body = await self._body(call.request)
        if len(body) < 5 or len(body) != 5 + int.from_bytes(body[1:5], "big"):
            raise CallFailed(grpc.StatusCode.INVALID_ARGUMENT, "the body must be one envelope")
        content = body[5:]
        if body[0] & _COMPRESSED:
            sent = call.request.headers.get("connect-content-encoding", _IDENTITY)
            content = _decompressed(content, sent, self._most_bytes)
        message, timeout_s = call.decode(content), call.timeout_s()
        is_gzip = _accepts_gzip(call.request, "connect-accept-encoding")

        async def envelopes() -> AsyncIterator[bytes]:
            error: CallFailed | None = None
            try:
                stream = self._calls.stream(call.path, message, call.context, timeout_s)
                async for answer in stream:
                    yield _envelope(await call.encoded(answer), is_gzip)
            except CallFailed as reason:
                error = reason
            end: dict[str, Any] = {"error": _error(error)} if error else {}
            metadata: dict[str, list[str]] = {}
            for key, value in _headers((*call.context.initial, *call.context.plain_trailer), ""):
                metadata.setdefault(key, []).append(value)
            if metadata:
                end["metadata"] = metadata
            yield _envelope(json.dumps(end).encode(), is_gzip, _END)

        headers = {"connect-content-encoding": _GZIP} if is_gzip else {}
        kind = f"application/connect+{call.encoding}"
        return StreamingResponse(envelopes(), 200, headers, media_type=kind)

    async def _body(self, request: Request) -> bytes:
        """Raises: CallFailed for one that is too long."""
        content = bytearray()
        async for part in request.stream():
            content += part
            if len(content) > self._most_bytes:
                raise _too_long(self._most_bytes)
        return bytes(content)


class _Call:
    """One request to one method."""

    def __init__(self, method: MethodDescriptor, encoding: str, request: Request) -> None:
        self.path = f"/{method.containing_service.full_name}/{method.name}"
        self.encoding = encoding
        self.request = request
        self.context = CallContext(metadata_of(request.headers), peer_of(request))
        self._input = message_factory.GetMessageClass(method.input_type)
        self._output = message_factory.GetMessageClass(method.output_type)

    def timeout_s(self) -> float | None:
        """Raises: CallFailed for what is no number of milliseconds."""
        text = self.request.headers.get("connect-timeout-ms")
        if text is None:
            return None
        if not text.isdecimal() or len(text) > 10:
            message = f"connect-timeout-ms must be up to ten digits, not {text[:40]!r}"
            raise CallFailed(grpc.StatusCode.INVALID_ARGUMENT, message)
        return min(int(text) / 1_000, _LONGEST_S)

    def decode(self, content: bytes) -> Message | Undecodable:
        """The request; interceptors refuse what is none, once they know who sends it."""
        message: Message = self._input()
        try:
            if self.encoding == _PROTO:
                message.ParseFromString(content)
            else:
                json_format.Parse(content, message, max_recursion_depth=60)
        except UnicodeDecodeError:
            return Undecodable("the JSON is not UTF-8")
        except Exception as error:  # whatever protobuf's readers raise, ParseError and others
            return Undecodable(str(error) or type(error).__name__)
        return message

    async def encoded(self, message: Message | bytes) -> bytes:
        """A long answer is written in a thread, beside what else the console sends."""
        if isinstance(message, bytes):
            message = self._output.FromString(message)
        if message.ByteSize() > _LONG_BYTES:
            return await asyncio.to_thread(self._encode, message)
        return self._encode(message)

    def _encode(self, message: Message) -> bytes:
        if self.encoding == _PROTO:
            return message.SerializeToString()
        return json_format.MessageToJson(message, indent=None).encode()


def peer_of(request: Request) -> str:
    """Return the caller's address as gRPC writes it."""
    return f"http:{request.client.host}:{request.client.port}" if request.client else "http:?"


def metadata_of(headers: Mapping[str, str]) -> Iterable[tuple[str, str | bytes]]:
    """Return the headers as the metadata that a gRPC call would have."""
    for key, value in headers.items():
        if key in _OWN_HEADERS:
            continue
        if key.endswith("-bin"):
            try:
                yield key, base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
            except ValueError:
                continue
        else:
            yield key, value


def _headers(metadata: Iterable[tuple[str, str | bytes]], prefix: str) -> Iterable[tuple[str, str]]:
    for key, value in metadata:
        text = value if isinstance(value, str) else base64.b64encode(value).decode().rstrip("=")
        yield prefix + key, text


def _decompressed(content: bytes, encoding: str, most_bytes: int) -> bytes:
    """Raises: CallFailed."""
    if encoding in ("", _IDENTITY):
        return content
    if encoding != _GZIP:
        message = f"the encoding must be {_GZIP} or {_IDENTITY}, not {encoding[:40]!r}"
        raise CallFailed(grpc.StatusCode.UNIMPLEMENTED, message)
    reader = zlib.decompressobj(wbits=31)
    try:
        plain = reader.decompress(content, most_bytes + 1)
    except zlib.error as error:
        raise CallFailed(grpc.StatusCode.INVALID_ARGUMENT, f"no gzip: {error}") from None
    if len(plain) > most_bytes:
        raise _too_long(most_bytes)
    return plain


def _too_long(most_bytes: int) -> CallFailed:
    message = f"the request is longer than {most_bytes:,} bytes"
    return CallFailed(grpc.StatusCode.RESOURCE_EXHAUSTED, message)


def _accepts_gzip(request: Request, header: str) -> bool:
    offered = request.headers.get(header, "").split(",")
    return any(each.partition(";")[0].strip() == _GZIP for each in offered)


def _envelope(content: bytes, is_gzip: bool, flags: int = 0) -> bytes:
    if is_gzip and len(content) > _WORTH_BYTES:
        content, flags = gzip.compress(content, 1), flags | _COMPRESSED
    return bytes([flags]) + len(content).to_bytes(4, "big") + content


def failed(error: CallFailed, trailer: Iterable[tuple[str, str | bytes]]) -> Response:
    """Return the answer of a call that ended in this error."""
    headers = dict(_headers(trailer, "trailer-"))
    if error.code is grpc.StatusCode.UNAUTHENTICATED:
        headers["www-authenticate"] = 'Bearer realm="muster"'
    return JSONResponse(_error(error), _HTTP_STATUS.get(error.code, 500), headers)


def _error(error: CallFailed) -> dict[str, Any]:
    code = "canceled" if error.code is grpc.StatusCode.CANCELLED else error.code.name.lower()
    body: dict[str, Any] = {"code": code, "message": error.message}
    if error.details:
        body["details"] = [
            {
                "type": detail.type_url.rpartition("/")[2],
                "value": base64.b64encode(detail.value).decode().rstrip("="),
                "debug": json_format.MessageToDict(detail),
            }
            for detail in error.details
        ]
    return body
