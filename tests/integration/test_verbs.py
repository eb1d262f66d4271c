"""Hold, release, requeue, begin times and dependencies, from the command line to the log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from placement.fabric.hostlist import fold
from scheduler.cli import complete, lists
from scheduler.cli.program import app
from scheduler.files.errors import InputError
from scheduler.v1 import host_pb2, job_pb2, service_pb2
from tests.commands import muster
from tests.integration.test_owners import every_caller
from tests.serving import COMPLETED, QUEUED, RUNNING, Served, create, refused
from tests.waiting import until

Code = grpc.StatusCode
JOB = "parallelism: {tp: 8, dp: 2}\n"


async def test_a_day_with_an_array(served: Served, tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(JOB)
    (tmp_path / "after.yaml").write_text(JOB)
    path = str(tmp_path)
    made = await muster(served, "submit", f"{path}/sweep.yaml", "--array", "1-7%2")
    assert made.exit_code == 0, made.output
    assert "sweep-[3-7]" in made.output
    assert "2 tasks of sweep may run at a time" in made.output.replace("\n", " ")
    task = await served.until("sweep-2", RUNNING)
    assert (task.array, task.array_task, task.spec.array) == ("sweep", 2, "")
    rows = await muster(served, "jobs", "--columns", "name", "--no-headers")
    assert rows.output.split() == ["sweep-1", "sweep-2", "sweep-[3-7]"]
    each = await muster(served, "jobs", "--array", "-o", "name")
    assert len(each.output.split()) == 7
    shown = await muster(served, "job", "sweep")
    assert (shown.exit_code, "sweep-[3-7]" in shown.output) == (0, True), shown.output
    await muster(served, "submit", f"{path}/after.yaml", "--dependency", "afterany:sweep")
    waits = await served.get("after")
    assert waits.reason == (
        "waits for afterany of sweep-1, afterany of sweep-2, afterany of sweep-3 and 4 more"
    )
    await muster(served, "finish", "sweep-1", "--outcome", "completed")
    await served.until("sweep-3", RUNNING)
    other = await muster(served, "submit", f"{path}/sweep.yaml", "--array", "7-9")
    assert (other.exit_code, "sweep-7 is queued already" in other.output) == (1, True)
    done = await muster(served, "cancel", "sweep", "-o", "json")
    names = [job["name"] for job in json.loads(done.output)["jobs"]]
    assert names[-2:] == ["sweep-2", "sweep-3"]
    assert (await served.get("sweep-4")).attempt == 0  # none started meanwhile
    await served.until("after", RUNNING)
    over = await muster(served, "wait", "sweep", "--timeout", "5s")
    assert (over.exit_code, over.output.count("cancelled")) == (1, 6), over.output
    nobody = await muster(served, "cancel", "sweep")
    assert nobody.exit_code == 1
    wrong = await muster(served, "submit", f"{path}/sweep.yaml", "--array", "5-1")
    assert wrong.exit_code == 2


async def test_a_day_with_the_verbs(served: Served, tmp_path: Path) -> None:
    for name in ("prepare", "nightly-1", "nightly-2"):
        (tmp_path / f"{name}.yaml").write_text(JOB)
    path = str(tmp_path)
    held = await muster(served, "submit", f"{path}/prepare.yaml", "--hold")
    assert (held.exit_code, "by its owner" in held.output) == (0, True)
    wait = ["--dependency", "afterok:prepare", "--begin", "2020-01-01T00:00Z"]
    await muster(served, "submit", f"{path}/prepare.yaml", "--name", "train", *wait)
    train = await served.get("train")
    assert (train.state, train.HasField("eligible_time")) == (QUEUED, False)
    assert train.reason == "waits for afterok of prepare"
    shown = await muster(served, "job", "train")
    assert "afterok:prepare" in shown.output
    why = await muster(served, "explain", "train")
    assert "waits for afterok of prepare" in why.output
    for turn in ("nightly-1", "nightly-2"):
        words = ("submit", f"{path}/{turn}.yaml", "--dependency", "singleton")
        done = await muster(served, *words)
        assert done.exit_code == 0, done.output
    await served.until("nightly-1", RUNNING)
    assert (await served.get("nightly-2")).state == QUEUED

    assert (await muster(served, "release", "prepare")).exit_code == 0
    await served.until("prepare", RUNNING)
    await muster(served, "finish", "prepare", "--outcome", "completed")
    await served.until("train", RUNNING)
    again = await muster(served, "requeue", "train", "nightly-[1-2]", "--hold")
    assert (again.exit_code, again.output.count("held by an operator")) == (0, 3), again.output
    assert (await served.get("train")).hold == job_pb2.HOLD_OPERATOR
    some = await muster(served, "release", "train", "nobody")
    assert (some.exit_code, "no job 'nobody'" in some.output) == (1, True), some.output
    running = await served.until("train", RUNNING)
    assert running.attempt == 2
    longer = await muster(served, "update", "train", "--time-limit", "2h")
    assert longer.exit_code == 0, longer.output
    assert (await served.get("train")).spec.time_limit.seconds == 7_200
    stale = await muster(served, "hold", "train", "prepare", "--etag", "1")
    assert (stale.exit_code, "with one job" in stale.output) == (2, True)
    later = await muster(served, "update", "nightly-1", "--begin", "2999-01-01")
    assert later.exit_code == 0, later.output
    assert (await served.get("nightly-1")).spec.begin_time.seconds > 2**34


def test_options_that_are_wrong_are_named() -> None:
    for option, value in (
        ("--name", "-a"),
        ("--begin", "soon"),
        ("--dependency", "afterok"),
        ("--dependency", "after:a"),
        ("--dependency", "singleton:a"),
    ):
        result = CliRunner().invoke(app, ["submit", "-", option, value], input=f"name: a\n{JOB}")
        assert (result.exit_code, option in result.output) == (2, True), result.output


async def test_a_begin_time_that_no_calendar_has_names_the_field(served: Served) -> None:
    await served.stub.CreateJob(create("a"))
    for second in (2**53, -1):
        request, change = create("b"), service_pb2.UpdateJobRequest()
        change.job.name = "a"
        change.update_mask.paths.append("spec.begin_time")
        for spec in (request.spec, change.job.spec):
            spec.begin_time.seconds = second
        for call in (served.stub.CreateJob(request), served.stub.UpdateJob(change)):
            error = await refused(call)
            assert (error.code, "begin_time" in error.message) == (Code.INVALID_ARGUMENT, True)


async def test_several_jobs_are_submitted_and_waited_for(served: Served, tmp_path: Path) -> None:
    several = tmp_path / "several.yaml"
    several.write_text(f"name: a\n{JOB}---\nname: b\n{JOB}")
    done = await muster(served, "submit", str(several), "-o", "name")
    assert (done.exit_code, done.output) == (0, "a\nb\n")
    given = f"name: c\n{JOB}---\nname: b\n{JOB}"
    again = await muster(served, "submit", "-", "-o", "name", given=given)
    assert again.exit_code == 1
    assert set(again.output.splitlines()) == {"c", "muster: a job b is running already"}
    assert (await muster(served, "wait", "a", "b", "--for", "start")).exit_code == 0
    assert (await muster(served, "wait", "a", "c", "--timeout", "1s")).exit_code == 124
    waiting = asyncio.create_task(muster(served, "wait", "a", "b", "c", "-o", "json"))
    await asyncio.sleep(0.2)
    for name in ("a", "b"):
        await served.stub.EndJob(service_pb2.EndJobRequest(name=name, outcome=COMPLETED))
    await served.cancel("c")
    ended = await waiting
    assert ended.exit_code == 1
    states = [job["state"] for job in json.loads(ended.output)["jobs"]]
    assert states == [f"JOB_STATE_{end}" for end in ("COMPLETED", "COMPLETED", "CANCELLED")]
    assert (await muster(served, "wait", "a", "b")).exit_code == 0


async def test_a_file_with_a_fault_submits_nothing(served: Served) -> None:
    for text, message in (
        (f"name: a\n{JOB}---\n{JOB}", "standard input: name: is missing in job 2 of 2"),
        (f"name: a\n{JOB}---\nname: b\nx: 1\n", "standard input:5: x: unknown key"),
        (f"name: a\n{JOB}---\nname: a\n{JOB}", "two jobs are called a"),
    ):
        faulty = await muster(served, "submit", "-", given=text)
        assert isinstance(faulty.exception, InputError)
        assert message in str(faulty.exception)
    assert not (await served.stub.ListJobs(service_pb2.ListJobsRequest())).jobs


async def test_owners_hold_requeue_and_wait_for_their_own_jobs(tmp_path: Path) -> None:
    hold, release = service_pb2.HoldJobRequest, service_pb2.ReleaseJobRequest
    async with every_caller(tmp_path) as (stubs, _):
        name = (await stubs["ada"].CreateJob(create("a"))).name
        for other in ("bea", "vic", "lou", "bob"):
            for call, request in (
                ("HoldJob", hold(name=name)),
                ("ReleaseJob", release(name=name)),
                ("RequeueJob", service_pb2.RequeueJobRequest(name=name)),
                ("ResizeJob", service_pb2.ResizeJobRequest(name=name, dp=2)),
            ):
                error = await refused(getattr(stubs[other], call)(request))
                assert error.code in (Code.PERMISSION_DENIED, Code.NOT_FOUND)
        assert (await stubs["ada"].HoldJob(hold(name=name, validate_only=True))).hold
        assert not (await stubs["ada"].GetJob(service_pb2.GetJobRequest(name=name))).hold
        job = await stubs["ada"].HoldJob(hold(name=name))
        assert job.hold == job_pb2.HOLD_OWNER
        await stubs["ada"].ReleaseJob(release(name=name))
        await stubs["root"].HoldJob(hold(name=name))
        error = await refused(stubs["ada"].ReleaseJob(release(name=name)))
        assert (error.code, "an operator" in error.message) == (Code.FAILED_PRECONDITION, True)
        assert not (await stubs["root"].ReleaseJob(release(name=name))).hold
        await stubs["bob"].CreateJob(create("secret"))
        waits = create("b")
        waits.spec.dependencies.add(kind=job_pb2.DEPENDENCY_KIND_AFTERANY, job="bots/secret")
        error = await refused(stubs["ada"].CreateJob(waits))
        assert (error.code, "cannot see" in error.message) == (Code.INVALID_ARGUMENT, True)


async def test_hosts_are_drained_by_range_and_domain(served: Served) -> None:
    names = (await muster(served, "hosts", "-o", "name")).output.split()
    domain = (await served.stub.GetHost(service_pb2.GetHostRequest(name=names[0]))).domains[-1]
    done = await muster(served, "drain", domain, "--reason", "fan", "-o", "name")
    inside = [name for name in names if name in done.output.split()]
    assert (done.exit_code, done.output.split()) == (0, inside)
    assert 1 < len(inside) < len(names)
    drained = await muster(served, "hosts", "--no-headers", "--columns", "reason,name,state")
    lines = [line.split() for line in drained.output.splitlines()]
    assert [name for *_, name, state in lines if state != "healthy"] == inside
    again = await muster(served, "uncordon", fold(inside[:2]), "no-such", "-o", "name")
    assert again.exit_code == 1
    assert set(again.output.splitlines()) >= {*inside[:2]}
    assert "no-such" in again.output
    one = await muster(served, "uncordon", domain, "--etag", "x")
    assert (one.exit_code, "--etag" in one.output) == (2, True)


async def test_lists_take_columns_and_an_order(served: Served) -> None:
    jobs = "---\n".join(f"name: {name}\npriority: {p}\n{JOB}" for name, p in (("b", 9), ("a", 10)))
    await muster(served, "submit", "-", given=jobs)
    columns = ("--columns", "PRIORITY,name", "--no-headers")
    shown = await muster(served, "jobs", *columns, "--sort", "-priority")
    assert [line.split() for line in shown.output.splitlines()] == [["10", "a"], ["9", "b"]]
    by_name = await muster(served, "jobs", "-o", "name", "--sort", "-name")
    assert by_name.output == "b\na\n"
    assert "HOST LIST" in (await muster(served, "jobs", "-o", "wide")).output
    assert "default" in (await muster(served, "tenants", "--columns", "tenant,parent")).output
    for words, option in (
        (("jobs", "--columns", "colour"), "--columns"),
        (("hosts", "--sort", "colour"), "--sort"),
        (("window", "list", "--columns", "name", "-o", "json"), "--columns"),
        (("links", "--no-headers", "-o", "yaml"), "--no-headers"),
        (("links", "--fabric", "ib-24k", "--watch"), "--fabric"),
    ):
        wrong = await muster(served, *words)
        assert (wrong.exit_code, option in wrong.output) == (2, True), words


async def test_a_list_is_printed_again_when_it_changes(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of the pauses: nothing, then a job is submitted, then Ctrl-C."""
    loop, pauses = asyncio.get_running_loop(), list[float]()

    def pause(duration_s: float) -> None:
        pauses.append(duration_s)
        if len(pauses) == 2:
            submitted = muster(served, "submit", "-", given=f"name: a\n{JOB}")
            asyncio.run_coroutine_threadsafe(submitted, loop).result()
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(lists, "time", SimpleNamespace(sleep=pause))
    shown = await muster(served, "jobs", "--watch", "--columns", "name")
    assert shown.output.split() == ["no", "jobs", "NAME", "a"]


async def test_the_starts_of_waiting_jobs_are_estimated(served: Served) -> None:
    """Twelve jobs of an hour that fill the cluster, one after the other."""
    fabric = await served.stub.GetFabric(service_pb2.GetFabricRequest())
    gang = f"parallelism: {{tp: {fabric.gpus_per_host}, dp: {fabric.host_count}}}\n"
    jobs = "---\n".join(f"name: j{i:02}\ntime_limit_s: 3600\n{gang}" for i in range(12))
    assert (await muster(served, "submit", "-", given=jobs)).exit_code == 0
    assert (await muster(served, "wait", "j00", "--for", "start")).exit_code == 0
    await muster(served, "hold", "j11")

    async def jobs_by_name() -> dict[str, Any]:
        shown = await muster(served, "jobs", "-o", "json")
        return {job["name"]: job for job in json.loads(shown.output)["jobs"]}

    def is_complete(listed: dict[str, Any]) -> bool:
        return "start_time" in listed["j10"]["start_estimate"]

    listed = await until(jobs_by_name, is_complete)
    starts = [listed[f"j{i:02}"]["start_estimate"]["start_time"][:19] for i in range(1, 11)]
    moments = [datetime.fromisoformat(start) for start in starts]
    steps = {(b - a).total_seconds() for a, b in pairwise(moments)}
    assert steps == {3600}
    assert "start_estimate" not in listed["j00"]
    columns = ("jobs", "--columns", "name,starts", "--no-headers")
    rows = dict(line.split() for line in (await muster(served, *columns)).output.splitlines())
    assert (rows["j00"], rows["j05"], rows["j11"]) == ("-", f"{starts[4]}Z", "unknown")
    why = await muster(served, "explain", "j03")
    lines = [line.split() for line in why.output.splitlines()]
    assert ["starts", "about", f"{starts[2]}Z"] in lines
    assert "if jobs run to their time limits (24 h 00 min where none is stated)" in why.output
    chain = lines[lines.index(["AHEAD", "STARTS", "ENDS", "AFTER"]) + 1 :]
    assert [(row[0], row[1], row[3]) for row in chain[:3]] == [
        ("j01", f"{starts[0]}Z", "j00"),
        ("j02", f"{starts[1]}Z", "j01"),
        ("j03", f"{starts[2]}Z", "j02"),
    ]
    assert "cannot be foreseen" in (await muster(served, "explain", "j11")).output


async def test_a_shell_is_offered_the_names_that_there_are(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_ADDRESS", served.ready.address)
    await muster(served, "submit", "-", given=f"name: sweep-1\n{JOB}---\nname: eval\n{JOB}")
    window = ("fw", "--kind", "maintenance", "--hosts", "z0", "--duration", "1h")
    made = await muster(served, "window", "create", *window)
    assert made.exit_code == 0, made.output
    names = (await muster(served, "hosts", "-o", "name")).output.split()
    host = await served.stub.GetHost(service_pb2.GetHostRequest(name=names[0]))

    async def offered(complete: Callable[[str], list[str]], incomplete: str) -> list[str]:
        return await asyncio.to_thread(complete, incomplete)

    assert await offered(complete.jobs, "sw") == ["sweep-1"]
    assert await offered(complete.jobs, "") == ["sweep-1", "eval"]
    assert await offered(complete.hosts, names[0]) == [names[0]]
    everything = await offered(complete.hosts, "")
    assert set(everything) > {*names, *host.domains}
    assert await offered(complete.tenants, "def") == ["default"]
    assert await offered(complete.windows, "f") == ["fw"]
    served.stop.set()
    await served.task
    assert await offered(complete.jobs, "sw") == []


async def test_a_slow_host_is_found_and_reported(served: Served, tmp_path: Path) -> None:
    job = await served.start("a", hosts=4)
    slow = job.placement.hosts[2]
    rows = [
        f"{step},{rank},{1.15 if 16 <= rank < 24 else 1 + 0.001 * ((rank + step) % 7)}"
        for step in range(6)
        for rank in range(32)
    ]
    times = tmp_path / "times.csv"
    times.write_text("step,rank,seconds\n" + "\n".join(rows) + "\n")
    for _ in range(3):
        done = await muster(served, "stragglers", "a", str(times), "--report", "-o", "json")
        assert done.exit_code == 0, done.output
    (suspect,) = json.loads(done.output.splitlines()[0])["suspects"]
    assert (suspect["kind"], suspect["name"]) == ("host", slow)
    assert suspect["confidence"] > 0.99
    host = await served.stub.GetHost(service_pb2.GetHostRequest(name=slow))
    assert host.state == host_pb2.HOST_STATE_RETIRING  # three in an hour: docs/lifecycle.md
    assert "straggler" in host.reason
    assert list((await served.get("a")).straggler_hosts) == [slow]
    table = await muster(served, "stragglers", "a", str(times))
    assert f"host  {slow}" in table.output
    times.write_text("step,rank,seconds\n1,99,1\n")
    wrong = await muster(served, "stragglers", "a", str(times))
    assert (wrong.exit_code, "has rank 99" in wrong.output) == (1, True), wrong.output
