"""The fabric of a server changes while it serves: the call, the commands, and who hears of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from typer.testing import CliRunner

from scheduler.cli.program import app
from scheduler.files.errors import InputError
from scheduler.v1 import job_pb2, service_pb2
from tests.build import exactly, fabric_spec
from tests.secured import callers
from tests.serving import Served, create, refused, serving
from tests.waiting import until

Apply, Watch = service_pb2.ApplyFabricRequest, service_pb2.WatchHostsRequest


def spec(**racks: list[str]) -> dict[str, Any]:
    """The small fabric with these racks in place of its own; `z0_r0=[...]`."""
    names = {f"z{z}-r{r}": [f"z{z}-r{r}-h{h}" for h in (0, 1)] for z in (0, 1) for r in (0, 1)}
    names |= {name.replace("_", "-"): hosts for name, hosts in racks.items()}
    zones: dict[str, list[dict[str, Any]]] = {}
    for rack, hosts in names.items():
        if hosts:
            zones.setdefault(rack[:2], []).append({"name": rack, "hosts": hosts})
    return {
        **fabric_spec(),
        "tiers": [{"name": "zone", "oversubscription": 7}, {"name": "rack"}, {"name": "host"}],
        "domains": [{"name": zone, "domains": zones[zone]} for zone in sorted(zones)],
    }


def text(**racks: list[str]) -> bytes:
    return yaml.safe_dump(spec(**racks)).encode()


async def test_hosts_come_and_go_while_a_gang_runs(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        stub = served.stub
        job = await served.start("a", 2, spares=exactly(1))
        before = await served.hosts()
        more = text(z0_r0=["new-0", "z0-r0-h0", "z0-r0-h1"], z1_r1=[])
        tried = await stub.ApplyFabric(Apply(file=more, validate_only=True))
        assert (list(tried.added_hosts), list(tried.removed_domains)) == (["new-0"], ["z1-r1"])
        assert list(tried.removed_hosts) == ["z1-r1-h0", "z1-r1-h1"]
        assert (tried.fabric.host_count, len(await served.hosts())) == (7, 8)
        made = await stub.ApplyFabric(Apply(file=more, request_id="r"))
        assert made.fabric.etag == tried.fabric.etag
        assert (await stub.ApplyFabric(Apply(file=more, request_id="r"))).version == made.version
        after = await served.hosts()
        assert after.pop("new-0").job == ""
        for name, host in after.items():
            assert (host.uid, host.job) == (before[name].uid, before[name].job)
        now = await served.get("a")
        assert (now.uid, now.attempt, now.placement) == (job.uid, 1, job.placement)
        gone = await refused(stub.GetHost(service_pb2.GetHostRequest(name="z1-r1-h0")))
        assert gone.code is grpc.StatusCode.NOT_FOUND
        fabric = await stub.GetFabric(service_pb2.GetFabricRequest(with_file=True))
        assert yaml.safe_load(fabric.file)["domains"] == yaml.safe_load(more)["domains"]
        assert fabric.update_time.ToNanoseconds() > fabric.create_time.ToNanoseconds()
        await served.start("b", 4, pp=4)
    async with serving(tmp_path, fabric_spec=None) as served:
        assert (await served.get("a")).placement == job.placement
        assert len(await served.hosts()) == 7
        assert not (await served.stub.ApplyFabric(Apply(file=more))).added_hosts


async def test_a_repeat_with_renames_is_answered(served: Served) -> None:
    """They are done: the old name is not in the present fabric any more."""
    stub, file = served.stub, text(z0_r0=["new-0", "z0-r0-h1"])
    renames = [service_pb2.FabricRename(old_name="z0-r0-h0", new_name="new-0")]
    request = Apply(file=file, renames=renames, request_id="r")
    made = await stub.ApplyFabric(request)
    assert [each.new_name for each in made.renames if "-h" in each.old_name] == ["new-0"]
    again = await stub.ApplyFabric(request)
    assert (again.version, again.fabric) == (made.version, made.fabric)
    assert not again.renames
    other = await refused(stub.ApplyFabric(Apply(file=text(), request_id="r")))
    assert other.fields == ("request_id",)
    assert (await served.hosts()).keys() >= {"new-0", "z0-r0-h1"}


async def test_what_is_in_the_way_is_listed_and_drained(served: Served) -> None:
    stub = served.stub
    held = list((await served.start("a", 2)).placement.hosts)
    less = text(**{held[0][:5].replace("-", "_"): []})
    tried = await stub.ApplyFabric(Apply(file=less, validate_only=True))
    assert [(each.obstacle, each.subject, each.job) for each in tried.refusals] == [
        (service_pb2.FABRIC_OBSTACLE_GANG, host, "tenants/default/jobs/a") for host in held
    ]
    error = await refused(stub.ApplyFabric(Apply(file=less)))
    assert error.code is grpc.StatusCode.FAILED_PRECONDITION
    assert f"host {held[0]} is not in the new fabric" in error.message
    for host in held:
        await stub.DrainHost(service_pb2.DrainHostRequest(name=host))
    tried = Apply(file=less, validate_only=True)
    await until(lambda: stub.ApplyFabric(tried), lambda answer: not answer.refusals)
    assert (await stub.ApplyFabric(Apply(file=less))).fabric.host_count == 6
    assert (await served.get("a")).attempt > 1  # by swaps


async def test_a_file_at_fault(served: Served) -> None:
    narrow = yaml.safe_dump({**spec(), "nic_gbps": 0}).encode()
    for file, field, words in (
        (b"a: [", "file", "not valid YAML"),
        (b"\xff\xfe\x00", "file", "is not UTF-8 text"),
        (narrow, "file.nic_gbps", "must be a positive"),
        (text(z0_r0=["x", "x"]), "file.domains", "host x is listed twice"),
    ):
        error = await refused(served.stub.ApplyFabric(Apply(file=file, validate_only=True)))
        assert (error.code, error.fields) == (grpc.StatusCode.INVALID_ARGUMENT, (field,))
        assert words in error.message


async def test_stores_come_with_a_file_and_jobs_name_them(served: Served) -> None:
    stub = served.stub
    stores = [{"name": name, "write_gb_per_s": 10} for name in ("flash", "archive")]
    await stub.ApplyFabric(Apply(file=yaml.safe_dump(spec() | {"storage": stores}).encode()))
    fabric = await stub.GetFabric(service_pb2.GetFabricRequest(with_file=True))
    assert yaml.safe_load(fabric.file)["storage"] == stores
    wanted = create("a")
    wanted.spec.checkpoint.store = "archive"
    wanted.spec.dataset.CopyFrom(job_pb2.Dataset(read_gb_per_s=2, store="disk"))
    error = await refused(stub.CreateJob(wanted))
    assert (error.code, error.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ("spec.dataset.store",))
    assert "no store 'disk'; there are flash, archive" in error.message
    wanted.spec.dataset.store = "flash"
    made = (await stub.CreateJob(wanted)).spec
    assert (made.dataset.store, made.checkpoint.store) == ("flash", "archive")


async def test_a_watch_hears_of_hosts_that_come_and_go(tmp_path: Path) -> None:
    """At once, and out of the log; of a domain by its own name, also when hosts are renumbered."""
    async with serving(tmp_path, watch_changes=1) as served:
        stub = served.stub
        every, rack = stub.WatchHosts(Watch()), stub.WatchHosts(Watch(name="z1-r0"))
        for watch in (every, rack):
            await watch.initial_metadata()
        one = text(z0_r0=["new-0", "z0-r0-h0", "z0-r0-h1"], z1_r0=["z1-r0-h1"], z1_r1=[])
        changed = await stub.ApplyFabric(Apply(file=one))
        heard = await anext(aiter(every))
        assert (heard.version, [host.name for host in heard.hosts]) == (changed.version, ["new-0"])
        assert list(heard.removed) == ["z1-r0-h0", "z1-r1-h0", "z1-r1-h1"]
        own = await anext(aiter(rack))
        assert ([host.name for host in own.hosts], list(own.removed)) == ([], ["z1-r0-h0"])
        await stub.CordonHost(service_pb2.CordonHostRequest(name="z0-r0-h0"))
        await stub.CordonHost(service_pb2.CordonHostRequest(name="z1-r0-h1"))
        assert [host.name for host in (await anext(aiter(rack))).hosts] == ["z1-r0-h1"]
        for _ in range(20):  # beyond what the feed keeps
            await stub.UncordonHost(service_pb2.UncordonHostRequest(name="z1-r0-h1"))
            await stub.CordonHost(service_pb2.CordonHostRequest(name="z1-r0-h1"))
        old = stub.WatchHosts(Watch(after_version=0))
        again = await anext(aiter(old))
        assert (again.version, list(again.removed)) == (heard.version, list(heard.removed))
        assert [host.name for host in again.hosts] == ["new-0"]


async def test_an_ended_job_shows_the_hosts_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those at hand and those in the store alone."""
    monkeypatch.setattr("scheduler.core.fold.index.RETAINED", 1)
    async with serving(tmp_path) as served:
        placed = {}
        for name in ("a", "b"):
            placed[name] = (await served.start(name, 2, spares=exactly(1))).placement
            await served.cancel(name)
        await served.stub.ApplyFabric(Apply(file=text(z0_r0=[], z0_r1=["z0-r1-h1"])))
        for name, then in placed.items():
            now = (await served.get(name)).placement
            assert (now.hosts, now.spares) == (then.hosts, then.spares)


async def test_operators_change_it_and_the_log_has_who(tmp_path: Path) -> None:
    who = ("ada", "coordinator", "*"), ("root", "operator", "")
    async with callers(tmp_path, *who) as (_, ada, root):
        error = await refused(ada.ApplyFabric(Apply(file=text(z0_r0=["n"]))))
        assert error.code is grpc.StatusCode.PERMISSION_DENIED
        await root.ApplyFabric(Apply(file=text(z0_r0=["n"])))
        page = await root.ListAuditRecords(
            service_pb2.ListAuditRecordsRequest(filter="event = FabricChanged")
        )
        assert [each.actor for each in page.audit_records] == ["root"]
        for only_checked in (True, False):
            stale = Apply(file=text(), etag="another", validate_only=only_checked)
            assert (await refused(root.ApplyFabric(stale))).code is grpc.StatusCode.ABORTED


async def test_the_commands(tmp_path: Path, served: Served) -> None:
    [held, _] = (await served.start("a", 2)).placement.hosts

    async def muster(*words: str) -> tuple[int, list[str]]:
        env = {"MUSTER_ADDRESS": served.ready.address}
        done = await asyncio.to_thread(CliRunner().invoke, app, words, env=env)
        if isinstance(done.exception, InputError):
            raise done.exception
        return done.exit_code, done.output.splitlines()

    new, now = tmp_path / "new.yaml", tmp_path / "now.yaml"
    new.write_bytes(text(z1_r1=["z1-r1-h0", "z1-r1-x1"], z1_r0=["z1-r0-h0", "z1-r0-h1", "n"]))
    change = ["fabric", "apply", str(new), "--rename", "z1-r1-h1=z1-r1-x1"]
    code, lines = await muster(*change, "--dry-run")
    assert code == 0
    assert "added    1 host     n" in lines
    assert "renamed  z1-r1-h1   -> z1-r1-x1" in lines
    assert "muster: dry run: nothing was changed" in lines
    assert (await muster(*change))[0] == 0
    assert {"n", "z1-r1-x1"} <= {*await served.hosts()}
    assert await muster("fabric", "get", "-o", str(now)) == (0, [])
    assert yaml.safe_load(now.read_text()) == yaml.safe_load(new.read_text())
    new.write_bytes(text(**{held[:5].replace("-", "_"): []}))
    code, lines = await muster("fabric", "apply", str(new))
    assert code == 1
    assert [line for line in lines if line.startswith("drain first: ")]
    assert lines[-1] == "muster: the fabric stays as it is"
    new.write_text("name: x\ngpus_per_host: -8\n")
    with pytest.raises(InputError, match=rf"{new}:2: gpus_per_host: must be a whole number"):
        await muster("fabric", "apply", str(new))
