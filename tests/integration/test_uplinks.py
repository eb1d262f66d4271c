"""Links through a server: reports, drains, windows, lists and watches; what outlasts a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.files.job import job_from_mapping
from scheduler.v1 import link_pb2, service_pb2
from scheduler.wire.specs import spec_to_proto
from tests.build import fabric_spec
from tests.commands import muster
from tests.integration.test_windows import making
from tests.secured import callers
from tests.serving import RUNNING, Served, refused, serving, until_running
from tests.waiting import until


def report(name: str, share: float, **fields: str) -> service_pb2.ReportLinkRequest:
    return service_pb2.ReportLinkRequest(name=name, share=share, **fields)


async def test_links_are_listed_as_they_are(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.stub.ReportLink(report("z1-r0", 0.875, detail="2 of 16 cables"))
        drain = service_pb2.DrainLinkRequest(name="z0", reason="optics")
        drained = await served.stub.DrainLink(drain)
        uncordon = service_pb2.UncordonLinkRequest(name="z0", etag="x")
        stale = await refused(served.stub.UncordonLink(uncordon))
        first = await served.stub.ListLinks(service_pb2.ListLinksRequest(page_size=1))
        token = first.next_page_token
        rest = await served.stub.ListLinks(service_pb2.ListLinksRequest(page_token=token))
        status = await served.stub.GetStatus(service_pb2.GetStatusRequest())
        weak = service_pb2.ListLinksRequest(filter="carried_share < 0.9 AND use = OPEN")
        filtered = await served.stub.ListLinks(weak)
    async with serving(tmp_path) as served:
        again = await served.stub.ListLinks(service_pb2.ListLinksRequest())
    assert drained.use == link_pb2.LINK_USE_DRAINING
    assert stale.code is grpc.StatusCode.ABORTED
    names = [link.name for link in (*first.links, *rest.links)]
    assert names == ["z0", "z1-r0"]
    assert [link.name for link in status.links] == names
    assert [link.name for link in filtered.links] == ["z1-r0"]
    assert [one.subject for one in status.incidents] == ["z1-r0"]
    assert [(link.name, link.share, link.reason) for link in again.links] == [
        ("z0", 1, "optics"),
        ("z1-r0", 0.875, ""),
    ]


async def test_a_window_on_a_link_goes_over_the_wire(served: Served) -> None:
    window = making(start_s=0, hosts=[], links=["z1"], link_share=0.5)
    made = await served.stub.CreateWindow(window)
    listing = service_pb2.ListLinksRequest()
    answer = await until(
        lambda: served.stub.ListLinks(listing),
        lambda answer: [link.carried_share for link in answer.links] == [0.5],
    )
    (link,) = answer.links
    assert (list(made.links), made.link_share, list(made.chosen_hosts)) == (["z1"], 0.5, [])
    assert (link.name, link.share, link.carried_share) == ("z1", 1, 0.5)
    assert list(link.windows) == ["w"]


async def test_what_no_link_carries_is_refused_and_a_check_changes_nothing(served: Served) -> None:
    for request, code, fields in (
        (report("z0", 1.5), "INVALID_ARGUMENT", ("share",)),
        (service_pb2.ReportLinkRequest(name="z1"), "INVALID_ARGUMENT", ("share",)),
        (report("z0-r0-h0", 0.5), "INVALID_ARGUMENT", ("name",)),
        (report("z9", 0.5), "NOT_FOUND", ()),
    ):
        error = await refused(served.stub.ReportLink(request))
        assert (error.code.name, error.fields) == (code, fields)
    checked = report("z1", 0.5)
    checked.validate_only = True
    assert (await served.stub.ReportLink(checked)).share == 0.5
    assert not (await served.stub.ListLinks(service_pb2.ListLinksRequest())).links


TRAIN = {
    "name": "train", "parallelism": {"tp": 8, "dp": 6}, "spares": 0, "time_limit_s": 86_400,
    "model": {
        "layers": 8, "hidden": 4096, "ffn": 16384, "heads": 32, "kv_heads": 8, "vocab": 32000,
        "sequence": 4096,
    },
    "batch": {"global_sequences": 6},
}  # fmt: skip


async def test_links_list_what_renewals_of_running_gangs_take(tmp_path: Path) -> None:
    """A rack's uplink carries as much as its hosts send, so steps do not count as its load."""
    spec = job_from_mapping({**TRAIN, "checkpoint": {"peers": 1, "peer_interval_s": 10}})
    async with serving(tmp_path, fabric_spec=fabric_spec(zones=1, racks=4)) as served:
        await served.stub.CreateJob(service_pb2.CreateJobRequest(spec=spec_to_proto(spec)))
        await served.until("train", RUNNING)
        listing = service_pb2.ListLinksRequest(show_all=True)
        links = {link.name: link for link in (await served.stub.ListLinks(listing)).links}
        table = await muster(served, "links", "--all", "--columns", "link,renewals")
        await served.cancel("train")
        ended = await until(
            lambda: served.stub.ListLinks(listing),
            lambda answer: not any(link.renewal_share for link in answer.links),
        )
    crossed = {name for name, link in links.items() if link.crossed_by}
    assert len(crossed) == 3
    assert {name for name, link in links.items() if link.renewal_share} == crossed
    assert all(0 < links[name].renewal_share < 1 for name in crossed)
    assert not any(link.busy_share for link in links.values())
    rows = dict(line.split(None, 1) for line in table.output.splitlines()[1:])
    assert {name for name, shown in rows.items() if shown.endswith("%")} == crossed
    assert {shown for name, shown in rows.items() if name not in crossed} == {"-"}
    assert len(ended.links) == len(links)


async def test_a_slow_gang_is_named_and_moved_where_that_pays(tmp_path: Path) -> None:
    async with serving(tmp_path, fabric_spec=fabric_spec(zones=3)) as served:
        spec = spec_to_proto(job_from_mapping(TRAIN))
        await served.stub.CreateJob(service_pb2.CreateJobRequest(spec=spec))
        hosts = await served.hosts_of("train")
        await served.stub.ReportLink(report(hosts[0][:2], 0.1))
        slow = await served.get("train")
        found = await served.stub.Defragment(service_pb2.DefragmentRequest(slow_gangs=True))
        moving = service_pb2.DefragmentRequest(slow_gangs=True, apply=True, etag=found.etag)
        await served.stub.Defragment(moving)
        after = await served.get("train")
    link = slow.slowdown.links[0]
    assert slow.slowdown.slower > 0.05
    assert slow.reason.endswith(f"% longer: the uplink of {link} at 10 %")
    [move] = found.moves
    assert move.saved_gpu_hours > move.lost_gpu_hours
    assert move.step_time_after.ToNanoseconds() < move.step_time_before.ToNanoseconds()
    assert link not in {block.joined[:2] for block in move.blocks}
    assert not after.HasField("slowdown")
    assert (after.attempt, after.reason) == (2, "")


async def test_explain_says_whose_traffic_shares_an_uplink(tmp_path: Path) -> None:
    """By name to those who may see the job, to others without it."""
    tenants = Tenants((Tenant("nlp"), Tenant("vision")), "vision")
    who = ("root", "admin", ""), ("ada", "viewer", "nlp")
    kept = [f"z{zone}-r2-h{host}" for zone in (0, 1) for host in (0, 1)]
    wide = fabric_spec(zones=2, racks=3)
    settings: Any = {"tenants": tenants, "fabric_spec": wide}
    async with callers(tmp_path, *who, **settings) as (_, stub, bound):
        for host in kept:  # four hosts are left in each zone: six lie in both
            await stub.CordonHost(service_pb2.CordonHostRequest(name=host))
        for name, tenant in (("x", "vision"), ("y", "nlp")):
            spec = job_from_mapping({**TRAIN, "name": name, "tenant": tenant})
            await stub.CreateJob(service_pb2.CreateJobRequest(spec=spec_to_proto(spec)))
            await until_running(stub, f"tenants/{tenant}/jobs/{name}")
            for host in kept:
                await stub.UncordonHost(service_pb2.UncordonHostRequest(name=host))
        explain = service_pb2.ExplainJobRequest(name="tenants/nlp/jobs/y")
        seen = [list((await each.ExplainJob(explain)).shared_uplinks) for each in (stub, bound)]
    for found, name in zip(seen, ("tenants/vision/jobs/x", "(hidden)"), strict=True):
        assert {shared.link for shared in found} == {"z0", "z1"}
        assert {shared.job for shared in found} == {name}
        assert all(0 < shared.busy_share < 1 for shared in found)


async def test_ports_of_switches_become_shares_of_uplinks(served: Served, tmp_path: Path) -> None:
    """What the server has already is not reported again; a domain it lacks is named by line."""
    table, uplinks = tmp_path / "ports.csv", tmp_path / "uplinks.csv"
    table.write_text("device,port,state,speed\ns0,1,up,400\ns0,2,down,400\ns1,1,up,400\n")
    uplinks.write_text("domain,device,port,gbps\nz0,s0,1,400\nz0,s0,2,400\nz9,s1,1,400\n")
    command = ["report", "--import", str(table), "--format", "ports-csv", "--uplinks", str(uplinks)]
    listing = service_pb2.ListLinksRequest()
    dry = await muster(served, *command, "--dry-run")
    before = await served.stub.ListLinks(listing)
    first, again = await muster(served, *command), await muster(served, *command)
    after = await served.stub.ListLinks(listing)
    assert [run.exit_code for run in (dry, first, again)] == [2, 2, 2]
    assert "z0 carries 0.5 instead of 1: s0 2 0 Gbit/s" in dry.output
    assert "uplinks.csv:4: domain: no domain 'z9' in this fabric" in first.output
    assert "3 ports of 2 uplinks read: 0 changed" in again.output
    assert not before.links
    assert [(link.name, link.share, link.detail) for link in after.links] == [
        ("z0", 0.5, "s0 2 0 Gbit/s")
    ]


async def test_failed_switches_are_reported_as_what_is_left_of_uplinks(served: Served) -> None:
    tried = await muster(served, "report", "--failed", "z0-ctsw03", "--dry-run")
    assert tried.exit_code == 0, tried.output
    assert not (await served.stub.ListLinks(service_pb2.ListLinksRequest())).links
    failed = ("report", "--failed", "z0-ctsw03", "--failed", "z1-r0-rtsw/z1-ctsw00")
    told = await muster(served, *failed)
    assert told.exit_code == 0, told.output
    links = (await served.stub.ListLinks(service_pb2.ListLinksRequest())).links
    # Each rack has a cable to each of 16 switches of its zone, each of which has one upwards.
    weak = dict.fromkeys(("z0", "z0-r0", "z0-r1", "z1-r0"), 0.9375)
    assert {link.name: link.share for link in links} == weak
    assert links[0].detail == "z0-ctsw03, z1-r0-rtsw/z1-ctsw00 failed"
    assert "4 uplinks are part of it: 4 changed" in told.output
    again = await muster(served, *failed)
    assert "4 uplinks are part of it: 0 changed" in again.output
    for words, said in (
        ("--failed z0-ctsw99", "has no switch 'z0-ctsw99'"),
        ("z0-r0-h0 --failed z0-ctsw03", "cannot be used with HOST"),
        ("--failed z0-ctsw03 --share 0.5", "cannot be used with --share"),
    ):
        wrong = await muster(served, "report", *words.split())
        assert (wrong.exit_code, said in wrong.output) == (2, True), wrong.output
