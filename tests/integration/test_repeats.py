"""Every call that changes something, made again after what it did was undone: it does nothing."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc

from drills.fuzz.calls import maintenance
from scheduler.v1 import job_pb2, service_pb2, window_pb2
from tests.cases import case
from tests.serving import RUNNING, Served, create

HOST, LINK = "z1-r1-h1", "z0"


@dataclass(frozen=True)
class Repeat:
    """`before`: what there is first. `call`: a method and its request. `undo`: what others do until
    it is made again. Each step is a method and a request, "runs" waits for the job."""

    name: str
    call: tuple[str, Any]
    undo: tuple[tuple[str, Any], ...] = ()
    before: tuple[tuple[str, Any], ...] = ()


def of(method: str, **fields: Any) -> tuple[str, Any]:
    return method, getattr(service_pb2, f"{method}Request")(**fields)


def labelled(value: str) -> tuple[str, Any]:
    job = job_pb2.Job(name="j", spec=job_pb2.JobSpec(labels={"x": value}))
    return of("UpdateJob", job=job, update_mask={"paths": ["spec.labels"]})


def size(dp: int) -> tuple[str, Any]:
    return of("ResizeJob", name="j", dp=dp)


def window(reason: str) -> window_pb2.Window:
    made = maintenance("w", 7_200, [HOST])
    made.reason = reason
    return made


SUBMIT, RUNS = ("CreateJob", create("j")), ("runs", None)
CANCEL, RELEASE = of("CancelJob", name="j"), of("ReleaseJob", name="j")
HOLD = of("HoldJob", name="j")
CORDON, UNCORDON = of("CordonHost", name=HOST), of("UncordonHost", name=HOST)
BREAK = of("ReportHost", name=HOST, signal="gpu-lost")
REPAIR = of("ReportHost", name=HOST, signal="repaired")
DOWN, UP = (of("ReportLink", name=LINK, share=share) for share in (0.5, 1.0))
CLOSE, OPEN = of("CordonLink", name=LINK), of("UncordonLink", name=LINK)
MAKE, REMOVE = of("CreateWindow", window=window("a")), of("DeleteWindow", name="w")
CHANGED, BACK = (
    of("UpdateWindow", window=window(reason), update_mask={"paths": ["reason"]})
    for reason in ("b", "a")
)
COMPLETED = job_pb2.JOB_STATE_COMPLETED
REPORTS = [service_pb2.ReportHostRequest(name=HOST, signal="gpu-lost")]

REPEATS = (
    Repeat("submit", SUBMIT, (RUNS, CANCEL)),
    Repeat("update", labelled("1"), (labelled("2"),), (SUBMIT, RUNS)),
    Repeat("update to the same", labelled("1"), (labelled("2"),), (SUBMIT, RUNS, labelled("1"))),
    Repeat("hold", HOLD, (RELEASE,), (SUBMIT, RUNS)),
    Repeat("release", RELEASE, (HOLD,), (SUBMIT, RUNS, HOLD)),
    Repeat("release of what is free", RELEASE, (HOLD,), (SUBMIT, RUNS)),
    Repeat("requeue", of("RequeueJob", name="j"), (RUNS,), (SUBMIT, RUNS)),
    Repeat("resize", size(2), (size(1),), (SUBMIT, RUNS)),
    Repeat("resize to its size", size(1), (size(2),), (SUBMIT, RUNS)),
    Repeat("cancel", CANCEL, (SUBMIT, RUNS), (SUBMIT, RUNS)),
    Repeat("cancel of what has ended", CANCEL, (SUBMIT, RUNS), (SUBMIT, CANCEL)),
    Repeat("end", of("EndJob", name="j", outcome=COMPLETED), (SUBMIT, RUNS), (SUBMIT, RUNS)),
    Repeat("cordon", CORDON, (UNCORDON,)),
    Repeat("cordon of what is", CORDON, (UNCORDON,), (CORDON,)),
    Repeat("drain", of("DrainHost", name=HOST), (UNCORDON,)),
    Repeat("uncordon", UNCORDON, (CORDON,), (CORDON,)),
    Repeat("uncordon of what is not", UNCORDON, (CORDON,)),
    Repeat("failure", BREAK, (REPAIR,)),
    Repeat("several failures", of("ReportHosts", reports=REPORTS), (REPAIR,)),
    Repeat("repair", REPAIR, (BREAK,), (BREAK,)),
    Repeat("repair of what works", REPAIR, (BREAK,)),
    Repeat("slow link", DOWN, (UP,)),
    Repeat("link as it was", UP, (DOWN,)),
    Repeat("closed link", CLOSE, (OPEN,)),
    Repeat("drained link", of("DrainLink", name=LINK), (OPEN,)),
    Repeat("opened link", OPEN, (CLOSE,), (CLOSE,)),
    Repeat("window", MAKE, (REMOVE,)),
    Repeat("window's change", CHANGED, (BACK,), (MAKE,)),
    Repeat("window's end", REMOVE, (MAKE,), (MAKE,)),
)


async def test_a_repeat_does_nothing_once_it_was_undone(served: Served) -> None:
    for repeat in REPEATS:
        with case(name=repeat.name):
            await _check(served, repeat)
        for step in (CANCEL, UNCORDON, REPAIR, UP, OPEN, REMOVE):
            with suppress(grpc.aio.AioRpcError):  # there is none
                await _do(served, step)


async def _check(served: Served, repeat: Repeat) -> None:
    for step in repeat.before:
        await _do(served, step)
    method, request = repeat.call
    named = type(request)()
    named.CopyFrom(request)
    (named.reports[0] if method == "ReportHosts" else named).request_id = repeat.name
    first = await _do(served, (method, named))
    for step in repeat.undo:
        await _do(served, step)
    version = await _at_rest(served)
    with suppress(grpc.aio.AioRpcError):  # what it made may be gone
        again = await _do(served, (method, named))
        assert getattr(again, "uid", "") in ("", getattr(first, "uid", ""))
    assert await _at_rest(served) == version


def test_every_method_that_takes_a_request_id_is_repeated_here() -> None:
    methods = service_pb2.DESCRIPTOR.services_by_name["SchedulerService"].methods
    taking = {each.name for each in methods if "request_id" in each.input_type.fields_by_name}
    elsewhere = {"ApplyFabric", "Defragment"}  # test_fabric.py, test_defrag.py
    assert taking - elsewhere == {each.call[0] for each in REPEATS} - {"ReportHosts"}


async def _do(served: Served, step: tuple[str, Any]) -> Any:
    method, request = step
    if method == "runs":
        return await served.until("j", RUNNING)
    asked: Awaitable[Any] = getattr(served.stub, method)(request)
    return await asked


async def _at_rest(served: Served) -> int:
    """The version of the log once nothing more is decided."""
    seen, version = -1, 0
    while seen != version:
        seen = version
        await asyncio.sleep(0.02)
        version = (await served.stub.GetStatus(service_pb2.GetStatusRequest())).version
    return version
