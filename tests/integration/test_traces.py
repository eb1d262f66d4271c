"""Spans of calls and decisions: which there are, whose children, and where they are sent."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from scheduler.client import Client
from scheduler.server.tracing import Spans
from scheduler.v1 import service_pb2
from tests.build import spec
from tests.e2e.processes import ServerProcess
from tests.serving import RUNNING, create, refused, serving

CREATE = "SchedulerService/CreateJob"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Kept:
    """The spans of a server in this process."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = Spans(provider)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def below(self, parent: ReadableSpan) -> dict[str, ReadableSpan]:
        """Children by name."""
        spans = self._exporter.get_finished_spans()
        return {s.name: s for s in spans if s.parent and s.parent.span_id == _id(parent)}


def _id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


async def test_a_call_is_one_trace_below_its_caller(tmp_path: Path) -> None:
    kept = Kept()
    async with serving(tmp_path, tracer=kept.tracer) as served:
        caller = (("traceparent", f"00-{TRACE}-{PARENT}-01"),)
        await served.stub.CreateJob(create("a"), metadata=caller)
    (call,) = kept.named(CREATE)
    assert call.kind is SpanKind.SERVER
    assert call.parent is not None
    assert (call.parent.span_id, call.parent.trace_id) == (int(PARENT, 16), int(TRACE, 16))
    stages = kept.below(call)
    assert set(stages) == {"queue", "admit", "append"}
    for span in stages.values():
        assert span.context is not None
        assert span.context.trace_id == int(TRACE, 16)
        assert call.start_time <= span.start_time <= span.end_time <= call.end_time  # type: ignore[operator]
    assert stages["queue"].end_time <= stages["admit"].end_time <= stages["append"].start_time  # type: ignore[operator]


async def test_a_call_without_a_caller_begins_a_trace(tmp_path: Path) -> None:
    kept = Kept()
    async with serving(tmp_path, tracer=kept.tracer) as served:
        await served.stub.CreateJob(create("a"))
    (call,) = kept.named(CREATE)
    assert call.parent is None


async def test_a_decision_is_one_trace(tmp_path: Path) -> None:
    kept = Kept()
    async with serving(tmp_path, tracer=kept.tracer) as served:
        await served.stub.CreateJob(create("a"))
        await served.until("a", RUNNING)
    decided = [span for span in kept.named("decision") if "commit" in kept.below(span)]
    (decision,) = decided
    stages = kept.below(decision)
    assert set(stages) == {"decide", "queue", "commit", "append"}
    assert set(kept.below(stages["decide"])) == {"solve"}


async def test_a_call_that_is_refused_is_marked(tmp_path: Path) -> None:
    kept = Kept()
    async with serving(tmp_path, tracer=kept.tracer) as served:
        await refused(served.stub.GetJob(service_pb2.GetJobRequest(name="nobody")))
    (call,) = kept.named("SchedulerService/GetJob")
    assert call.status.status_code is StatusCode.ERROR


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """An OTLP collector that keeps the names of spans."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def Export(self, request: Any, context: object) -> Any:
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.names |= {span.name for span in scope.spans}
        return trace_service_pb2.ExportTraceServiceResponse()


@pytest.fixture
def collector() -> Iterator[tuple[str, Collector]]:
    found, server = Collector(), grpc.server(ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(found, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"http://127.0.0.1:{port}", found
    server.stop(None).wait()


def test_a_server_sends_what_it_has_before_it_ends(
    tmp_path: Path, collector: tuple[str, Collector]
) -> None:
    endpoint, found = collector
    server = ServerProcess(tmp_path)
    server.start("--traces", endpoint)
    with Client(server.address) as client:
        client.create_job(spec("a"))
    assert server.terminate() == 0
    assert {CREATE, "append", "decision"} <= found.names


def test_without_traces_nothing_of_them_is_loaded() -> None:
    code = "import scheduler.server, sys; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
