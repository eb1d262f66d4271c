"""Jobs that ended so long ago that no state has them are read from the store."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from scheduler.core import Job
from scheduler.core.model.job import SECOND_NS
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.engine.snapshotter import Retention, compacted
from scheduler.eventlog.repair import repair, repair_plan
from scheduler.eventlog.store import backup, look_at, open_store, restore
from scheduler.eventlog.store.verify import verify
from scheduler.service.names import long_ended
from scheduler.v1 import job_pb2, service_pb2
from tests.integration.test_replicas import replicas
from tests.secured import callers
from tests.serving import CANCELLED, Served, change, create, path, refused, serving, url

COUNT = 12
NAMES = [f"j{number:02}" for number in range(COUNT)]
ODD = NAMES[1::2]
TENANTS = Tenants((Tenant("default"), Tenant("ads"), Tenant("bots")))


@pytest.fixture(autouse=True)
def few_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state keeps the newest two of a tenant; the rest is in the store alone."""
    monkeypatch.setattr("scheduler.core.fold.index.RETAINED", 2)


async def live_and_die(served: Served, stub: Any = None) -> dict[str, str]:
    """Make and cancel jobs; their uids by name."""
    uids, stub = {}, stub or served.stub
    for name in NAMES:
        uids[name] = (await stub.CreateJob(labelled(name))).uid
        await stub.CancelJob(service_pb2.CancelJobRequest(name=name, reason=f"enough of {name}"))
    return uids


def labelled(name: str) -> service_pb2.CreateJobRequest:
    message: service_pb2.CreateJobRequest = create(name, request_id=f"create {name}")
    message.spec.labels["parity"] = "odd" if name in ODD else "even"
    return message


async def listed(stub: Any, size: int = 5, **request: Any) -> list[list[str]]:
    """The names of each page."""
    pages, message = list[list[str]](), service_pb2.ListJobsRequest(page_size=size, **request)
    while message.page_token or not pages:
        answer = await stub.ListJobs(message)
        pages.append([job.spec.name for job in answer.jobs])
        message.page_token = answer.next_page_token
    return pages


async def names(stub: Any, size: int = 5, **request: Any) -> list[str]:
    return [name for page in await listed(stub, size, **request) for name in page]


async def check_all_are_there(served: Served, uids: dict[str, str]) -> None:
    """Whatever reads a job reads one that ended long ago."""
    stub = served.stub
    for name in ("j00", "j07"):
        for asked in (name, path(name)):
            job = await stub.GetJob(service_pb2.GetJobRequest(name=asked))
            assert (job.uid, job.state, job.reason) == (uids[name], CANCELLED, f"enough of {name}")
        job = await stub.GetJob(service_pb2.GetJobRequest(name=name, uid=uids[name]))
        assert job.goodput.parts
        explained = await stub.ExplainJob(service_pb2.ExplainJobRequest(name=name))
        assert explained.reason.sentence == f"{name} is cancelled"
    error = await refused(stub.GetJob(service_pb2.GetJobRequest(name="j00", uid=uids["j01"])))
    assert error.reason == "NOT_FOUND"
    assert await listed(stub) == [NAMES[:5], NAMES[5:10], NAMES[10:]]
    assert await listed(stub, order_by="name desc") == [NAMES[:6:-1], NAMES[6:1:-1], NAMES[1::-1]]
    assert await names(stub, 2, filter="labels.parity = odd") == ODD
    assert await names(stub, filter='name = "j03"') == ["j03"]
    assert await names(stub, states=[job_pb2.JOB_STATE_CANCELLED]) == NAMES
    assert await names(stub, states=[job_pb2.JOB_STATE_COMPLETED]) == []
    assert await names(stub, recent_only=True) == NAMES[-2:]


async def test_pages_meet_live_and_ended_jobs_in_one_order(served: Served) -> None:
    await live_and_die(served)
    live = [f"live{number}" for number in range(4)]
    for number, name in enumerate(live):
        await served.start(name, priority=number)  # nothing moves between two pages
    for order_by in ("", "tenant, name desc", "priority desc, update_time"):
        (whole,) = await listed(served.stub, 100, order_by=order_by)
        assert sorted(whole) == [*NAMES, *live]
        for size in (1, 3):
            assert await names(served.stub, size, order_by=order_by) == whole


async def test_a_page_reads_so_much_and_says_where_the_next_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.wire.lists.listing._MOST_READ", 3)
    async with serving(tmp_path) as served:
        await live_and_die(served)
        pages = await listed(served.stub, filter='name = "j07" OR name = "j11"')
        assert pages[0] == []
        assert [name for page in pages for name in page] == ["j07", "j11"]


async def test_servers_that_share_a_store_all_read_them(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In few round trips a page."""
    asked, execute = list[str](), psycopg.Connection.execute

    def counted(connection: Any, query: Any, *values: Any, **options: Any) -> Any:
        asked.append(query.decode() if isinstance(query, bytes) else str(query))
        return execute(connection, query, *values, **options)

    async with replicas(tmp_path, database, 2) as (leader, follower):
        uids = await live_and_die(leader)
        version = str((await leader.get("j11")).version)
        await follower.stub.GetJob(
            service_pb2.GetJobRequest(name="j11"), metadata=(("muster-min-version", version),)
        )
        await check_all_are_there(leader, uids)
        await check_all_are_there(follower, uids)
        monkeypatch.setattr(psycopg.Connection, "execute", counted)
        pages = await listed(leader.stub, size=COUNT, order_by="name desc")
    assert pages[0] == sorted(NAMES, reverse=True)
    assert 1 <= len([query for query in asked if "FROM ended_job" in query]) <= 4


async def test_ended_jobs_are_those_of_the_callers_tenant(tmp_path: Path) -> None:
    who = ("ada", "submitter", "ads"), ("bob", "submitter", "bots")
    async with callers(tmp_path, *who, tenants=TENANTS) as (served, hers, his):
        uids = await live_and_die(served, hers)
        assert await names(hers) == NAMES
        assert await names(his) == []
        for name in ("j00", path("j00", "ads")):
            for uid in ("", uids["j00"]):
                asked = service_pb2.GetJobRequest(name=name, uid=uid)
                assert (await refused(his.GetJob(asked))).reason == "NOT_FOUND"
        cancel = service_pb2.CancelJobRequest(name=path("j00", "ads"))
        assert (await refused(his.CancelJob(cancel))).reason == "NOT_FOUND"


async def test_a_request_is_repeated_after_its_job_ended_long_ago(served: Served) -> None:
    uids = await live_and_die(served)
    assert (await served.stub.CreateJob(labelled("j00"))).uid == uids["j00"]
    error = await refused(served.cancel("j00"))
    assert (error.reason, error.message) == ("WRONG_STATE", "job j00 is already cancelled")


async def test_a_refused_cancel_says_nothing_of_a_job_that_came_after_it(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(*arguments: Any) -> Job | None:
        await served.stub.CreateJob(create("new"))
        return await long_ended(*arguments)

    monkeypatch.setattr("scheduler.service.rpc.jobs.jobs.long_ended", late)
    assert (await refused(served.cancel("new"))).reason == "NOT_FOUND"


async def test_compaction_loses_no_ended_job(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        uids = await live_and_die(served)
    with closing(open_store(url(tmp_path))) as store:
        assert compacted(store, time.time_ns()) > 0
        report = verify(store)
        assert (report.problems, report.ended_jobs, store.first_version() > 1) == ((), COUNT, True)
    async with serving(tmp_path) as served:
        await check_all_are_there(served, uids)


async def test_a_backup_has_the_ended_jobs_in_either_kind_of_store(
    tmp_path: Path, database: str
) -> None:
    async with serving(tmp_path) as served:
        uids = await live_and_die(served)
    with closing(open_store(url(tmp_path))) as store:
        store.drop_ended(0)
        compacted(store, time.time_ns())
    backup(url(tmp_path), tmp_path / "first")
    restore(tmp_path / "first", database)
    backup(database, tmp_path / "second")
    (tmp_path / "other").mkdir()
    restore(tmp_path / "second", url(tmp_path / "other"))
    for copy in (database, url(tmp_path / "other")):
        with closing(look_at(copy)) as store:
            report = verify(store)
            assert (report.problems, report.ended_jobs) == ((), COUNT)
    async with serving(tmp_path / "other") as served:
        await check_all_are_there(served, uids)


async def test_a_row_that_is_not_what_was_written_is_found(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await live_and_die(served)
    whole = (tmp_path / "muster.db").read_bytes()
    for statement, problem in (
        ("UPDATE ended_job SET state = 'COMPLETED' WHERE number = 4", "its digest does not fit"),
        ("DELETE FROM ended_job WHERE number = 4", "ended job 4 is missing"),
        ("DELETE FROM ended_job WHERE number = 12", "is missing"),
        ("DELETE FROM ended_job", "is missing"),
    ):
        (tmp_path / "muster.db").write_bytes(whole)
        change(tmp_path / "muster.db", statement)
        with closing(look_at(url(tmp_path))) as store:
            assert any(problem in each for each in verify(store).problems), statement


async def test_a_changed_row_is_not_served(tmp_path: Path, database: str) -> None:
    statement = "UPDATE ended_job SET name = 'x' WHERE number = 4"
    for store in (url(tmp_path), database):
        async with serving(tmp_path, store=store) as served:
            await live_and_die(served)
            if store == database:
                with psycopg.connect(database, autocommit=True) as connection:
                    connection.execute(statement)
            else:
                change(tmp_path / "muster.db", statement)
            error = await refused(served.get("x"))
            assert "is corrupt: ended job 4 (x) is not what was written" in error.message


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_ended_jobs_are_let_go_after_as_long_as_the_operator_says(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """The clock of these servers moves a millisecond a reading: those of a day ago are none."""
    where = url(tmp_path) if kind == "sqlite" else request.getfixturevalue("database")
    async with serving(tmp_path, store=where) as served:
        uids = await live_and_die(served)
        old = (await served.get("j05")).update_time.ToNanoseconds()
    with closing(open_store(where)) as store:
        assert store.drop_ended(old) == 5
        assert store.drop_ended(old) == 0
        assert store.ended_counts() == (7, 5)
        assert verify(store).problems == ()
    async with serving(tmp_path, store=where) as served:
        assert (await refused(served.get("j04"))).reason == "NOT_FOUND"
        assert (await served.get("j05")).uid == uids["j05"]
        await served.stub.CreateJob(create("later"))
        await served.cancel("later")
        assert await names(served.stub) == [*NAMES[5:], "later"]


async def test_a_server_lets_ended_jobs_go_at_its_snapshots(tmp_path: Path) -> None:
    clock_ns = [SECOND_NS]
    settings = {"clock": lambda: clock_ns[0], "retention": Retention(10, None, ended_s=100)}
    async with serving(tmp_path, **settings) as served:
        await live_and_die(served)
        clock_ns[0] += 200 * SECOND_NS
        await served.stub.CreateJob(create("new"))
        await served.cancel("new")
    with closing(open_store(url(tmp_path))) as store:
        assert store.ended_counts() == (1, COUNT)


async def test_a_recovered_log_has_no_ended_job_of_what_was_lost(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await live_and_die(served)
    change(tmp_path / "muster.db", "DELETE FROM snapshot")
    last = "(SELECT MAX(version) FROM log)"
    change(tmp_path / "muster.db", f"UPDATE log SET body = '{{}}' WHERE version = {last}")
    repair(url(tmp_path), repair_plan(url(tmp_path), None), None)
    with closing(look_at(url(tmp_path))) as store:
        report = verify(store)
        assert (report.problems, report.ended_jobs) == ((), COUNT - 1)
