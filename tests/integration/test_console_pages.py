"""The console in a real browser, on a server with gangs: pages open, live, and leak nothing."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from scheduler.console.logs import read_log
from scheduler.console.thread import HttpEndpoint
from scheduler.console.timeline import timeline
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.files.job import job_from_mapping
from scheduler.v1 import host_pb2, job_pb2, service_pb2, service_pb2_grpc, status_pb2
from scheduler.wire.specs import spec_to_proto
from scripts.screenshots import filled
from tests.browser import AXE, HAS_BROWSER, MISSING, Page, browsing
from tests.build import exactly, fabric, fabric_spec
from tests.e2e.processes import MUSTER
from tests.integration.simulator.test_run_page import write_report
from tests.integration.test_console import head_of
from tests.issuer import FakeIssuer
from tests.ports import free_port
from tests.secured import House
from tests.serving import RUNNING, Served, create, path, serving

pytestmark = pytest.mark.skipif(not HAS_BROWSER, reason=MISSING)

HEALTHY = host_pb2.HOST_STATE_HEALTHY
LOCAL = HttpEndpoint("127.0.0.1", 0)
TENANTS = Tenants((Tenant("vision"), Tenant("speech", guaranteed_gpus=16)), "vision")
PAGES = {
    "overview": "What failed last",
    "incidents": "Nothing has failed since",
    "map": "GPUs of each zone",
    "queue": "Free hosts of each domain",
    "job/vision/a": "Where its time went",
    "hosts": "Uplinks of domains",
    "spares": "Spares by domain and job",
    "tenants": "Live jobs of each tenant",
    "time": "Incidents until then",
}
BUTTON = "[...document.querySelectorAll('button')].find(b => b.textContent.trim() === {!r})"
MAIN = "document.querySelector('main').innerText"
DIALOG = "document.querySelector('dialog[open]')"
HOST = "musterMap.cluster.fabric.hosts.indexOf({!r})"
STATE = f"musterMap.cluster.stateOf({HOST})"
WIDE, PHONE = (1_280, 900, False), (390, 844, True)
POINTER = """
const map = globalThis.musterMap;
const send = (kind, host) => {
  const [{ plan, view, ratio, overlay }, box] = [map, map.overlay.getBoundingClientRect()];
  const [u, v] = [plan.x[host] + 0.5, plan.y[host] + 0.5];
  const [x, y] = [(view.x + u * view.scale) / ratio, (view.y + v * view.scale) / ratio];
  overlay.setPointerCapture = () => {};
  overlay.dispatchEvent(new PointerEvent(kind, { pointerId: 1, pointerType: "mouse",
    clientX: box.left + x, clientY: box.top + y, bubbles: true }));
};
"""
OVER_THE_EDGE = "return document.documentElement.scrollWidth - innerWidth"
FRAMES = "return new Promise(d => requestAnimationFrame(() => requestAnimationFrame(() => d(1))))"


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    with browsing() as page:
        yield page


async def at(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """The browser's turn, beside the server's loop."""
    return await asyncio.to_thread(call, *arguments, **named)


class Visit:
    """A browser at the console of a server, which takes its turns beside the server's loop."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address = page, address

    async def run(self, script: str, *arguments: Any) -> Any:
        return await at(self.page.run, script, *arguments)

    async def until(self, condition: str, timeout_s: float = 30) -> Any:
        return await at(self.page.until, condition, timeout_s)

    async def type(self, keys: str) -> None:
        await at(self.page.type, keys)

    async def resize(self, width: int, height: int, is_phone: bool = False) -> None:
        await at(self.page.resize, width, height, is_phone=is_phone)

    async def go(self, place: str) -> None:
        """Open a page with nothing of the last one."""
        await at(self.page.go, "about:blank")
        self.page.errors.clear()
        self.page.requests.clear()
        await at(self.page.go, f"{self.address}/{place}")

    async def says(self, words: str, where: str = "document.body.textContent") -> None:
        """Wait until the page does."""
        await self.until(f"{where}?.includes({words!r})")

    async def look(self, place: str = "map", words: str = "") -> None:
        """Open a page, or turn to it in an open console; wait until it says what it has to."""
        if await self.run("return location.origin") == self.address:
            await self.run("location.hash = arguments[0]", f"/{place}")
        else:
            await self.go(f"#/{place}")
        await self.says(words or PAGES[place])
        await self.until("document.querySelector('.fresh')")
        if place.startswith("map"):
            await self.until("globalThis.musterMap?.plan")

    async def press(self, label: str) -> None:
        await self.until(BUTTON.format(label))
        await self.run(BUTTON.format(label) + ".click()")

    async def asked(self, words: str) -> None:
        """Wait until a dialog says this."""
        await self.says(words, f"{DIALOG}?.innerText")

    async def agree(self, times: int = 1) -> None:
        """Press the first button of the dialog, which closes it."""
        button = f"{DIALOG}.querySelector('button')"
        await self.run(f"const b = {button}; for (let i = 0; i < {times}; i += 1) b.click()")
        await self.until(f"!{DIALOG}")

    async def point(self, host: str, *kinds: str) -> None:
        """Send events of the pointer on a host of the map."""
        index = list(fabric().hosts).index(host)
        await self.run(POINTER + "".join(f"send({kind!r}, {index});" for kind in kinds))

    async def check(self, axe: str, of: object = "") -> None:
        """No fault of accessibility, and nothing runs over the edge."""
        await self.run(axe)
        assert await self.run(AXE) == [], of
        assert await self.run(OVER_THE_EDGE) <= 0, of

    async def check_console(self, *others: str) -> None:
        """No complaint, and no request to servers but this one and `others`."""
        await at(self.page.listen)
        assert self.page.errors == []
        own = (self.address, "data:", *others)  # the browser's own icons are of the second kind
        assert [asked for asked in self.page.requests if not asked.startswith(own)] == []


async def fill(served: Served) -> None:
    """A gang of three stages with a spare, one of another tenant, and one that waits."""
    await served.start("a", 3, tenant="vision", spares=exactly(1))
    await served.start("b", 2, tenant="speech")
    await served.stub.CreateJob(create("waits", hosts=6, tenant="vision"))
    await served.stub.ReportLink(service_pb2.ReportLinkRequest(name="z1", share=0.5))


@asynccontextmanager
async def visiting(
    folder: Path, browser: Page, *, is_filled: bool = True, **settings: Any
) -> AsyncIterator[tuple[Served, Visit]]:
    """A server, with gangs if it is filled, and a browser at its console."""
    given: dict[str, Any] = {"tenants": TENANTS} if is_filled else {}
    async with serving(folder, console=LOCAL, **given | settings) as served:
        if is_filled:
            await fill(served)
        visit = Visit(browser, served.ready.console)
        await visit.resize(*WIDE)
        yield served, visit


async def host_of(served: Served, name: str) -> host_pb2.Host:
    return await served.stub.GetHost(service_pb2.GetHostRequest(name=name))


@pytest.mark.slow
async def test_every_page_opens_and_has_no_fault_of_accessibility(
    tmp_path: Path, browser: Page, axe: str
) -> None:
    async with visiting(tmp_path, browser) as (_, visit):
        for is_dark, size in ((False, WIDE), (True, PHONE)):
            await visit.resize(*size)
            await at(browser.shade, is_dark=is_dark)
            for place in PAGES:
                await visit.go("")  # for what it loads by itself
                await visit.look(place)
                await visit.check(axe, (place, size))
                await visit.check_console()
                assert any("/live" in asked for asked in browser.requests)
            await visit.look("job/vision/waits", "needs")
            await visit.press("Cancel vision/waits")
            await visit.until(f"{DIALOG}?.querySelector('.facts')")
            await visit.check(axe, size)
            await visit.run("document.querySelector('dialog').close()")
        await visit.run("document.querySelector('main').append(document.createElement('img'))")
        assert len(await visit.run(AXE)) == 1  # so it does look


async def test_a_failure_is_seen_live_counted_with_its_cost_and_repaired(
    tmp_path: Path, browser: Page
) -> None:
    async with visiting(tmp_path, browser) as (served, visit):
        hosts = (await served.get(path("a", "vision"))).placement.hosts
        await visit.look()
        failure = {"signal": "gpu-lost", "detail": "GPU 3 \u202e gone"}
        await served.stub.ReportHost(service_pb2.ReportHostRequest(name=hosts[1], **failure))
        seen = "[...document.querySelectorAll('.legend li')].some(e => e.innerText.match(/failed/))"
        await visit.until(seen, 2)
        await visit.says(hosts[1], "document.body.innerText")
        assert await visit.run("return " + STATE.format(hosts[1])) == "failed"
        await served.until(path("a", "vision"), RUNNING)

        answer = await served.stub.ListIncidents(service_pb2.ListIncidentsRequest())
        incident = answer.incidents[0]
        assert incident.job == path("a", "vision")
        assert list(incident.hosts) == [hosts[1]]
        assert incident.outcome == status_pb2.INCIDENT_OUTCOME_SWAPPED
        assert hosts[1] in incident.outcome_detail
        assert incident.lost_gpu_hours > 0  # the restart at least
        assert not incident.measured
        stood_ns = incident.step_time.ToNanoseconds() - incident.time.ToNanoseconds()
        assert stood_ns >= 300 * 10**9  # as costs assume it
        (week,) = answer.weeks
        assert (week.incidents, week.stopped_gangs) == (1, 1)
        assert week.lost_gpu_hours == pytest.approx(incident.lost_gpu_hours)
        await visit.look("overview", "1 host down")
        await visit.until(f"/cost [0-9.]+ GPU-hours/.test({MAIN})")
        await visit.until("document.querySelector('a[href^=\"#/incident/\"]')")
        await visit.run("document.querySelector('a[href^=\"#/incident/\"]').click()")
        await visit.until(f"/Steps again/.test({MAIN}) && /vision.a stopped/.test({MAIN})")
        # What cannot be seen is written out, and turns nothing round.
        await visit.says("\\u202e", MAIN)
        assert not await visit.run(f"return {MAIN}.includes('\u202e')")

        await visit.look(f"host/{hosts[1]}", "gpu-lost")
        await visit.until(f"/They cost/.test({MAIN}) && /vision.a/.test({MAIN})")
        await visit.press(f"Repaired {hosts[1]}")
        await visit.asked("healthy")
        await visit.agree()
        assert (await host_of(served, hosts[1])).state == HEALTHY

        chosen = ("z0-r0-h0", "z0-r0-h1")
        await visit.look("hosts?state=all", "z0-r0-h0")
        for name in chosen:
            box = f"document.querySelector('[aria-label=\"Choose {name}\"]')"
            await visit.until(box)
            await visit.run(f"{box}.click()")
        await visit.says("2 hosts chosen", MAIN)
        await visit.press("Cordon")
        await visit.asked("cordoned")
        await visit.agree()
        assert [(await host_of(served, name)).cordoned for name in chosen] == [True, True]


async def test_pages_of_incidents_have_each_once(served: Served) -> None:
    for name in ("z0-r0-h0", "z0-r0-h1", "z1-r0-h0"):
        await served.report(name, "host-down")
    seen, token = [], ""
    for _ in range(3):
        request = service_pb2.ListIncidentsRequest(page_size=1, page_token=token)
        answer = await served.stub.ListIncidents(request)
        seen += [each.subject for each in answer.incidents]
        token = answer.next_page_token
    assert (seen, token) == (["z1-r0-h0", "z0-r0-h1", "z0-r0-h0"], "")
    assert [each.out_hosts for each in answer.samples][-1] == 3


@pytest.mark.slow
async def test_a_cluster_of_24576_gpus_is_shown_at_every_size(
    tmp_path: Path, browser: Page, axe: str
) -> None:
    async with filled(tmp_path) as ready:
        visit = Visit(browser, ready.console)
        for size in (PHONE, (3_840, 2_000, False), WIDE):
            await visit.resize(*size)
            await visit.look()
            await visit.check(axe, size)
            await visit.check_console()
        assert await visit.run("return musterMap.cluster.jobs.size") > 50
        for mode, words in (("uplinks", "uplink busy"), ("fit", "would start now")):
            await visit.run(f"document.querySelector('input[value={mode}]').click()")
            await visit.says(words)
            await visit.check(axe, mode)
        async with grpc.aio.insecure_channel(ready.address) as channel:
            stub: Any = service_pb2_grpc.SchedulerServiceStub(channel)
            links = await stub.ListLinks(service_pb2.ListLinksRequest(show_all=True))
            assert max(link.busy_share for link in links.links) > 0
            report = service_pb2.ReportHostRequest(name="z3-r100-h0", signal="gpu-lost")
            await stub.ReportHost(report)
        # 0.1 s where nothing else runs
        await visit.until(STATE.format("z3-r100-h0") + " === 'failed'", 2)


async def test_keys_and_the_address_lead_to_hosts_jobs_and_colours(
    tmp_path: Path, browser: Page
) -> None:
    async with visiting(tmp_path, browser) as (served, visit):
        await visit.look()
        hosts = (await served.get(path("a", "vision"))).placement.hosts
        await visit.run("document.querySelector('[role=application]').focus()")
        name, seen = "document.querySelector('.details h2')?.innerText", {None}
        for key in ("\ue011", "\ue014", "\ue015", "\ue012"):  # Home, right, down, left
            await visit.type(key)
            await visit.run(FRAMES)
            others = json.dumps([*seen])
            seen.add(await visit.until(f"!{others}.includes({name}) && {name}"))
        await visit.run(f"musterMap.go({HOST.format(hosts[1])})")
        await visit.until(f"{name} === {hosts[1]!r}")
        details = await visit.run("return document.querySelector('.details').innerText")
        assert "Ranks\n8 to 15" in details
        assert "Replica\n1 of 0 to 2" in details
        await visit.type("\ue007")  # Enter
        await visit.until("document.querySelector('h1').innerText === 'Job vision/a'")
        await visit.until("document.activeElement.tagName === 'H1'")

        await visit.look("map?colour=job&job=vision/a", "GPUs of each zone")
        checked = "document.querySelector('input[name=mode]:checked').value"
        await visit.until(f"{checked} === 'job' && musterMap.mode === 'job' && musterMap.slot")
        await visit.run("document.querySelector('input[value=tenant]').click()")
        await visit.until("location.hash.includes('colour=tenant')")
        await visit.run("history.back()")
        await visit.until(f"{checked} === 'job' && musterMap.mode === 'job'")
        control_k = "{key: 'k', ctrlKey: true, bubbles: true}"
        await visit.run(f"dispatchEvent(new KeyboardEvent('keydown', {control_k}))")
        await visit.until("document.activeElement === document.querySelector('#find')")
        await visit.type("r0-h1")
        await visit.until("document.querySelectorAll('#found li').length > 0")
        await visit.type("\ue007")
        await visit.until("location.hash.startsWith('#/host/') && /r0-h1/.test(location.hash)")
        await visit.run("document.activeElement.blur()")
        await visit.type("?")
        await visit.asked("Ctrl K")


async def test_the_picture_follows_size_and_shade(tmp_path: Path, browser: Page) -> None:
    """Each host is painted in its colour where it lies, whatever was painted before."""
    spec = fabric_spec(zones=3, racks=4, hosts=2)
    painted = """(() => {
      const m = musterMap, c = m.base.getContext('2d');
      const wide = Math.round(m.overlay.getBoundingClientRect().width * devicePixelRatio);
      if (m.due || !m.plan || m.base.width !== wide) return null; // it paints at the next frame
      const probe = document.createElement('canvas').getContext('2d');
      const wrong = [];
      for (let host = 0; host < m.fabric.hosts.length; host += 1) {
        const {x, y} = m.boxOf(host);
        const gap = Math.floor((m.plan.pitch * m.view.scale) / 2 - 1);
        const shown = [...c.getImageData(Math.round(x) + gap, Math.round(y) + gap, 1, 1).data];
        probe.fillStyle = m.scheme.fills[m.scheme.categoryOf(host)];
        probe.fillRect(0, 0, 1, 1);
        const meant = [...probe.getImageData(0, 0, 1, 1).data];
        if (shown.some((v, i) => Math.abs(v - meant[i]) > 2)) wrong.push([host, shown, meant]);
      }
      return {wrong};
    })()"""
    settings: dict[str, Any] = {"fabric_spec": spec, "tenants": TENANTS}
    async with visiting(tmp_path, browser, is_filled=False, **settings) as (served, visit):
        await at(browser.shade, is_dark=False)
        await visit.look()
        await served.start("a", 6, tenant="vision")
        await visit.until("musterMap.cluster.jobs.size === 1")
        for step in (
            visit.resize(2_560, 1_300),
            at(browser.shade, is_dark=True),
            visit.run("document.querySelector('input[value=job]').click()"),
            visit.run("document.querySelector('input[value=uplinks]').click()"),
            visit.run("document.querySelector('input[value=fit]').click()"),
            visit.resize(800, 700),
            visit.run("document.querySelector('input[value=state]').click()"),
        ):
            await step
            await visit.run(FRAMES)
            assert await visit.until(painted) == {"wrong": []}
        grounds = "return getComputedStyle(document.body).backgroundColor"
        assert await visit.run(grounds) == "rgb(16, 22, 29)"
        await at(browser.shade, is_dark=False)


async def test_who_looks_is_asked_sees_its_own_and_is_offered_what_it_may_change(
    tmp_path: Path, browser: Page
) -> None:
    house = House(tmp_path)
    eye, admin = house.token("eye", "viewer", "vision"), house.token("op", "admin")
    settings = {"access": house.access(), "channel": house.channel, "tenants": TENANTS}
    async with (
        visiting(tmp_path, browser, is_filled=False, **settings) as (served, visit),
        house.calling(served, token=admin) as stub,
    ):
        await stub.CreateJob(create("mine", hosts=2, tenant="vision"))
        await stub.CreateJob(create("hush", hosts=2, tenant="speech"))
        await visit.go("")
        for token, words in (("muster_nonsense", "token"), (eye, "Broken now")):
            await visit.until("document.querySelector('#token')")
            await visit.run("const f = document.querySelector('#token'); f.value = ''; f.focus()")
            await visit.type(f"{token}\ue007")
            await visit.says(words, "document.body.innerText")
        await visit.run("location.hash = '/map'")
        await visit.until("globalThis.musterMap?.cluster.slots.filter(Boolean).length === 4")
        for place in PAGES:
            await visit.run(f"location.hash = '/{place}'")
            await visit.until("document.querySelector('main h1')")
            await asyncio.sleep(0.1)  # for what it asks for
            page = await visit.run(f"return {MAIN}")
            assert ("hush" in page, "speech" in page) == (False, False), page
        await visit.run("location.hash = '/job/speech/hush'")
        await visit.until(f"/no job/.test({MAIN})")
        assert await visit.run("return sessionStorage.length + document.cookie.length") == 1
        leave = "[...document.querySelectorAll('header button')].find(b => /out/.test(b.innerText))"
        await visit.run(f"{leave}.click()")
        await visit.until("document.querySelector('#token')")
        assert await visit.run("return sessionStorage.length") == 0

        for token, role, is_offered in ((admin, "admin", True), (eye, "viewer", False)):
            await visit.run(f"sessionStorage.setItem('muster.token', {token!r})")
            await visit.go("#/job/vision/mine")
            await visit.says("Checkpoints", "document.body.innerText")
            await visit.says(f"({role})", "document.querySelector('header').innerText")
            if is_offered:
                await visit.until(f"/Cancel/.test({MAIN})")
            await visit.run(FRAMES)
            assert await visit.run(f"return /Cancel/.test({MAIN})") is is_offered
        await visit.run("sessionStorage.clear()")


async def test_hosts_jobs_and_windows_are_changed_once_and_looked_at_first(
    tmp_path: Path, browser: Page
) -> None:
    async with visiting(tmp_path, browser) as (served, visit):
        host = (await served.get(path("a", "vision"))).placement.hosts[1]
        await visit.look()
        await visit.run(f"musterMap.go({HOST.format(host)})")
        drain = (
            "[...document.querySelectorAll('aside button')].find(b => /^Drain/.test(b.innerText))"
        )
        await visit.until(drain)
        await visit.run(f"{drain}.click()")
        await visit.asked("draining")
        assert "block 1 of vision/a" in await visit.run(f"return {DIALOG}.innerText")
        assert (await host_of(served, host)).state == HEALTHY
        await visit.run("document.querySelector('#reason').focus()")
        await visit.type("fan 3")
        await visit.agree(times=3)
        assert (await host_of(served, host)).cordon_reason == "fan 3"

        # What has changed since the page was drawn is not changed by mistake.
        await visit.look("job/vision/waits", "needs")
        await visit.press("Hold vision/waits")
        await visit.asked("It will be")
        change = service_pb2.UpdateJobRequest(
            job=job_pb2.Job(name=path("waits", "vision"), spec=job_pb2.JobSpec(priority=7)),
            update_mask=FieldMask(paths=["spec.priority"]),
        )
        await served.stub.UpdateJob(change)
        await visit.run(f"{DIALOG}.querySelector('button').click()")
        await visit.asked("has changed since")
        assert not (await served.get(path("waits", "vision"))).hold
        await visit.run(f"{DIALOG}.close()")
        await visit.until(f"!{DIALOG} && /Priority\\s+7/.test({MAIN})")
        await visit.press("Cancel vision/waits")
        await visit.asked("cancelled")
        await visit.run(f"{DIALOG}.querySelector('button').click()")
        await served.until(path("waits", "vision"), job_pb2.JOB_STATE_CANCELLED)

        await visit.look("hosts")
        await visit.until("document.querySelector('.plan')")
        fill_in = (
            "const e = document.querySelector('#window-' + arguments[0]); e.value = arguments[1];"
            "e.dispatchEvent(new Event('input', {bubbles: true}))"
        )
        await visit.run("document.querySelector('.plan').open = true")
        for name, value in {"name": "fans", "hosts": "z1", "hours": "2"}.items():
            await visit.run(fill_in, name, value)
            await visit.run(FRAMES)
        await visit.press("Look at it")
        await visit.asked("maintenance")
        await visit.agree()
        (window,) = (await served.stub.ListWindows(service_pb2.ListWindowsRequest())).windows
        assert (window.name, list(window.hosts)) == ("fans", ["z1"])


async def test_a_large_gang_is_stopped_by_its_name_alone(tmp_path: Path, browser: Page) -> None:
    """The dialog says who starts on its hosts: by the scheduler, not by the place in the queue."""
    spec = fabric_spec(zones=2, racks=8, hosts=4)
    async with visiting(tmp_path, browser, is_filled=False, fabric_spec=spec) as (served, visit):
        await served.start("big", 64)
        await served.stub.CreateJob(create("next", hosts=64))
        await visit.look("job/default/big", "Where its time went")
        await visit.press("Requeue default/big")
        await visit.asked("Lost since its last")
        button = f"{DIALOG}.querySelector('button.danger')"
        assert await visit.run(f"return {button}.disabled")
        await visit.run("document.querySelector('#typed').focus()")
        await visit.type("big")
        await visit.until(f"!{button}.disabled")
        await visit.until(f"/at once\\s+it itself, again/.test({DIALOG}.innerText)")
        await visit.run(f"{DIALOG}.close()")
        await visit.until(f"!{DIALOG}")
        await visit.press("Cancel default/big")
        await visit.until(f"/at once\\s+default.next/.test({DIALOG}?.innerText)")


@pytest.mark.slow
async def test_a_user_of_an_issuer_signs_in_and_signs_in_again(
    tmp_path: Path, browser: Page, axe: str
) -> None:
    """By another site, whose page sends a form and redirects, as issuers do."""
    house = House(tmp_path)
    rule = "{claim: groups, contains: vision, role: submitter, tenant: vision}"
    with FakeIssuer(host="localhost") as issuer:
        issuer.users = {
            "ada": {"email": "ada@example.org", "groups": ["vision"]},
            "eve": {"email": "eve@example.org"},
        }
        house.trust(issuer.section([rule], "  label: Example\n"))
        settings: Any = {"access": house.access(), "channel": house.channel, "clock": time.time_ns}
        settings["tenants"] = TENANTS
        async with visiting(tmp_path, browser, is_filled=False, **settings) as (_, visit):
            address = visit.address

            async def sign_in(user: str, words: str) -> None:
                await visit.until("document.querySelector('.issuer')")
                await visit.press("Sign in with Example")
                await visit.says("fake issuer")
                await visit.press(user)
                await visit.says(words, "document.body.innerText")

            await visit.go("#/queue")
            await visit.until("document.querySelector('.issuer')")
            await visit.check(axe)
            await at(browser.listen)
            browser.errors.clear()
            await sign_in("eve", "oidc:eve@example.org has no role")
            await at(browser.listen)
            assert all(" 403 " in error for error in browser.errors), browser.errors
            browser.errors.clear()
            browser.requests.clear()

            # Signed in, the page that was left is there, and nothing of the way.
            await sign_in("ada", "Free hosts of each domain")
            await visit.until("document.querySelector('.fresh')")
            assert await visit.run("return location.href") == f"{address}/#/queue"
            kept = "return Object.keys(sessionStorage).join() + document.cookie"
            assert await visit.run(kept) == "muster.token"
            await visit.check_console(issuer.url)
            assert any("prompt=login" in asked for asked in browser.requests)  # not eve again
            await visit.resize(*PHONE)
            head = "document.querySelector('header').innerText"
            await visit.until(f"{head}.includes('oidc:ada@example.org (submitter)')")
            await visit.check(axe)
            await visit.resize(*WIDE)

            # When the ID token ends the page says so, and signs in again where it was.
            issuer.users["ada"]["exp"] = time.time() - 26  # 4 s are left of the leeway
            await visit.run("location.hash = '/tenants'")
            await visit.press("Sign out")
            await sign_in("ada", "Live jobs of each tenant")
            said = "document.body.innerText.includes('the ID token has expired: sign in again')"
            await visit.until(said, 15)
            assert await visit.run("return sessionStorage.length") == 0
            issuer.users["ada"].pop("exp")
            await sign_in("ada", "Live jobs of each tenant")

            # A code that this tab did not ask for is refused, without a word to the server.
            await visit.press("Sign out")
            issuer.asked.clear()
            await at(browser.go, f"{address}/?code=x&state=y&error_description=call+us")
            await visit.until("/did not begin in this tab/.test(document.body.innerText)")
            assert await visit.run("return location.href") == f"{address}/"
            begun = {"state": "y", "issuer": issuer.url, "place": ""}
            for query, words in (
                ("error=access_denied&error_description=not+now&state=y", "access_denied: not now"),
                ("code=x&state=y&iss=https://other.example", "Another issuer has answered"),
            ):
                await visit.run(
                    "sessionStorage.setItem('muster.login', JSON.stringify(arguments[0]))",
                    begun,
                )
                await at(browser.go, f"{address}/?{query}")
                await visit.says(words, "document.body.innerText")
            assert "/token" not in issuer.asked
            await visit.run("sessionStorage.clear()")


async def test_the_map_says_who_is_on_a_host_and_a_click_holds_it(
    tmp_path: Path, browser: Page
) -> None:
    """A stage and the ranks of a role, or all jobs that share a host and their GPUs."""
    roles = [
        {"name": "trainer", "parallelism": {"tp": 8, "pp": 2}, "sends": {"server": 10}},
        {"name": "server", "parallelism": {"tp": 8}},
    ]
    spec = spec_to_proto(job_from_mapping({"name": "trio", "spares": 0, "roles": roles}))
    details = "document.querySelector('.details').textContent"
    async with visiting(tmp_path, browser, is_filled=False) as (served, visit):
        await served.stub.CreateJob(service_pb2.CreateJobRequest(spec=spec))
        hosts = (await served.until(path("trio"), RUNNING)).placement.hosts
        for name, gpus in (("a", 2), ("b", 4)):
            (shared,) = (await served.start(name, gpus=gpus)).placement.hosts
        await visit.look()
        for host, words in ((hosts[1], ("trainer", "1 of 0 to 1")), (hosts[2], ("server", "16"))):
            await visit.point(host, "pointermove")
            for word in words:
                await visit.says(word, details)

        await visit.point(shared, "pointerdown", "pointerup")
        await visit.point(hosts[0], "pointermove")
        await visit.until(f"{details}.includes('GPU 0, 1') && {details}.includes('GPU 4, 5, 6, 7')")
        assert shared in await visit.run(f"return {details}")
        await visit.point(shared, "pointerdown", "pointerup")
        await visit.point(hosts[0], "pointermove")
        await visit.until(f"!{details}.includes({shared!r})")

        await visit.look("job/default/trio", "Role and stage")
        rows = "[...document.querySelectorAll('main tbody tr')].map(row => row.textContent)"
        for label in ("trainer 0", "trainer 1", "server"):
            await visit.until(f"{rows}.some(row => row.startsWith({label!r}))")
        assert browser.errors == []


@pytest.mark.slow
def test_the_page_of_a_replay_has_no_fault_of_accessibility(
    tmp_path: Path, browser: Page, axe: str
) -> None:
    """It stands alone, in the console's look."""
    page = write_report(tmp_path) / "index.html"
    for is_dark, (width, height, is_phone) in ((False, WIDE), (True, PHONE)):
        browser.resize(width, height, is_phone=is_phone)
        browser.shade(is_dark=is_dark)
        browser.go(page.as_uri())
        browser.until("document.querySelector('main section svg')")
        browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
        browser.run(axe)
        assert browser.run(AXE) == [], width
        assert browser.run(OVER_THE_EDGE) <= 0


@contextmanager
def shown(source: object) -> Iterator[str]:
    """The address at which a log is shown."""
    words = [MUSTER, "console", str(source), "--listen", f"127.0.0.1:{free_port()}"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.search(r"events of .* on (http://\S+),", line)
        assert match, line
        yield match[1]
    finally:
        process.send_signal(signal.SIGINT)
        with process:
            assert process.wait(60) == 0


def test_a_replay_is_looked_at_in_a_browser(tmp_path: Path, browser: Page) -> None:
    now = "return musterTime.recording.now"
    buttons = "[...document.querySelectorAll('button')]"
    report = write_report(tmp_path, has_pages=False)
    assert head_of(timeline(*read_log(str(report / "events.jsonl"))))["end"] > 3_600
    with shown(report) as address:
        browser.go("about:blank")  # so that the last page asks no more
        browser.requests.clear()
        browser.resize(*WIDE[:2])
        browser.go(address)
        browser.until("globalThis.musterTime && musterMap")
        marks = browser.run("return musterTime.recording.head.marks.map(m => m.at)")
        browser.run("musterTime.go(arguments[0])", marks[0])
        states = "const {recording} = musterTime;"
        states += " return [...recording.slots.keys()].map(h => recording.stateOf(h))"
        assert browser.run(states).count("failed") == 1
        browser.until("/day 1, 0/.test(document.querySelector('.stamp').innerText)")
        browser.until("/host failed/.test(document.querySelector('main').innerText)")
        browser.run("document.querySelector('#time').focus()")
        browser.type("\ue014")  # right
        browser.until(f"musterTime.recording.now > {marks[0]}")
        browser.type(" ")
        browser.until(f"{buttons}.some(b => b.innerText === 'Pause')")
        before = browser.run(now)
        browser.until(f"musterTime.recording.now > {before}")
        browser.type(" ")
        browser.until(f"{buttons}.some(b => b.innerText === 'Play')")
        browser.run("musterTime.go(0)")
        moments = sorted(set(marks))
        for label, moment in (("Next incident", 0), ("Next incident", 1), ("Incident before", 0)):
            browser.run(f"{buttons}.find(b => b.innerText === arguments[0]).click()", label)
            assert browser.run(now) == moments[moment]
        browser.listen()
        assert all(each.startswith((address, "data:")) for each in browser.requests)
