"""A tenant acts on its own jobs alone, also when names change hands while a command waits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc

from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.v1 import job_pb2, service_pb2
from tests.secured import House
from tests.serving import create, error_of, refused, serving

TENANTS = Tenants((Tenant("default"), Tenant("ads"), Tenant("bots")))
ROUNDS = 12


async def test_a_name_that_changes_hands_gives_nobody_anothers_job(tmp_path: Path) -> None:
    """bob's changes were checked on his own job of that name, and would meet ada's new one."""
    house = House(tmp_path)
    ada, bob = house.token("ada", "submitter", "ads"), house.token("bob", "submitter", "bots")
    async with (
        serving(tmp_path, access=house.access(), tenants=TENANTS) as served,
        house.calling(served, ada) as hers,
        house.calling(served, bob) as his,
    ):
        for turn in range(ROUNDS):
            name = f"victim{turn}"
            await his.CreateJob(create(name))
            await his.CancelJob(service_pb2.CancelJobRequest(name=name))
            update = service_pb2.UpdateJobRequest(
                job=job_pb2.Job(name=name, spec=job_pb2.JobSpec(labels={"owned": "by bob"})),
                update_mask={"paths": ["spec.labels"]},
            )
            attacks = [
                call
                for _ in range(8)
                for call in (
                    his.CancelJob(service_pb2.CancelJobRequest(name=name)),
                    his.UpdateJob(update),
                )
            ]
            made, *answers = await asyncio.gather(
                hers.CreateJob(create(name)), *attacks, return_exceptions=True
            )
            assert not isinstance(made, BaseException), made
            job = await hers.GetJob(service_pb2.GetJobRequest(name=name))
            assert job.uid == made.uid
            assert job.state != job_pb2.JOB_STATE_CANCELLED
            assert not job.spec.labels
            for answer in answers:
                if isinstance(answer, grpc.aio.AioRpcError):
                    assert "ads" not in str(error_of(answer))
                elif not isinstance(answer, BaseException):
                    assert answer.tenant == "bots"


async def test_a_uid_shows_nobody_the_job_of_another_tenant(tmp_path: Path) -> None:
    """The name is bob's own again; the uid is of ada's job, which had it before."""
    house = House(tmp_path)
    ada, bob = house.token("ada", "submitter", "ads"), house.token("bob", "submitter", "bots")
    async with (
        serving(tmp_path, access=house.access(), tenants=TENANTS) as served,
        house.calling(served, ada) as hers,
        house.calling(served, bob) as his,
    ):
        old = await hers.CreateJob(create("a"))
        await hers.CancelJob(service_pb2.CancelJobRequest(name="a", uid=old.uid))
        new = await his.CreateJob(create("a"))
        own = service_pb2.GetJobRequest(name="a", uid=new.uid)
        assert (await his.GetJob(own)).uid == new.uid
        for call in (
            his.GetJob(service_pb2.GetJobRequest(name="a", uid=old.uid)),
            his.CancelJob(service_pb2.CancelJobRequest(name="a", uid=old.uid)),
            his.UpdateJob(
                service_pb2.UpdateJobRequest(
                    job=job_pb2.Job(name="a", uid=old.uid, spec=job_pb2.JobSpec(priority=3))
                )
            ),
        ):
            error = await refused(call)
            assert error.code is grpc.StatusCode.NOT_FOUND
            assert "ads" not in str(error)


async def test_a_request_id_is_the_callers_own(tmp_path: Path) -> None:
    """An id that ada used says nothing to bob, and does not stand in his way."""
    house = House(tmp_path)
    ada, bob = house.token("ada", "submitter", "ads"), house.token("bob", "submitter", "bots")
    async with (
        serving(tmp_path, access=house.access(), tenants=TENANTS) as served,
        house.calling(served, ada) as hers,
        house.calling(served, bob) as his,
    ):
        first = await hers.CreateJob(create("secret", request_id="r"))
        again = await hers.CreateJob(create("secret", request_id="r"))
        assert again.uid == first.uid
        other = await his.CreateJob(create("b", request_id="r"))
        assert other.name == "tenants/bots/jobs/b"
        error = await refused(his.CreateJob(create("c", request_id="r")))
        assert error.fields == ("request_id",)
        assert "secret" not in str(error)
