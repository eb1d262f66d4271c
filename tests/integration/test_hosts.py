"""Hosts through the service: listing, cordon and drain, health signals."""

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from scheduler.cli import program
from scheduler.client import Client, ServiceError
from scheduler.v1 import host_pb2, service_pb2
from tests.build import exactly
from tests.serving import Served


async def test_hosts_name_their_domains_and_who_holds_them(served: Served) -> None:
    placement = (await served.start("a", 2, spares=exactly(1))).placement
    found = await hosts(served)
    held = await served.stub.ListHosts(service_pb2.ListHostsRequest(job="a"))
    assert list(found) == [f"z{z}-r{r}-h{h}" for z in (0, 1) for r in (0, 1) for h in (0, 1)]
    assert list(found["z1-r0-h1"].domains) == ["z1", "z1-r0"]
    assert [found[name].block for name in placement.hosts] == [0, 1]
    assert {h.name for h in held.hosts} == {*placement.hosts, *placement.spares}
    assert not found[placement.spares[0]].HasField("block")


# --- `muster report --import` --------------------------------------------------------

DRAINED = "NodeName={} State=IDLE+DRAIN Reason=disk is full [root@x]\n"
DOWN = "NodeName={} State=DOWN* Reason=no ping [root@x]\n"
IDLE = "NodeName={} State=IDLE\n"


async def imported(served: Served, folder: Path, text: str) -> Result:
    program.load_commands()
    (folder / "nodes").write_text(text)
    words = ["report", "--import", str(folder / "nodes"), "--format", "slurm"]
    env = {"MUSTER_ADDRESS": served.ready.address}
    return await asyncio.to_thread(CliRunner().invoke, program.app, words, env=env)


async def hosts(served: Served) -> dict[str, host_pb2.Host]:
    found = await served.stub.ListHosts(service_pb2.ListHostsRequest(page_size=1_000))
    return {host.name: host for host in found.hosts}


async def test_what_is_done_for_slurm_is_undone_when_it_has_the_node_back(
    tmp_path: Path, served: Served
) -> None:
    """Of a host in repair nothing is done: it is out of service already."""
    for name in ("z1-r0-h0", "z1-r0-h1"):
        for signal in ("gpu-lost", "ticket"):
            await served.report(name, signal)
    before = await hosts(served)
    text = DRAINED.format("z0-r0-h0") + DOWN.format("z0-r0-h1")
    text += DRAINED.format("z1-r0-h0") + DOWN.format("z1-r0-h1")
    first = await imported(served, tmp_path, text)
    after = await hosts(served)
    again = await imported(served, tmp_path, text)
    await imported(served, tmp_path, IDLE.format("z0-r0-h0") + IDLE.format("z0-r0-h1"))
    back = await hosts(served)
    assert (first.exit_code, first.stdout) == (0, "4 reports read: 1 drain, 1 host-down\n")
    assert after["z0-r0-h0"].cordon_reason == "slurm: disk is full [root@x]"
    assert after["z0-r0-h1"].state == host_pb2.HOST_STATE_FAILED
    assert again.stdout == "4 reports read: nothing to do\n"
    for name in ("z1-r0-h0", "z1-r0-h1"):
        assert before[name].state == host_pb2.HOST_STATE_IN_REPAIR
        assert after[name].update_time == before[name].update_time
        assert after[name].record.failures == before[name].record.failures == 1
        del back[name]
    assert {host.state for host in back.values()} == {host_pb2.HOST_STATE_HEALTHY}


async def test_the_rest_is_done_when_a_drain_is_refused(
    tmp_path: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else has changed the host since it was listed, say."""
    drain = Client.drain_host

    def refusing(self: Client, name: str, reason: str = "") -> host_pb2.Host:
        if name == "z0-r0-h0":
            raise ServiceError("FAILED_PRECONDITION", "host z0-r0-h0 is new", "WRONG_STATE")
        return drain(self, name, reason)

    monkeypatch.setattr(Client, "drain_host", refusing)
    text = DRAINED.format("z0-r0-h0") + DRAINED.format("z0-r0-h1") + DOWN.format("z1-r0-h0")
    done = await imported(served, tmp_path, text)
    after = await hosts(served)
    assert done.exit_code == 2
    assert done.stdout == "3 reports read: 1 drain, 1 host-down\n"
    assert done.stderr == f"muster: {tmp_path}/nodes:1: State: host z0-r0-h0 is new\n"
    assert after["z0-r0-h1"].cordoned
    assert after["z1-r0-h0"].state == host_pb2.HOST_STATE_FAILED
