"""The closed list of reasons: each one is produced by a real call, and nothing else is."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, ResourceInfo, RetryInfo
from grpc_status import rpc_status

from scheduler.core import Code, Conflict
from scheduler.core.model.plan import Stale, StaleReason
from scheduler.engine.feed import FellBehind
from scheduler.engine.proposal import WriterStopped
from scheduler.eventlog.store import NotWritten, StoreError
from scheduler.service import errors
from scheduler.service.errors import RULES, word
from scheduler.v1 import error_pb2, service_pb2
from tests.cases import case
from tests.serving import COMPLETED, RUNNING, Served, create

Patch = pytest.MonkeyPatch
Producer = Callable[[Served, Patch], Awaitable[object]]
SOURCES = Path(errors.__file__).parent


def raising(error: Exception) -> Callable[..., Awaitable[None]]:
    async def instead(*_: object, **__: object) -> None:
        raise error

    return instead


async def invalid(served: Served, _: Patch) -> object:
    return await served.stub.CreateJob(create("no spaces"))


async def not_found(served: Served, _: Patch) -> object:
    return await served.stub.GetJob(service_pb2.GetJobRequest(name="nobody"))


async def already_exists(served: Served, _: Patch) -> object:
    return await served.stub.CreateJob(create("e"))  # runs since `conflict`


async def wrong_state(served: Served, _: Patch) -> object:
    host = "z0-r0-h0"
    await served.stub.ReportHost(service_pb2.ReportHostRequest(name=host, signal="host-down"))
    return await served.stub.UncordonHost(service_pb2.UncordonHostRequest(name=host))


async def infeasible(served: Served, _: Patch) -> object:
    return await served.stub.CreateJob(create("huge", 9))


MOVED = Conflict((Stale(StaleReason.JOB, "something moved"),))


async def conflict(served: Served, patch: Patch) -> object:
    for name in ("a", "b", "c", "d", "e"):
        await served.stub.CreateJob(create(name))
        await served.until(name, RUNNING)
    await served.stub.CancelJob(service_pb2.CancelJobRequest(name="a"))
    patch.setattr("scheduler.core.defrag.request.commit", lambda *_: MOVED)
    return await served.stub.Defragment(service_pb2.DefragmentRequest(hosts=4, apply=True))


async def watch_behind(served: Served, patch: Patch) -> object:
    async def behind(*_: object) -> object:
        raise FellBehind
        yield

    patch.setattr("scheduler.engine.writer.Writer.watch_batches", behind)
    return await served.stub.WatchJobs(service_pb2.WatchJobsRequest()).read()


async def compacted(served: Served, patch: Patch) -> object:
    patch.setattr("scheduler.eventlog.store.sqlite.SqliteStore.first_version", lambda _: 9)
    return await served.stub.WatchJobs(service_pb2.WatchJobsRequest(after_version=0)).read()


async def starting(served: Served, patch: Patch) -> object:
    patch.setattr(
        "scheduler.service.backend.Backend.writer",
        property(lambda _: (_ for _ in ()).throw(errors.starting("replaying"))),
    )
    return await served.stub.GetJob(service_pb2.GetJobRequest(name="a"))


async def etag_mismatch(served: Served, _: Patch) -> object:
    request = service_pb2.CordonHostRequest(name="z1-r1-h1", etag="0")
    return await served.stub.CordonHost(request)


async def not_leader(served: Served, patch: Patch) -> object:
    patch.setattr("scheduler.engine.writer.Writer.is_leading", False)
    return await served.stub.CreateJob(create("a"))


async def not_caught_up(served: Served, patch: Patch) -> object:
    patch.setattr("scheduler.engine.writer.Writer.wait_for_version", raising(TimeoutError()))
    asks = (("muster-min-version", "1000000"),)
    return await served.stub.GetJob(service_pb2.GetJobRequest(name="a"), metadata=asks)


def submitting(error: Exception) -> Producer:
    """Refused by what submits, or in front of it."""

    async def produce(served: Served, patch: Patch) -> object:
        patch.setattr("scheduler.engine.writer.Writer.submit", raising(error))
        return await served.stub.CreateJob(create("b"))

    return produce


PRODUCERS: dict[str, Producer] = {
    "CONFLICT": conflict,
    "INVALID": invalid,
    "NOT_FOUND": not_found,
    "ALREADY_EXISTS": already_exists,
    "WRONG_STATE": wrong_state,
    "INFEASIBLE": infeasible,
    "ETAG_MISMATCH": etag_mismatch,
    "WATCH_BEHIND": watch_behind,
    "COMPACTED": compacted,
    "STARTING": starting,
    "NOT_LEADER": not_leader,
    "NOT_CAUGHT_UP": not_caught_up,
    "STOPPING": submitting(WriterStopped()),
    "STORE_FAILED": submitting(StoreError("disk full")),
    "NOT_WRITTEN": submitting(NotWritten("disk full")),
    "INTERNAL": submitting(ZeroDivisionError()),
    "UNAUTHENTICATED": submitting(errors.unauthenticated("no")),
    "PERMISSION_DENIED": submitting(errors.denied("no")),
    "EXHAUSTED": submitting(errors.exhausted("no")),
}


async def test_a_reason_comes_with_its_code_and_its_details(served: Served) -> None:
    for reason, produce in PRODUCERS.items():
        with case(reason=reason):
            with pytest.raises(grpc.aio.AioRpcError) as caught, Patch.context() as patch:
                await produce(served, patch)
            rule = RULES[error_pb2.ErrorReason.Value(f"ERROR_REASON_{reason}")]
            info, retry = ErrorInfo(), RetryInfo()
            status = rpc_status.from_call(caught.value)
            for detail in status.details if status else ():
                _ = detail.Unpack(info) or detail.Unpack(retry)
            assert (info.reason, info.domain) == (reason, "muster")
            assert caught.value.code() is rule.code
            assert retry.retry_delay.ToMilliseconds() == round((rule.retry_s or 0) * 1_000)
            assert caught.value.details()


def test_every_reason_of_the_list_is_produced_above_and_has_a_rule() -> None:
    listed = {word(number) for number in error_pb2.ErrorReason.values() if number}
    assert listed == set(PRODUCERS)
    assert listed == {word(reason) for reason in RULES}


def test_every_code_of_the_core_has_a_reason() -> None:
    assert set(errors._REASONS) == set(Code)


def test_nothing_but_the_list_ends_a_call() -> None:
    """Only service/errors.py ends calls, and it names reasons by the enum."""
    ends = re.compile(r"abort\(|abort_with_status|ErrorInfo\(\s*reason")
    elsewhere = [
        path.name
        for path in SOURCES.rglob("*.py")
        if path.name not in ("errors.py", "client.py", "failover.py")
        and ends.search(path.read_text())
    ]
    assert elsewhere == []


async def test_what_was_not_found_is_named_for_a_program(served: Served) -> None:
    calls = {"job": ("Get", "Explain", "Cancel", "End"), "host": ("Cordon", "Drain", "Report")}
    for kind, verbs in calls.items():
        for verb in verbs:
            request = getattr(service_pb2, f"{verb}{kind.capitalize()}Request")(name="x")
            if verb == "End":
                request.outcome = COMPLETED
            if verb == "Report":
                request.signal = "gpu-lost"
            with case(call=verb), pytest.raises(grpc.aio.AioRpcError) as caught:
                await getattr(served.stub, f"{verb}{kind.capitalize()}")(request)
            what = ResourceInfo()
            status = rpc_status.from_call(caught.value)
            assert status is not None
            assert any(detail.Unpack(what) for detail in status.details)
            assert (what.resource_type, what.resource_name) == (kind, "x")
