"""The closed list of reasons: what a call raises comes as the code and details of its reason."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, ResourceInfo, RetryInfo
from grpc_status import rpc_status

from scheduler.core import Code, Conflict, Rejected
from scheduler.core.model.plan import Stale, StaleReason
from scheduler.engine.feed import FellBehind
from scheduler.engine.proposal import NotLeading, WriterStopped
from scheduler.eventlog.store import Compacted, NotWritten, StoreError
from scheduler.service import errors
from scheduler.service.errors import RULES, word
from scheduler.v1 import error_pb2, service_pb2
from tests.cases import case
from tests.serving import COMPLETED, Served, create, refused

SOURCES = Path(errors.__file__).parent


def raising(error: Exception) -> Callable[..., Awaitable[None]]:
    async def instead(*_: object, **__: object) -> None:
        raise error

    return instead


#: What a call may end with, by the reason that it comes as.
RAISED: dict[str, Exception] = {
    "INVALID": errors.invalid("name", "no"),
    "NOT_FOUND": errors.not_found("job", "x"),
    "ALREADY_EXISTS": errors.rejected(Rejected(Code.ALREADY_EXISTS, "no")),
    "WRONG_STATE": errors.rejected(Rejected(Code.PRECONDITION, "no")),
    "INFEASIBLE": errors.rejected(Rejected(Code.INFEASIBLE, "no")),
    "CONFLICT": errors.conflict("no"),
    "ETAG_MISMATCH": errors.rejected(Rejected(Code.STALE, "no")),
    "WATCH_BEHIND": FellBehind(),
    "COMPACTED": Compacted(9),
    "STARTING": errors.starting("no"),
    "NOT_LEADER": NotLeading("a:1"),
    "NOT_CAUGHT_UP": errors.not_caught_up("no"),
    "STOPPING": WriterStopped(),
    "STORE_FAILED": StoreError("disk full"),
    "NOT_WRITTEN": NotWritten("disk full"),
    "INTERNAL": ZeroDivisionError(),
    "UNAUTHENTICATED": errors.unauthenticated("no"),
    "PERMISSION_DENIED": errors.denied("no"),
    "EXHAUSTED": errors.exhausted("no"),
}


async def test_a_reason_comes_with_its_code_and_its_details(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for reason, error in RAISED.items():
        with case(reason=reason):
            monkeypatch.setattr("scheduler.engine.writer.Writer.submit", raising(error))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await served.stub.CreateJob(create("b"))
            rule = RULES[error_pb2.ErrorReason.Value(f"ERROR_REASON_{reason}")]
            info, retry = ErrorInfo(), RetryInfo()
            status = rpc_status.from_call(caught.value)
            for detail in status.details if status else ():
                _ = detail.Unpack(info) or detail.Unpack(retry)
            assert (info.reason, info.domain) == (reason, "muster")
            assert caught.value.code() is rule.code
            assert retry.retry_delay.ToMilliseconds() == round((rule.retry_s or 0) * 1_000)
            assert caught.value.details()


async def test_a_proposal_that_no_longer_holds_is_a_conflict(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c", "d", "e"):
        await served.start(name)
    await served.cancel("a")
    moved = Conflict((Stale(StaleReason.JOB, "something moved"),))
    monkeypatch.setattr("scheduler.core.defrag.request.commit", lambda *_: moved)
    defragment = service_pb2.DefragmentRequest(hosts=4, apply=True)
    assert (await refused(served.stub.Defragment(defragment))).reason == "CONFLICT"


def test_every_reason_of_the_list_is_raised_above_and_has_a_rule() -> None:
    listed = {word(number) for number in error_pb2.ErrorReason.values() if number}
    assert listed == set(RAISED)
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
