"""A net over all answers: whatever happens, nothing of one tenant reaches a caller of another.

ada's jobs, reasons, labels and user bear a mark. After each act of hers and of an operator bob
looks at everything that he may look at.
"""

from __future__ import annotations

import asyncio
import base64
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import grpc

from scheduler.core.policies.tenants import PriorityClass, Tenant, Tenants
from scheduler.v1 import job_pb2, service_pb2, window_pb2
from scheduler.wire.jobs import timestamp
from tests.integration.test_console import LOCAL, call
from tests.secured import House
from tests.serving import create, serving, until_running

MARK = b"sekret"
WORDS = "slow at its part of sekretads/sekret0"
TENANTS = Tenants(
    (Tenant("default"), Tenant("sekretads", guaranteed_gpus=24), Tenant("bots", guaranteed_gpus=8)),
    classes=(PriorityClass("high", 10), PriorityClass("low", -5, is_preemptible=True)),
)
SUPPOSED = (
    *("cordon z0", "fail z0-r0-h0", "repair z1-r1-h1", "priority 100", "spares 1", "limit 1h"),
    *("class high", "class low", "uncordon z0"),
)


def job(name: str, hosts: int, kind: str, **more: Any) -> Any:
    request = create(name, hosts, priority_class=kind, **more)
    request.spec.labels["team"] = name
    return request


def window(name: str, kind: Any, **more: Any) -> service_pb2.CreateWindowRequest:
    """A window that is open now."""
    made = window_pb2.Window(name=name, kind=kind, reason=WORDS, **more)
    made.start_time.CopyFrom(timestamp(time.time_ns()))
    made.end_time.CopyFrom(timestamp(time.time_ns() + 20 * 10**9))
    return service_pb2.CreateWindowRequest(window=made)


def after(name: str, awaited: str) -> service_pb2.UpdateJobRequest:
    term = job_pb2.Dependency(kind=job_pb2.DEPENDENCY_KIND_AFTERANY, job=awaited)
    job = job_pb2.Job(name=name, spec=job_pb2.JobSpec(dependencies=[term]))
    return service_pb2.UpdateJobRequest(job=job, update_mask={"paths": ["spec.dependencies"]})


async def life(ada: Any, root: Any, bob: Any) -> AsyncIterator[str]:
    """Do what ada and an operator do, beside jobs of bob; yield what was done last."""
    messages, maintenance = service_pb2, window_pb2.WINDOW_KIND_MAINTENANCE
    await bob.CreateJob(job("m0", 1, "low"))
    await until_running(bob, "m0")
    yield "bob is alone"
    await ada.CreateJob(job("sekret0", 3, "low", min_dp=2))
    held = (await until_running(ada, "sekret0")).placement.hosts
    await ada.CreateJob(job("sekret1", 3, "high"))
    await until_running(ada, "sekret1")
    await bob.CreateJob(job("m1", 5, "low"))
    await ada.CreateJob(job("sekret2", 5, "low"))
    yield "hers run and wait beside his"
    await root.ReportHost(messages.ReportHostRequest(name=held[0], signal="gpu-lost", detail=WORDS))
    await root.ReportLink(messages.ReportLinkRequest(name="z0", share=0.5, detail=WORDS))
    yield "a host of hers and an uplink failed"
    await root.DrainHost(messages.DrainHostRequest(name=held[1], reason=WORDS))
    yield "another host of hers is drained"
    await root.CreateWindow(window("w", maintenance, hosts=["z1-r1"]))
    reservation = window_pb2.WINDOW_KIND_RESERVATION
    await root.CreateWindow(window("sekretw", reservation, hosts=["z0-r1"], tenant="sekretads"))
    await root.UpdateJob(after("bots/m1", "sekretads/sekret2"))
    await root.Defragment(messages.DefragmentRequest(hosts=2))
    yield "windows, and a job of his waits for one of hers"
    failed = job_pb2.JOB_STATE_FAILED
    await ada.EndJob(
        messages.EndJobRequest(name="sekret1", outcome=failed, reason="sekret is full")
    )
    await root.ReportHost(messages.ReportHostRequest(name=held[0], signal="repaired"))
    await root.UncordonHost(messages.UncordonHostRequest(name=held[1]))
    yield "a gang of hers failed, and hosts came back"
    for name in ("sekret0", "sekret2"):
        await ada.CancelJob(messages.CancelJobRequest(name=name, reason="sekret reason"))
    await bob.CreateJob(job("m2", 2, "high"))
    yield "hers are over"


def looks(names: list[str]) -> Iterator[tuple[str, Any]]:
    """Calls of bob, who has jobs of these names: method and request."""
    for hosts, kind in product((2, 8), ("high", "low")):
        dry = job("dry", hosts, kind)
        dry.validate_only = dry.estimate_start = dry.with_decision = True
        yield "CreateJob", dry
    yield from (
        ("ListJobs", service_pb2.ListJobsRequest(estimate_starts=True)),
        ("ListJobs", service_pb2.ListJobsRequest(page_size=1)),
        ("GetStatus", service_pb2.GetStatusRequest(gangs=100, incidents=100)),
        ("ListHosts", service_pb2.ListHostsRequest()),
        ("ListHosts", service_pb2.ListHostsRequest(filter='reason = "*"', page_size=1)),
        ("ListLinks", service_pb2.ListLinksRequest()),
        ("ListWindows", service_pb2.ListWindowsRequest()),
        ("ListSpares", service_pb2.ListSparesRequest()),
        ("ListSlots", service_pb2.ListSlotsRequest(sizes=[8, 32])),
        ("SumUsage", service_pb2.SumUsageRequest(group_by=[1, 2, 3])),
        ("ListTenants", service_pb2.ListTenantsRequest()),
    )
    for name in names:
        yield "GetJob", service_pb2.GetJobRequest(name=name, with_decision=True)
        yield "UpdateJob", after(name, "m1")
        for suppose in ([], *([each] for each in SUPPOSED)):
            yield "ExplainJob", service_pb2.ExplainJobRequest(name=name, suppose=suppose)


async def answered(stub: Any, method: str, request: Any) -> bytes:
    """All that comes back, refusals included; of a stream what comes within a moment."""
    parts, asked = list[bytes](), getattr(stub, method)(request)
    try:
        if method.startswith("Watch"):
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    async for message in asked:
                        parts.append(message.SerializeToString())
            asked.cancel()
        else:
            parts.append((await asked).SerializeToString())
    except grpc.aio.AioRpcError as error:
        parts.append((error.details() or "").encode())
        values = [value for _, value in error.trailing_metadata() or ()]
        parts += [value if isinstance(value, bytes) else value.encode() for value in values]
    return b"\n".join(parts)


def has_mark(raw: bytes) -> bool:
    """Also within what looks like base64, as tokens of pages do."""
    return MARK in raw or any(
        MARK in base64.urlsafe_b64decode(text[: len(text) // 4 * 4])
        for text in re.findall(rb"[A-Za-z0-9_-]{8,}", raw)
    )


async def test_nothing_of_a_tenant_reaches_a_caller_of_another(tmp_path: Path) -> None:
    assert has_mark(b"token " + base64.urlsafe_b64encode(b"12" + MARK + b"3"))
    house = House(tmp_path)
    root, ada = house.token("root", "admin"), house.token("sekretada", "coordinator", "sekretads")
    bob = house.token("bob", "coordinator", "bots")
    settings: Any = {"console": LOCAL, "clock": time.time_ns, "tenants": TENANTS}
    async with (
        serving(tmp_path, access=house.access(), **settings) as served,
        house.calling(served, root) as operator,
        house.calling(served, ada) as hers,
        house.calling(served, bob) as his,
    ):
        async for act in life(hers, operator, his):
            for method, request in looks(["m0", "m1"]):
                answer = await answered(his, method, request)
                assert not has_mark(answer), (act, method, request, answer)
        for kind in ("Jobs", "Hosts", "Windows", "Links"):
            request = getattr(service_pb2, f"Watch{kind}Request")(after_version=1)
            assert not has_mark(await answered(his, f"Watch{kind}", request)), kind
        shown = {"authorization": f"Bearer {bob}", "accept_encoding": "identity"}
        for method, verb in (("/timeline", "GET"), ("GetStatus", "POST"), ("ListHosts", "POST")):
            reply = await call(served, method, {}, verb=verb, **shown)
            assert (reply.status, has_mark(reply.body)) == (200, False), method
        everything = await answered(operator, "ListJobs", service_pb2.ListJobsRequest())
        assert has_mark(everything)  # there was something to hide
