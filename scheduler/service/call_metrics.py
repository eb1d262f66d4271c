"""Calls from outside: counted, timed and logged, around every handler."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import grpc

from scheduler.core.model.job import SECOND_NS
from scheduler.identity import caller
from scheduler.observe.instruments import Instruments
from scheduler.service.interceptors import Handler, WrappingInterceptor, wrapped

Context = grpc.aio.ServicerContext[Any, Any]

UNKNOWN = "unknown"
_MOST_LOGGED = 500  # characters of a reason

log = logging.getLogger("muster.rpc")


class CallMetrics(WrappingInterceptor):
    """Measures calls. It is the outermost interceptor, so that refusals by the others count as
    well."""

    def __init__(self, instruments: Instruments) -> None:
        super().__init__()
        self._instruments = instruments

    def note_unknown(self) -> None:
        self._instruments.calls[UNKNOWN, "UNIMPLEMENTED"] += 1

    def wrap(self, method: str, handler: Handler) -> Handler:
        name = short_name(method)
        if handler.unary_unary and inspect.iscoroutinefunction(handler.unary_unary):
            return wrapped(handler, lambda inner: self._unary(name, inner))
        if inspect.isasyncgenfunction(handler.unary_stream or handler.stream_stream):
            return wrapped(handler, lambda inner: self._streaming(name, inner))
        return handler  # health's watch answers by itself

    def _unary(self, method: str, inner: Any) -> Any:
        async def around(request: Any, context: Context) -> Any:
            call = _Call(self._instruments, method, request, context)
            with call:
                call.answer = await inner(request, context)
                return call.answer

        return around

    def _streaming(self, method: str, inner: Any) -> Any:
        """Streams of answers, to one request or to many."""

        async def around(request: Any, context: Context) -> AsyncIterator[Any]:
            with _Call(self._instruments, method, None, context, is_timed=False):
                async for answer in inner(request, context):
                    yield answer

        return around


def short_name(path: str) -> str:
    """Return `SchedulerService/GetJob` for `/scheduler.v1.SchedulerService/GetJob`."""
    service, _, method = path.strip("/").rpartition("/")
    return f"{service.rpartition('.')[2]}/{method}"


@dataclass(slots=True)
class _Call:
    """One call, from its arrival to its end, however it ends."""

    instruments: Instruments
    method: str
    request: Any
    context: Context
    is_timed: bool = True
    answer: Any = None
    began_ns: int = 0

    def __enter__(self) -> None:
        self.began_ns = perf_counter_ns()

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: Any) -> None:
        seconds = (perf_counter_ns() - self.began_ns) / SECOND_NS
        code = self._code(kind)
        self.instruments.calls[self.method, code] += 1
        if self.is_timed:
            self.instruments.calls_s[self.method,].add(seconds)
        level = logging.DEBUG if code in ("OK", "CANCELLED") else logging.INFO
        if log.isEnabledFor(level):
            reason = self._reason(kind)
            message = f"{self.method} {code}: {reason}" if reason else f"{self.method} {code}"
            log.log(level, "%s", message, extra=self._facts(code, seconds))

    def _code(self, kind: type[BaseException] | None) -> str:
        if kind is None:
            return "OK"
        if issubclass(kind, asyncio.CancelledError | GeneratorExit | grpc.aio.InternalError):
            return "CANCELLED"
        if issubclass(kind, grpc.aio.AbortError):
            return str(self.context.code().name)
        return "UNKNOWN"

    def _reason(self, kind: type[BaseException] | None) -> str:
        """Return the text of a refused call; "" where it was not refused."""
        if kind is None or not issubclass(kind, grpc.aio.AbortError):
            return ""
        details = self.context.details()
        return str(details)[:_MOST_LOGGED] if details else ""

    def _facts(self, code: str, seconds: float) -> dict[str, Any]:
        kind = "host" if "Host" in self.method else "job"
        facts = {
            "method": self.method,
            "code": code,
            "actor": caller().name,
            "duration_ms": round(seconds * 1000, 3),
        }
        return facts | {kind: name} if (name := _subject(self.request)) else facts


def _subject(request: Any) -> str:
    """Name of the job or host that a request is about."""
    subject = getattr(request, "spec", request)
    return str(getattr(subject, "name", ""))
