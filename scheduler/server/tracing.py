"""Traces by OpenTelemetry. This module needs the extra `tracing`; only a server that
sends spans imports it.

A call is one trace: its own span, and below it how long it waited for the writer, how long
it was checked, and the append that it shared with others. A decision is another: deciding
with each gang that was placed, then the commit. A caller that sends a W3C `traceparent` in
the call's metadata finds these below its own span.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from opentelemetry import context as current
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from scheduler.release import release

MOST_WAITING = 32_768  # spans; the default of 2,048 loses some in a burst
_PROPAGATOR = TraceContextTextMapPropagator()


class Spans:
    """Where spans go, as Instruments wants it."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("muster", release())
        self._zero_ns = time.time_ns() - time.perf_counter_ns()

    def here(self) -> Any:
        return current.get_current()

    def span(self, name: str) -> AbstractContextManager[object]:
        return self._tracer.start_as_current_span(name)

    def call(self, method: str, context: Any) -> AbstractContextManager[object]:
        """The span of a call, below its caller's if that one says so."""
        carrier = {
            key: value
            for key, value in context.invocation_metadata() or ()
            if isinstance(value, str)
        }
        parent = _PROPAGATOR.extract(carrier)
        return self._tracer.start_as_current_span(
            method, context=parent, kind=trace.SpanKind.SERVER
        )

    def record(self, name: str, parent: Any, began_ns: int, ended_ns: int) -> None:
        span = self._tracer.start_span(name, parent, start_time=self._zero_ns + began_ns)
        span.end(self._zero_ns + ended_ns)


@contextmanager
def sending(endpoint: str) -> Iterator[Spans]:
    """Spans to an OTLP collector, `http(s)://HOST:PORT` by gRPC; what waits is sent at the end.

    Sampling and the rest are set by OpenTelemetry's own variables (OTEL_TRACES_SAMPLER, ...).
    """
    provider = TracerProvider(resource=Resource.create({"service.name": "muster"}))
    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=not endpoint.startswith("https://"))
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=MOST_WAITING))
    try:
        yield Spans(provider)
    finally:
        provider.shutdown()
