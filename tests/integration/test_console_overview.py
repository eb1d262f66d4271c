"""What an operator sees first, in a real browser: verdicts, incidents, hosts, and ways there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scheduler.v1 import host_pb2, service_pb2, status_pb2
from tests.browser import HAS_BROWSER, MISSING, Page
from tests.build import fabric_spec
from tests.integration.test_console_pages import LOCAL, PRESS, TENANTS, at, browser, fill, look
from tests.serving import RUNNING, create, path, serving

__all__ = ["browser"]
pytestmark = pytest.mark.skipif(not HAS_BROWSER, reason=MISSING)
MAIN = "document.querySelector('main').innerText"
DIALOG = "document.querySelector('dialog[open]')"


async def _fail(served: Any, host: str, detail: str = "") -> status_pb2.Incident:
    """Report that the host of a gang has failed; the incident once the gang runs again."""
    report = service_pb2.ReportHostRequest(name=host, signal="gpu-lost", detail=detail)
    await served.stub.ReportHost(report)
    await served.until(path("a", "vision"), RUNNING)
    answer = await served.stub.ListIncidents(service_pb2.ListIncidentsRequest())
    incident: status_pb2.Incident = answer.incidents[0]
    return incident


async def test_a_failure_is_one_incident_with_its_cost(tmp_path: Path, browser: Page) -> None:
    async with serving(tmp_path, console=LOCAL, tenants=TENANTS) as served:
        await fill(served)
        hosts = (await served.get(path("a", "vision"))).placement.hosts
        incident = await _fail(served, hosts[1], "GPU 3 \u202e gone")
        assert incident.job == path("a", "vision")
        assert list(incident.hosts) == [hosts[1]]
        assert incident.outcome == status_pb2.INCIDENT_OUTCOME_SWAPPED
        assert hosts[1] in incident.outcome_detail
        assert incident.lost_gpu_hours > 0  # the restart at least
        assert not incident.measured
        stood_ns = incident.step_time.ToNanoseconds() - incident.time.ToNanoseconds()
        assert stood_ns >= 300 * 10**9  # as costs assume it
        answer = await served.stub.ListIncidents(service_pb2.ListIncidentsRequest())
        (week,) = answer.weeks
        assert (week.incidents, week.stopped_gangs) == (1, 1)
        assert week.lost_gpu_hours == pytest.approx(incident.lost_gpu_hours)

        await at(browser.resize, 1_280, 900)
        await at(look, browser, served.ready.console, "overview", "1 host down")
        await at(browser.until, f"/cost [0-9.]+ GPU-hours/.test({MAIN})")
        await at(browser.until, "document.querySelector('a[href^=\"#/incident/\"]')")
        await at(browser.run, "document.querySelector('a[href^=\"#/incident/\"]').click()")
        await at(browser.until, f"/Steps again/.test({MAIN}) && /vision.a stopped/.test({MAIN})")
        # What cannot be seen is written out, and turns nothing round.
        await at(browser.until, f"{MAIN}.includes('\\\\u202e')")
        assert not await at(browser.run, f"return {MAIN}.includes('\u202e')")


async def test_pages_of_incidents_have_each_once(tmp_path: Path) -> None:
    async with serving(tmp_path, tenants=TENANTS) as served:
        for name in ("z0-r0-h0", "z0-r0-h1", "z1-r0-h0"):
            report = service_pb2.ReportHostRequest(name=name, signal="host-down")
            await served.stub.ReportHost(report)
        seen, token = [], ""
        for _ in range(3):
            request = service_pb2.ListIncidentsRequest(page_size=1, page_token=token)
            answer = await served.stub.ListIncidents(request)
            seen += [each.subject for each in answer.incidents]
            token = answer.next_page_token
        assert (seen, token) == (["z1-r0-h0", "z0-r0-h1", "z0-r0-h0"], "")
        assert [each.out_hosts for each in answer.samples][-1] == 3


async def test_a_failed_host_is_repaired_on_its_page_and_with_others(
    tmp_path: Path, browser: Page
) -> None:
    async with serving(tmp_path, console=LOCAL, tenants=TENANTS) as served:
        await fill(served)
        hosts = (await served.get(path("a", "vision"))).placement.hosts
        await _fail(served, hosts[1])
        await at(browser.resize, 1_280, 900)
        await at(look, browser, served.ready.console, f"host/{hosts[1]}", "gpu-lost")
        await at(browser.until, f"/They cost/.test({MAIN}) && /vision.a/.test({MAIN})")
        await at(browser.run, PRESS.format(f"Repaired {hosts[1]}"))
        await at(browser.until, f"{DIALOG} && /healthy/.test({DIALOG}.innerText)")
        await at(browser.run, f"{DIALOG}.querySelector('button').click()")
        await at(browser.until, f"!{DIALOG}")
        host = await served.stub.GetHost(service_pb2.GetHostRequest(name=hosts[1]))
        assert host.state == host_pb2.HOST_STATE_HEALTHY

        await at(look, browser, served.ready.console, "hosts?state=all", "z0-r0-h0")
        for name in ("z0-r0-h0", "z0-r0-h1"):
            await at(browser.until, f"document.querySelector('[aria-label=\"Choose {name}\"]')")
            await at(
                browser.run, f"document.querySelector('[aria-label=\"Choose {name}\"]').click()"
            )
        await at(browser.until, f"/2 hosts chosen/.test({MAIN})")
        await at(browser.run, PRESS.format("Cordon"))
        await at(browser.until, f"{DIALOG} && /cordoned/.test({DIALOG}.innerText)")
        await at(browser.run, f"{DIALOG}.querySelector('button').click()")
        await at(browser.until, f"!{DIALOG}")
        for name in ("z0-r0-h0", "z0-r0-h1"):
            host = await served.stub.GetHost(service_pb2.GetHostRequest(name=name))
            assert host.cordoned


async def test_the_address_says_what_is_shown_and_back_goes_back(
    tmp_path: Path, browser: Page
) -> None:
    async with serving(tmp_path, console=LOCAL, tenants=TENANTS) as served:
        await fill(served)
        await at(browser.resize, 1_280, 900)
        address = served.ready.console
        await at(look, browser, address, "map?colour=job&job=vision/a", "GPUs of each zone")
        checked = "document.querySelector('input[name=mode]:checked').value"
        await at(
            browser.until, f"{checked} === 'job' && musterMap.mode === 'job' && musterMap.slot"
        )
        await at(browser.run, "document.querySelector('input[value=tenant]').click()")
        await at(browser.until, "location.hash.includes('colour=tenant')")
        await at(browser.run, "history.back()")
        await at(browser.until, f"{checked} === 'job' && musterMap.mode === 'job'")

        find = "document.querySelector('#find')"
        press = (
            "dispatchEvent(new KeyboardEvent('keydown', {key: 'k', ctrlKey: true, bubbles: true}))"
        )
        await at(browser.run, press)
        await at(browser.until, f"document.activeElement === {find}")
        await at(browser.type, "r0-h1")
        await at(browser.until, "document.querySelectorAll('#found li').length > 0")
        await at(browser.type, "\ue007")
        await at(
            browser.until, "location.hash.startsWith('#/host/') && /r0-h1/.test(location.hash)"
        )
        await at(browser.run, "document.activeElement.blur()")
        await at(browser.type, "?")
        await at(browser.until, f"{DIALOG} && /Ctrl K/.test({DIALOG}.innerText)")


async def test_a_large_gang_is_stopped_by_its_name_alone(tmp_path: Path, browser: Page) -> None:
    spec = fabric_spec(zones=2, racks=8, hosts=4)
    async with serving(tmp_path, console=LOCAL, fabric_spec=spec) as served:
        await served.stub.CreateJob(create("big", hosts=64))
        await served.until(path("big"), RUNNING)
        await served.stub.CreateJob(create("next", hosts=64))
        await at(browser.resize, 1_280, 900)
        await at(look, browser, served.ready.console, "job/default/big", "Where its time went")
        await at(browser.until, f"/Requeue/.test({MAIN})")
        await at(browser.run, PRESS.format("Requeue default/big"))
        await at(browser.until, f"{DIALOG} && /Lost since its last/.test({DIALOG}.innerText)")
        button = f"{DIALOG}.querySelector('button.danger')"
        assert await at(browser.run, f"return {button}.disabled")
        await at(browser.run, "document.querySelector('#typed').focus()")
        await at(browser.type, "big")
        await at(browser.until, f"!{button}.disabled")

        # Who starts on its hosts: by the scheduler on a copy, not by the place in the queue.
        await at(browser.until, f"/at once\\s+it itself, again/.test({DIALOG}.innerText)")
        await at(browser.run, f"{DIALOG}.close()")
        await at(browser.until, f"!{DIALOG}")
        await at(browser.run, PRESS.format("Cancel default/big"))
        await at(browser.until, f"/at once\\s+default.next/.test({DIALOG}?.innerText)")
