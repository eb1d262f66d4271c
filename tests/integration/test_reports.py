"""Reports in numbers, and what a host shows of its past, over gRPC."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scheduler.core.model.events import GangSwapped
from scheduler.v1 import error_pb2, host_pb2, service_pb2
from tests.e2e.processes import MUSTER
from tests.serving import RUNNING, create, logged, refused, serving


async def test_many_reports_are_answered_each_in_its_place(tmp_path: Path) -> None:
    report = service_pb2.ReportHostRequest
    async with serving(tmp_path) as served:
        reports = [
            report(name="z0-r0-h0", signal="xid", xid=79, gpu=2),
            report(name="nowhere", signal="thermal"),
            report(name="z0-r1", signal="tor-down"),
        ]
        request = service_pb2.ReportHostsRequest(reports=reports)
        first, second, third = (await served.stub.ReportHosts(request)).results
    assert first.host.state == host_pb2.HOST_STATE_FAILED
    assert first.host.reason == "xid: 79, GPU has fallen off the bus: GPU 2"
    assert (first.host.record.failures, first.host.record.lemon_signals.xid_cnt) == (1, 1)
    assert "no host 'nowhere'" in second.error
    assert not third.error
    assert not third.HasField("host")


async def test_many_reports_are_checked_and_none_is_made(tmp_path: Path) -> None:
    report = service_pb2.ReportHostRequest
    reports = [report(name="z0-r0-h0", signal="gpu-lost"), report(name="nowhere", signal="thermal")]
    async with serving(tmp_path) as served:
        request = service_pb2.ReportHostsRequest(reports=reports, validate_only=True)
        first, second = (await served.stub.ReportHosts(request)).results
        host = await served.stub.GetHost(service_pb2.GetHostRequest(name="z0-r0-h0"))
        reports[1].validate_only = True
        mixed = service_pb2.ReportHostsRequest(reports=reports)
        error = await refused(served.stub.ReportHosts(mixed))
        after = await served.stub.GetHost(service_pb2.GetHostRequest(name="z0-r0-h0"))
    assert first.host.state == host_pb2.HOST_STATE_FAILED
    assert first.reason == error_pb2.ERROR_REASON_UNSPECIFIED
    assert second.reason == error_pb2.ERROR_REASON_NOT_FOUND
    assert host.state == after.state == host_pb2.HOST_STATE_HEALTHY
    assert error.fields == ("reports[1].validate_only",)


async def test_a_cordon_is_shown_through_a_failure(tmp_path: Path) -> None:
    name = "z0-r0-h0"
    async with serving(tmp_path) as served:
        await served.stub.CordonHost(service_pb2.CordonHostRequest(name=name, reason="mine"))
        down = service_pb2.ReportHostRequest(name=name, signal="gpu-lost")
        host = (await served.stub.ReportHost(down)).host
    assert (host.cordoned, host.cordon_reason) == (True, "mine")
    assert host.state == host_pb2.HOST_STATE_FAILED


async def test_hosts_that_fail_in_one_call_are_one_decision(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.stub.CreateJob(create("a", 4))
        job = await served.until("a", RUNNING)
        lost = job.placement.hosts[:3]
        reports = [service_pb2.ReportHostRequest(name=h, signal="gpu-lost") for h in lost]
        await served.stub.ReportHosts(service_pb2.ReportHostsRequest(reports=reports))
        again = await served.until("a", RUNNING)
    assert again.attempt == 2
    assert not {*lost} & {*again.placement.hosts}
    swaps = [event for event in logged(tmp_path) if isinstance(event, GangSwapped)]
    assert [len(swap.swaps) for swap in swaps] == [3]


@pytest.mark.parametrize("kind", ["slurm", "dcgm-json"])
def test_what_comes_by_standard_input_is_named_so(kind: str) -> None:
    done = subprocess.run(
        [MUSTER, "report", "--import", "-", "--format", kind], input=b"\xff", capture_output=True
    )
    assert done.returncode == 2
    assert done.stderr.decode().strip() == "/dev/stdin:1: is not UTF-8 text"
