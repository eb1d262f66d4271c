"""A net over all answers: whatever happens, nothing of one tenant reaches a caller of another.

ada's jobs, reasons, labels and user bear a mark. She, an operator and bob live on at random, and
bob looks at everything that he may look at after every step.
"""

from __future__ import annotations

import asyncio
import base64
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import grpc

from scheduler.core.policies.tenants import PriorityClass, Tenant, Tenants
from scheduler.v1 import job_pb2, service_pb2, window_pb2
from scheduler.wire.jobs import timestamp
from tests.integration.test_console import LOCAL, call
from tests.secured import House
from tests.serving import Served, create, serving

MARK, STEPS = b"sekret", 25
TENANTS = Tenants(
    (Tenant("default"), Tenant("sekretads", guaranteed_gpus=24), Tenant("bots", guaranteed_gpus=8)),
    classes=(PriorityClass("high", 10), PriorityClass("low", -5, is_preemptible=True)),
)
HOSTS = [f"z{zone}-r{rack}-h{host}" for zone in (0, 1) for rack in (0, 1) for host in (0, 1)]
SUPPOSED = (
    *("cordon z0", "fail z0-r0-h0", "repair z1-r1-h1", "priority 100", "spares 1", "limit 1h"),
    *("class high", "class low", "uncordon z0"),
)


class Life:
    """What ada and an operator do. `names`: of their jobs, and of bob's, who submits some too."""

    def __init__(self, random: Random, ada: Any, root: Any, bob: Any) -> None:
        self.random, self.ada, self.root, self.bob = random, ada, root, bob
        self.hers: list[str] = []
        self.his: list[str] = []

    async def step(self) -> None:
        acts = (
            *(self._submit, self._submit, self._submit, self._end, self._end, self._report),
            *(self._mend, self._mend, self._drain, self._move, self._window, self._depend),
            *(self._link, self._fail),
        )
        with suppress(grpc.aio.AioRpcError):  # refusals are part of life
            await self.random.choice(acts)()

    async def _submit(self) -> None:
        random, is_hers = self.random, self.random.random() < 0.5
        names, stub = (self.hers, self.ada) if is_hers else (self.his, self.bob)
        name = f"{'sekret' if is_hers else 'm'}{len(names)}"
        request = create(name, random.randint(1, 5), priority_class=random.choice(("high", "low")))
        request.spec.labels["team"] = name
        request.spec.spares = random.choice(("0", "1"))
        if random.random() < 0.3:
            request.spec.parallelism.min_dp = 8
        await stub.CreateJob(request)
        names.append(name)

    async def _end(self) -> None:
        name = self.random.choice(self.hers or ["none"])
        cancel = service_pb2.CancelJobRequest(name=name, reason="sekret reason")
        await self.ada.CancelJob(cancel)

    async def _fail(self) -> None:
        name = self.random.choice(self.hers or ["none"])
        outcome = job_pb2.JOB_STATE_FAILED
        end = service_pb2.EndJobRequest(name=name, outcome=outcome, reason="sekret volume is full")
        await self.ada.EndJob(end)

    async def _report(self) -> None:
        report = service_pb2.ReportHostRequest(
            name=self.random.choice(HOSTS), signal="gpu-lost", detail=self._words()
        )
        await self.root.ReportHost(report)

    async def _mend(self) -> None:
        name = self.random.choice(HOSTS)
        await self.root.ReportHost(service_pb2.ReportHostRequest(name=name, signal="repaired"))
        await self.root.UncordonHost(service_pb2.UncordonHostRequest(name=name))

    async def _drain(self) -> None:
        name = self.random.choice(HOSTS)
        await self.root.DrainHost(service_pb2.DrainHostRequest(name=name, reason=self._words()))

    async def _move(self) -> None:
        await self.root.Defragment(service_pb2.DefragmentRequest(hosts=2))

    async def _window(self) -> None:
        kinds = (window_pb2.WINDOW_KIND_MAINTENANCE, window_pb2.WINDOW_KIND_RESERVATION)
        kind, now_ns = self.random.choice(kinds), time.time_ns()
        window = window_pb2.Window(
            name=f"w{now_ns}", kind=kind, hosts=[self.random.choice(HOSTS)], reason=self._words()
        )
        if kind == window_pb2.WINDOW_KIND_RESERVATION:
            window.name, window.tenant = f"sekretw{now_ns}", "sekretads"
        window.start_time.CopyFrom(timestamp(now_ns + 10**9))
        window.end_time.CopyFrom(timestamp(now_ns + 20 * 10**9))
        await self.root.CreateWindow(service_pb2.CreateWindowRequest(window=window))

    async def _depend(self) -> None:
        """An operator makes a job of bob wait for one of ada's."""
        awaited = f"sekretads/{self.random.choice(self.hers or ['none'])}"
        name = f"bots/{self.random.choice(self.his or ['none'])}"
        await self.root.UpdateJob(after(name, awaited))

    async def _link(self) -> None:
        share = self.random.choice((0.5, 1.0))
        link = service_pb2.ReportLinkRequest(name="z0", share=share, detail=self._words())
        await self.root.ReportLink(link)

    def _words(self) -> str:
        return f"slow at its part of sekretads/{self.random.choice(self.hers or ['sekret0'])}"


def after(name: str, awaited: str) -> service_pb2.UpdateJobRequest:
    term = job_pb2.Dependency(kind=job_pb2.DEPENDENCY_KIND_AFTERANY, job=awaited)
    job = job_pb2.Job(name=name, spec=job_pb2.JobSpec(dependencies=[term]))
    return service_pb2.UpdateJobRequest(job=job, update_mask={"paths": ["spec.dependencies"]})


def looks(random: Random, names: list[str]) -> Iterator[tuple[str, Any]]:
    """Calls of bob: method and request."""
    dry = create("dry", random.randint(1, 8), priority_class=random.choice(("high", "low")))
    dry.validate_only = dry.estimate_start = dry.with_decision = True
    yield from (
        ("CreateJob", dry),
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
    for name in random.sample(names, min(2, len(names))):
        yield "GetJob", service_pb2.GetJobRequest(name=name)
        yield "GetJob", service_pb2.GetJobRequest(name=name, with_decision=True)
        suppose = [random.choice(SUPPOSED)]
        yield "ExplainJob", service_pb2.ExplainJobRequest(name=name)
        yield "ExplainJob", service_pb2.ExplainJobRequest(name=name, suppose=suppose)
        yield "UpdateJob", after(name, random.choice(names))


async def answered(stub: Any, method: str, request: Any) -> bytes:
    """All that comes back, refusals included; of a stream what comes within a moment."""
    parts, asked = list[bytes](), getattr(stub, method)(request)
    try:
        if method.startswith("Watch"):
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
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


def test_the_net_sees_marks() -> None:
    assert has_mark(b"a" + MARK)
    assert has_mark(b"token " + base64.urlsafe_b64encode(b"12" + MARK + b"3"))
    assert not has_mark(b"nothing of anybody, in none of these words")


async def test_nothing_of_a_tenant_reaches_a_caller_of_another(tmp_path: Path) -> None:
    random, house = Random(1), House(tmp_path)
    root, ada = house.token("root", "admin"), house.token("sekretada", "coordinator", "sekretads")
    bob = house.token("bob", "coordinator", "bots")
    settings: Any = {"console": LOCAL, "clock": time.time_ns, "tenants": TENANTS}
    async with (
        serving(tmp_path, access=house.access(), **settings) as served,
        house.calling(served, root) as operator,
        house.calling(served, ada) as hers,
        house.calling(served, bob) as his,
    ):
        life = Life(random, hers, operator, his)
        for _ in range(STEPS):
            for _ in range(3):
                await life.step()
            for method, request in looks(random, life.his):
                answer = await answered(his, method, request)
                assert not has_mark(answer), (method, request, answer)
        for kind in ("Jobs", "Hosts", "Windows", "Links"):
            request = getattr(service_pb2, f"Watch{kind}Request")(after_version=1)
            assert not has_mark(await answered(his, f"Watch{kind}", request)), kind
        await _console_shows_nothing(served, bob)
        everything = await answered(operator, "ListJobs", service_pb2.ListJobsRequest())
        assert has_mark(everything)  # there was something to hide


async def _console_shows_nothing(served: Served, token: str) -> None:
    shown = {"authorization": f"Bearer {token}", "accept_encoding": "identity"}
    for method, verb in (("/timeline", "GET"), ("GetStatus", "POST"), ("ListHosts", "POST")):
        reply = await call(served, method, {}, verb=verb, **shown)
        assert reply.status == 200
        assert not has_mark(reply.body), method
