"""Requests of every method against the real servicer, its writer and a real store.

The servicer runs in this process without gRPC's transport. It is made anew now and
then, so that a queue of thousands does not slow down what is looked for.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from drills.fuzz.mutate import Messages
from scheduler.access.methods import ANY_CALL
from scheduler.access.methods import METHODS as METHODS_OF
from scheduler.core import SchedulingOptions
from scheduler.engine.feed import Feed
from scheduler.engine.snapshotter import Retention
from scheduler.engine.writer import Writer
from scheduler.eventlog.recovery import recover
from scheduler.eventlog.store import open_store
from scheduler.service.backend import Backend
from scheduler.service.errors import RULES, error_boundary
from scheduler.service.rpc.service import scheduler_service
from scheduler.v1 import error_pb2, job_pb2, service_pb2, window_pb2
from scheduler.wire.durations import duration
from scheduler.wire.jobs import timestamp
from scheduler.wire.specs import spec_to_proto
from tests.build import exactly, fabric_spec, spec

LIFE: Final = 300  # calls of one servicer
START_NS: Final = 1_700_000_000_000_000_000
LIMIT_S: Final = 30.0
SOME: Final = 3  # changes read of a stream

SERVICE = service_pb2.DESCRIPTOR.services_by_name["SchedulerService"]
METHODS: Final = {method.name: method for method in SERVICE.methods}
# What a server that works well refuses with; the others would be faults of the set-up.
REASONS: Final = {
    *("INVALID", "NOT_FOUND", "ALREADY_EXISTS", "WRONG_STATE", "INFEASIBLE", "ETAG_MISMATCH"),
    *("CONFLICT", "EXHAUSTED"),
}
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}

NAMES: Final = (
    *("a", "b", "c", "d", "nobody", "z0", "z0-r0-h0", "z1-r1-h1", "z0-r1-h0", "gpu-lost"),
    *("repaired", "link-flap", "default", "auto", "2%", "0", "tp-cp-ep-pp-dp", "bf16", "rack"),
    *("state = RUNNING", "name = a*", "create_time desc", "name", "cordon z0", "cancel a"),
    *("limit 2h", "spec.labels", "spec.priority", "*", "r1", "r2", "zone", "dp", "pp"),
)


class RefusedCall(Exception):
    """How a call was refused."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


class Context:
    """Stand-in for the context that gRPC gives a servicer."""

    async def abort_with_status(self, status: Any) -> None:
        details = dict(status.trailing_metadata)
        raise RefusedCall(Status.FromString(details["grpc-status-details-bin"]))

    async def send_initial_metadata(self, metadata: Any) -> None:
        pass

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()


@dataclass(frozen=True)
class FuzzedCall:
    """One request of one method."""

    method: str
    request: Message


def calls(random: Random, method: str) -> Iterator[FuzzedCall]:
    """Yield requests without end: random ones, valid ones changed a little, and some garbled on the
    wire."""
    messages = Messages(random, NAMES)
    kind = GetMessageClass(METHODS[method].input_type)
    valid = list(_valid(method)) or [kind()]
    while True:
        one, chance = random.choice(valid), random.random()
        if chance < 0.25:
            found: Message | None = messages.any_of(kind)
        elif chance < 0.9:
            found = messages.changed(one)
        else:
            found = messages.garbled(one)
        if found is None:
            continue
        if isinstance(found, service_pb2.CreateJobRequest) and random.random() < 0.8:
            found.spec.name = f"j{random.randrange(10**9)}"  # else most exist already
        yield FuzzedCall(method, found)


def _valid(method: str) -> Iterator[Message]:
    """Requests that mean something, by method; others are random throughout."""
    kind = GetMessageClass(METHODS[method].input_type)
    fields = kind.DESCRIPTOR.fields_by_name
    if method == "CreateJob":
        for name, hosts, more in (
            *(("e", 2, {"pp": 2}), ("f", 1, {"spares": exactly(1)}), ("g", 8, {"priority": 3})),
        ):
            yield kind(spec=spec_to_proto(spec(name, hosts, **more)))
            yield kind(spec=spec_to_proto(spec(name, hosts)), validate_only=True)
    elif method == "UpdateJob":
        wanted = job_pb2.JobSpec(priority=2, labels={"team": "nlp"}, time_limit=duration(60))
        yield kind(job=job_pb2.Job(name="c", spec=wanted))
    elif method == "EndJob":
        yield kind(name="a", outcome=job_pb2.JOB_STATE_COMPLETED)
    elif method == "Defragment":
        yield kind(hosts=2)
    elif method in ("CreateWindow", "UpdateWindow"):
        yield kind(window=maintenance("v", 7_200, ["z1"]), request_id="r1")
        yield kind(window=maintenance("w", 60, ["z0-r[0-1]-h0"]))
    elif method.endswith("Window"):
        yield kind(name="w")
    elif method == "ReportHost":
        for signal in ("gpu-lost", "repaired", "link-flap"):
            yield kind(name="z0-r0-h0", signal=signal)
    elif method == "GetTenant":
        yield kind(name="default")
    elif "name" in fields:
        what = "z0-r0-h0" if method.endswith("Host") else "a"
        yield kind(name=what)
        yield kind(name="z1-r1-h1" if method.endswith("Host") else "c")


class FuzzedServer:
    """A servicer with some jobs and hosts, to be called. `call` may be tried by many, one at a
    time."""

    def __init__(self, servicer: object) -> None:
        self._servicer = servicer

    async def call(self, call: FuzzedCall) -> bool:
        """Make a call, and return whether it was answered. Raises: any error that no call may end
        with."""
        method = getattr(self._servicer, call.method)
        context: Any = Context()
        try:
            async with asyncio.timeout(LIMIT_S), error_boundary(context):
                if METHODS[call.method].server_streaming:
                    is_stream = METHODS[call.method].client_streaming
                    asked = _alone(call.request) if is_stream else call.request
                    await self._some(method(asked, context))
                else:
                    answer: Message = await method(call.request, context)
                    answer.SerializeToString()
        except RefusedCall as refusal:
            _expected(call.method, refusal.status)
            return False
        return True

    async def _some(self, stream: AsyncIterator[Message]) -> None:
        """The first messages, until none comes for a while or the stream ends."""
        async with aclosing(stream) as changes:  # type: ignore[type-var]
            for _ in range(SOME):
                try:
                    async with asyncio.timeout(0.002):
                        message = await anext(changes, None)
                except TimeoutError:
                    return
                if message is None:
                    return
                message.SerializeToString()


async def _alone(request: Message) -> AsyncIterator[Message]:
    yield request


def _expected(method: str, status: Status) -> None:
    """A refusal that is documented: a reason of the list, its code, and a sentence."""
    info = ErrorInfo()
    assert any(detail.Unpack(info) for detail in status.details), status
    documented = (*METHODS_OF[f"/{SERVICE.full_name}/{method}"].refused, *ANY_CALL)
    assert info.reason in REASONS, status
    assert info.reason in documented, (method, status)
    rule = RULES[error_pb2.ErrorReason.Value(f"ERROR_REASON_{info.reason}")]
    assert _CODES[status.code] is rule.code
    assert status.message


@asynccontextmanager
async def world() -> AsyncIterator[FuzzedServer]:
    """Return a servicer on a new store, with a job that runs, two that wait and a window."""
    uids, now_ns = count(1), count(START_NS, 1_000_000)
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        store = open_store(f"sqlite:///{folder}/muster.db")
        found = recover(store, fabric_spec(), next(now_ns))
        writer = Writer(
            store, found, lambda: next(now_ns), SchedulingOptions(), Feed(10_000), Retention()
        )
        writing = asyncio.create_task(writer.run())
        backend = Backend(has_agents=True)
        backend.attach(writer)
        servicer = scheduler_service(backend, lambda: f"uid-{next(uids)}")
        made = FuzzedServer(servicer)
        try:
            while not writer.is_leading:
                await asyncio.sleep(0)
            for name, hosts in (("a", 6), ("b", 8), ("c", 2), ("d", 2)):
                request = service_pb2.CreateJobRequest(spec=spec_to_proto(spec(name, hosts)))
                if not await made.call(FuzzedCall("CreateJob", request)):
                    raise AssertionError(f"the world has no job {name}")
            window = maintenance("w", 3_600, ["z0-r0"])
            if not await made.call(
                FuzzedCall("CreateWindow", service_pb2.CreateWindowRequest(window=window))
            ):
                raise AssertionError("the world has no window")
            yield made
        finally:
            writer.stop()
            await writing
            store.close()


def maintenance(name: str, start_s: int, hosts: Sequence[str]) -> window_pb2.Window:
    """Return a maintenance window of an hour, `start_s` after the world begins."""
    start_ns = START_NS + start_s * 10**9
    return window_pb2.Window(
        name=name,
        kind=window_pb2.WINDOW_KIND_MAINTENANCE,
        start_time=timestamp(start_ns),
        end_time=timestamp(start_ns + 3_600 * 10**9),
        hosts=hosts,
    )


def scratch() -> str | None:
    """Return a folder in memory, where there is one, for the disk is not what is tested."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


async def run(
    source: Iterator[FuzzedCall],
    inputs: int,
    on_done: Callable[[FuzzedCall, bool], Awaitable[None] | None],
) -> None:
    """Make `inputs` calls, and check what each may have done. An exception says what the last one
    must not have done."""
    done = 0
    while done < inputs:
        async with world() as made:
            for _ in range(min(LIFE, inputs - done)):
                call = next(source)
                try:
                    taken = await made.call(call)
                except Exception as error:
                    error.add_note(f"{call.method}({call.request!r})")
                    raise
                on_done(call, taken)
                done += 1
