"""Whoever asks for whatever of whose job ever: the answer is the one of a table, and only what the
table allows has happened."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.v1 import job_pb2, service_pb2
from tests.secured import House
from tests.serving import CANCELLED, create, error_of, serving

TENANTS = Tenants((Tenant("default"), Tenant("ads"), Tenant("bots")))
CALLERS = {  # role and tenant
    "ada": ("submitter", "ads"),
    "bea": ("submitter", "ads"),
    "cor": ("coordinator", "ads"),
    "vic": ("viewer", "ads"),
    "lou": ("launcher", "ads"),
    "bob": ("submitter", "bots"),
    "eve": ("submitter", "*"),
    "root": ("operator", ""),
}
OWNERS = ("ada", "bea", "cor", "bob")
ACTIONS = ("cancel", "label", "limit", "see")
Step = tuple[str, int, str]  # caller, job, action

Code = grpc.StatusCode
steps = st.lists(
    st.tuples(st.sampled_from(tuple(CALLERS)), st.integers(0, 5), st.sampled_from(ACTIONS)),
    min_size=10,
    max_size=40,
)


def allowed(caller: str, owner: str, action: str) -> Code:
    """What the documentation says, worked out here a second time."""
    role, tenant = CALLERS[caller]
    if tenant not in ("", "*", CALLERS[owner][1]):
        may_call = role not in ("viewer", "launcher") or action == "see"
        return Code.NOT_FOUND if may_call else Code.PERMISSION_DENIED
    if action == "see":
        return Code.OK
    if role in ("operator", "coordinator") or (role == "submitter" and caller == owner):
        return Code.OK
    return Code.PERMISSION_DENIED


def request(name: str, action: str, value: str) -> tuple[str, Any]:
    if action == "cancel":
        return "CancelJob", service_pb2.CancelJobRequest(name=name)
    if action == "see":
        return "GetJob", service_pb2.GetJobRequest(name=name)
    spec = job_pb2.JobSpec(labels={"by": value})
    if action == "limit":
        spec = job_pb2.JobSpec(time_limit={"seconds": 60 + len(value)})
    return "UpdateJob", service_pb2.UpdateJobRequest(job=job_pb2.Job(name=name, spec=spec))


async def check(folder: Path, asked: list[Step], owners: list[str]) -> None:
    house = House(folder)
    tokens = {name: house.token(name, role, of) for name, (role, of) in CALLERS.items()}
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(
            serving(folder, access=house.access(), tenants=TENANTS)
        )
        stubs = {
            name: await stack.enter_async_context(house.calling(served, token))
            for name, token in tokens.items()
        }
        # None of them ever starts: the first holds all hosts.
        await stubs["root"].CreateJob(create("all", 8))
        names = []
        for number, owner in enumerate(owners):
            made = await stubs[owner].CreateJob(create(f"j{number}"))
            assert made.user == owner
            names.append(made.name)
        over, labels = set[int](), dict[int, str]()
        for caller, number, action in asked:
            owner = owners[number]
            method, message = request(names[number], action, caller)
            try:
                await getattr(stubs[caller], method)(message)
                code = Code.OK
            except grpc.aio.AioRpcError as error:
                code = error_of(error).code
            expected = allowed(caller, owner, action)
            if expected is Code.OK and number in over and action in ("label", "limit"):
                expected = Code.FAILED_PRECONDITION
            assert code is expected, (caller, owner, action)
            if code is Code.OK and action == "cancel":
                over.add(number)
            if code is Code.OK and action == "label":
                labels[number] = caller
        for number, name in enumerate(names):
            job = await stubs["root"].GetJob(service_pb2.GetJobRequest(name=name))
            assert (job.state == CANCELLED) == (number in over)
            assert job.spec.labels.get("by", "") == labels.get(number, "")
            assert job.user == owners[number]


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps, st.lists(st.sampled_from(OWNERS), min_size=6, max_size=6))
def test_a_user_acts_on_its_own_jobs_alone(asked: list[Step], owners: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(Path(folder), asked, owners))
