"""The console in a real browser, on a server with gangs: pages open, live, and leak nothing."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from scheduler.console.thread import ConsoleEndpoint
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.files.job import job_from_mapping
from scheduler.v1 import host_pb2, job_pb2, service_pb2, service_pb2_grpc
from scheduler.wire.specs import spec_to_proto
from scripts.screenshots import filled
from tests.browser import AXE, HAS_BROWSER, MISSING, Page, browsing
from tests.build import exactly, fabric, fabric_spec
from tests.integration.simulator.test_run_page import write_report
from tests.issuer import FakeIssuer
from tests.secured import House
from tests.serving import RUNNING, Served, create, path, serving

pytestmark = pytest.mark.skipif(not HAS_BROWSER, reason=MISSING)

HEALTHY = host_pb2.HOST_STATE_HEALTHY
LOCAL = ConsoleEndpoint("127.0.0.1", 0)
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
PRESS = "[...document.querySelectorAll('button')].find(b => b.textContent.trim() === {!r}).click()"
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
FRAMES = "return new Promise(d => requestAnimationFrame(() => requestAnimationFrame(() => d(1))))"


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    with browsing() as page:
        yield page


async def at(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """The browser's turn, beside the server's loop."""
    return await asyncio.to_thread(call, *arguments, **named)


def look(page: Page, address: str, place: str = "map", words: str = "") -> None:
    """Open a page with nothing of the last one, and wait until it says what it has to."""
    page.go("about:blank")
    page.errors.clear()
    page.requests.clear()
    page.go(f"{address}/#/{place}")
    text = words or PAGES[place]
    page.until(f"document.body.textContent.includes({text!r})")
    page.until("document.querySelector('.fresh')")
    if place == "map":
        page.until("globalThis.musterMap?.plan")


async def fill(served: Served) -> None:
    """A gang of three stages with a spare, one of another tenant, and one that waits."""
    await served.stub.CreateJob(create("a", hosts=3, tenant="vision", spares=exactly(1)))
    await served.stub.CreateJob(create("b", hosts=2, tenant="speech"))
    await served.until(path("a", "vision"), RUNNING)
    await served.until(path("b", "speech"), RUNNING)
    await served.stub.CreateJob(create("waits", hosts=6, tenant="vision"))
    await served.stub.ReportLink(service_pb2.ReportLinkRequest(name="z1", share=0.5))


@pytest.mark.slow
async def test_every_page_opens_and_has_no_fault_of_accessibility(
    tmp_path: Path, browser: Page, axe: str
) -> None:
    async with serving(tmp_path, console=LOCAL, tenants=TENANTS) as served:
        await fill(served)
        address = served.ready.console
        for is_dark, (width, height), is_phone in (
            (False, (1_280, 900), False),
            (True, (390, 844), True),
        ):
            await at(browser.resize, width, height, is_phone=is_phone)
            await at(browser.shade, is_dark=is_dark)
            for place in PAGES:
                await at(look, browser, address, place)
                await at(browser.run, axe)
                assert await at(browser.run, AXE) == [], (place, width)
                wide = "return document.documentElement.scrollWidth - innerWidth"
                assert await at(browser.run, wide) <= 0, (place, width)
                await at(browser.listen)
                assert browser.errors == [], place
                own = (address, "data:")  # the browser's own icons are of the second kind
                elsewhere = [asked for asked in browser.requests if not asked.startswith(own)]
                assert elsewhere == [], place
                assert any("/live" in asked for asked in browser.requests)
            await at(look, browser, address, "job/vision/waits", "needs")
            await at(browser.until, "/Cancel/.test(document.querySelector('main').textContent)")
            await at(browser.run, PRESS.format("Cancel vision/waits"))
            await at(browser.until, "document.querySelector('dialog[open] .facts')")
            await at(browser.run, axe)
            assert await at(browser.run, AXE) == [], width
            await at(browser.run, "document.querySelector('dialog').close()")
        await at(
            browser.run, "document.querySelector('main').append(document.createElement('img'))"
        )
        assert len(await at(browser.run, AXE)) == 1  # so it does look


async def test_a_failure_is_seen_live(tmp_path: Path, browser: Page) -> None:
    async with serving(tmp_path, console=LOCAL, tenants=TENANTS) as served:
        await fill(served)
        await at(browser.resize, 1_280, 900)
        await at(look, browser, served.ready.console)
        host = (await served.get(path("a", "vision"))).placement.hosts[1]
        await served.stub.ReportHost(
            service_pb2.ReportHostRequest(name=host, signal="ecc-uncorrectable")
        )
        seen = "[...document.querySelectorAll('.legend li')].some(e => e.innerText.match(/failed/))"
        await at(browser.until, seen, 2)
        await at(browser.until, f"document.body.innerText.includes({host!r})", 5)
        state = "const m = musterMap; return m.cluster.stateOf(m.cluster.fabric.hosts.indexOf("
        assert await at(browser.run, state + f"{host!r}))") == "failed"


LARGE = {
    "overview": "What failed last",
    "incidents": "Gangs stopped",
    "map": "GPUs of each zone",
    "queue": "Free hosts of each domain",
    "hosts": "Uplinks of domains",
    "spares": "Spares by domain and job",
    "tenants": "Live jobs of each tenant",
    "time": "Incidents until then",
}


@pytest.mark.slow
async def test_a_cluster_of_24576_gpus_is_shown_at_every_size(
    tmp_path: Path, browser: Page, axe: str
) -> None:
    async with filled(tmp_path) as ready:
        address = ready.console
        for width, height, is_phone in (
            (1_280, 900, False),
            (3_840, 2_000, False),
            (390, 844, True),
        ):
            await at(browser.resize, width, height, is_phone=is_phone)
            for place, words in LARGE.items():
                await at(look, browser, address, place, words)
                await at(browser.run, axe)
                assert await at(browser.run, AXE) == [], (place, width)
                wide = "return document.documentElement.scrollWidth - innerWidth"
                assert await at(browser.run, wide) <= 0, (place, width)
                assert browser.errors == [], place
                own = (address, "data:")
                assert all(asked.startswith(own) for asked in browser.requests), place
        await at(browser.resize, 1_280, 900)
        await at(look, browser, address, "map", LARGE["map"])
        assert await at(browser.run, "return musterMap.cluster.jobs.size") > 50
        for mode, words in (("uplinks", "uplink busy"), ("fit", "would start now")):
            await at(browser.run, f"document.querySelector('input[value={mode}]').click()")
            await at(browser.until, f"document.body.textContent.includes({words!r})")
            await at(browser.run, axe)
            assert await at(browser.run, AXE) == [], mode
        async with grpc.aio.insecure_channel(ready.address) as channel:
            stub: Any = service_pb2_grpc.SchedulerServiceStub(channel)
            links = await stub.ListLinks(service_pb2.ListLinksRequest(show_all=True))
            assert max(link.busy_share for link in links.links) > 0
            report = service_pb2.ReportHostRequest(name="z3-r100-h0", signal="gpu-lost")
            await stub.ReportHost(report)
        seen = "musterMap.cluster.stateOf(musterMap.cluster.fabric.hosts.indexOf('z3-r100-h0'))"
        await at(browser.until, f"{seen} === 'failed'", 2)  # 0.1 s where nothing else runs


async def test_keys_go_from_host_to_host_and_open_the_job(tmp_path: Path, browser: Page) -> None:
    async with serving(tmp_path, console=LOCAL, tenants=TENANTS) as served:
        await fill(served)
        await at(browser.resize, 1_280, 900)
        await at(look, browser, served.ready.console)
        hosts = (await served.get(path("a", "vision"))).placement.hosts
        await at(browser.run, "document.querySelector('[role=application]').focus()")
        name, seen = "document.querySelector('.details h2')?.innerText", {None}
        for key in ("\ue011", "\ue014", "\ue015", "\ue012"):  # Home, right, down, left
            await at(browser.type, key)
            await at(browser.run, FRAMES)
            others = json.dumps([*seen])
            seen.add(await at(browser.until, f"!{others}.includes({name}) && {name}"))
        await at(browser.run, f"musterMap.go(musterMap.cluster.fabric.hosts.indexOf({hosts[1]!r}))")
        await at(browser.until, f"{name} === {hosts[1]!r}")
        details = await at(browser.run, "return document.querySelector('.details').innerText")
        assert "Ranks\n8 to 15" in details
        assert "Replica\n1 of 0 to 2" in details
        await at(browser.type, "\ue007")  # Enter
        await at(browser.until, "document.querySelector('h1').innerText === 'Job vision/a'")
        await at(browser.until, "document.activeElement.tagName === 'H1'")


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
    async with serving(tmp_path, console=LOCAL, tenants=TENANTS, fabric_spec=spec) as served:
        await at(browser.shade, is_dark=False)
        await at(browser.resize, 1_280, 900)
        await at(look, browser, served.ready.console)
        await served.stub.CreateJob(create("a", hosts=6, tenant="vision"))
        await served.until(path("a", "vision"), RUNNING)
        await at(browser.until, "musterMap.cluster.jobs.size === 1")
        for step in (
            lambda: browser.resize(2_560, 1_300),
            lambda: browser.shade(is_dark=True),
            lambda: browser.run("document.querySelector('input[value=job]').click()"),
            lambda: browser.run("document.querySelector('input[value=uplinks]').click()"),
            lambda: browser.run("document.querySelector('input[value=fit]').click()"),
            lambda: browser.resize(800, 700),
            lambda: browser.run("document.querySelector('input[value=state]').click()"),
        ):
            await at(step)
            await at(browser.run, FRAMES)
            assert await at(browser.until, painted) == {"wrong": []}
        grounds = "return getComputedStyle(document.body).backgroundColor"
        assert await at(browser.run, grounds) == "rgb(16, 22, 29)"
        await at(browser.shade, is_dark=False)


async def test_who_looks_is_asked_and_sees_its_own(tmp_path: Path, browser: Page) -> None:
    house = House(tmp_path)
    eye, admin = house.token("eye", "viewer", "vision"), house.token("op", "admin")
    access, channel = house.access(), house.channel
    async with (
        serving(tmp_path, console=LOCAL, access=access, channel=channel, tenants=TENANTS) as served,
        house.calling(served, token=admin) as stub,
    ):
        await stub.CreateJob(create("mine", hosts=2, tenant="vision"))
        await stub.CreateJob(create("hush", hosts=2, tenant="speech"))
        await at(browser.resize, 1_280, 900)
        await at(browser.go, "about:blank")
        await at(browser.go, f"{served.ready.console}/")
        for token, words in (("muster_nonsense", "token"), (eye, "Broken now")):
            await at(browser.until, "document.querySelector('#token')")
            await at(
                browser.run, "const f = document.querySelector('#token'); f.value = ''; f.focus()"
            )
            await at(browser.type, f"{token}\ue007")
            await at(browser.until, f"document.body.innerText.includes({words!r})")
        await at(browser.run, "location.hash = '/map'")
        await at(browser.until, "globalThis.musterMap?.cluster.slots.filter(Boolean).length === 4")
        for place in PAGES:
            await at(browser.run, f"location.hash = '/{place}'")
            await at(browser.run, "return new Promise(done => setTimeout(done, 600))")
            page = await at(browser.run, "return document.querySelector('main').innerText")
            assert "hush" not in page, page
            assert "speech" not in page, page
        await at(browser.run, "location.hash = '/job/speech/hush'")
        await at(browser.until, "/no job/.test(document.querySelector('main').innerText)")
        assert await at(browser.run, "return sessionStorage.length + document.cookie.length") == 1
        leave = "[...document.querySelectorAll('header button')].find(b => /out/.test(b.innerText))"
        await at(browser.run, f"{leave}.click()")
        await at(browser.until, "document.querySelector('#token')")
        assert await at(browser.run, "return sessionStorage.length") == 0


async def test_hosts_jobs_and_windows_are_changed_once_and_looked_at_first(
    tmp_path: Path, browser: Page
) -> None:
    press, dialog = PRESS.format, "document.querySelector('dialog[open]')"
    async with serving(tmp_path, console=LOCAL, tenants=TENANTS) as served:
        await fill(served)
        await at(browser.resize, 1_280, 900)
        host = (await served.get(path("a", "vision"))).placement.hosts[1]
        await at(look, browser, served.ready.console)
        place = f"musterMap.cluster.fabric.hosts.indexOf({host!r})"
        await at(browser.run, f"musterMap.go({place})")
        drain = (
            "[...document.querySelectorAll('aside button')].find(b => /^Drain/.test(b.innerText))"
        )
        await at(browser.until, drain)
        await at(browser.run, f"{drain}.click()")
        await at(browser.until, f"{dialog} && {dialog}.innerText.includes('draining')")
        assert "block 1 of vision/a" in await at(browser.run, f"return {dialog}.innerText")
        assert (await served.stub.GetHost(service_pb2.GetHostRequest(name=host))).state == HEALTHY
        await at(browser.run, "document.querySelector('#reason').focus()")
        await at(browser.type, "fan 3")
        await at(
            browser.run,
            f"const b = {dialog}.querySelector('button'); for (let i = 0; i < 3; i += 1) b.click()",
        )
        await at(browser.until, f"!{dialog}")
        drained = await served.stub.GetHost(service_pb2.GetHostRequest(name=host))
        assert drained.cordon_reason == "fan 3"

        # What has changed since the page was drawn is not changed by mistake.
        await at(look, browser, served.ready.console, "job/vision/waits", "needs")
        await at(browser.until, "/Hold/.test(document.querySelector('main').innerText)")
        await at(browser.run, press("Hold vision/waits"))
        await at(browser.until, f"{dialog} && /It will be/.test({dialog}.innerText)")
        change = service_pb2.UpdateJobRequest(
            job=job_pb2.Job(name=path("waits", "vision"), spec=job_pb2.JobSpec(priority=7)),
            update_mask=FieldMask(paths=["spec.priority"]),
        )
        await served.stub.UpdateJob(change)
        await at(browser.run, f"{dialog}.querySelector('button').click()")
        await at(browser.until, f"/has changed since/.test({dialog}.innerText)")
        assert not (await served.get(path("waits", "vision"))).hold
        await at(browser.run, f"{dialog}.close()")
        await at(browser.until, f"!{dialog}")
        await asyncio.sleep(2.5)
        await at(browser.run, press("Cancel vision/waits"))
        await at(browser.until, f"{dialog} && /cancelled/.test({dialog}.innerText)")
        await at(browser.run, f"{dialog}.querySelector('button').click()")
        await served.until(path("waits", "vision"), job_pb2.JOB_STATE_CANCELLED)

        await at(look, browser, served.ready.console, "hosts")
        await at(browser.until, "document.querySelector('.plan')")
        fields = {"name": "fans", "hosts": "z1", "hours": "2"}
        fill_in = (
            "const e = document.querySelector('#window-' + arguments[0]); e.value = arguments[1];"
        )
        fill_in += "e.dispatchEvent(new Event('input', {bubbles: true}))"
        await at(browser.run, "document.querySelector('.plan').open = true")
        for name, value in fields.items():
            await at(browser.run, fill_in, name, value)
            await at(browser.run, FRAMES)
        await at(browser.run, press("Look at it"))
        await at(browser.until, f"{dialog} && /maintenance/.test({dialog}.innerText)")
        await at(browser.run, f"{dialog}.querySelector('button').click()")
        await at(browser.until, f"!{dialog}")
        (window,) = (await served.stub.ListWindows(service_pb2.ListWindowsRequest())).windows
        assert (window.name, list(window.hosts)) == ("fans", ["z1"])


async def test_who_may_not_change_a_thing_is_not_offered_to(tmp_path: Path, browser: Page) -> None:
    house = House(tmp_path)
    eye, admin = house.token("eye", "viewer", "vision"), house.token("op", "admin")
    access, channel = house.access(), house.channel
    async with (
        serving(tmp_path, console=LOCAL, access=access, channel=channel, tenants=TENANTS) as served,
        house.calling(served, token=admin) as stub,
    ):
        await stub.CreateJob(create("mine", hosts=2, tenant="vision"))
        await at(browser.resize, 1_280, 900)
        await at(browser.go, "about:blank")
        await at(browser.go, f"{served.ready.console}/")
        await at(browser.run, f"sessionStorage.setItem('muster.token', {admin!r})")
        for token, offered in ((admin, True), (eye, False)):
            await at(browser.run, f"sessionStorage.setItem('muster.token', {token!r})")
            await at(browser.go, "about:blank")
            await at(browser.go, f"{served.ready.console}/#/job/vision/mine")
            await at(browser.until, "/Checkpoints/.test(document.body.innerText)")
            await at(browser.until, "document.querySelector('.fresh')")
            said = "/Cancel/.test(document.querySelector('main').textContent)"
            if offered:
                await at(browser.until, said)
            else:
                await asyncio.sleep(1.5)
                assert await at(browser.run, f"return {said}") is False
        await at(browser.run, "sessionStorage.clear()")


@pytest.mark.slow
async def test_a_user_of_an_issuer_signs_in_works_and_signs_in_again(
    tmp_path: Path, browser: Page, axe: str
) -> None:
    """By another site, whose page sends a form and redirects, as issuers do."""
    house = House(tmp_path)
    admin = house.token("op", "admin")
    groups = {"groups": ["vision"]}
    rule = "{claim: groups, contains: vision, role: submitter, tenant: vision}"
    dialog, main = "document.querySelector('dialog[open]')", "document.querySelector('main')"
    with FakeIssuer(host="localhost") as issuer:
        issuer.users = {
            "ada": {"email": "ada@example.org", **groups},
            "eve": {"email": "eve@example.org"},
        }
        house.trust(issuer.section([rule], "  label: Example\n"))
        settings: Any = {"access": house.access(), "channel": house.channel, "clock": time.time_ns}
        async with (
            serving(tmp_path, console=LOCAL, tenants=TENANTS, **settings) as served,
            house.calling(served, token=admin) as root,
        ):
            address = served.ready.console
            await root.CreateJob(create("theirs", hosts=2, tenant="vision"))
            await at(browser.resize, 1_280, 900)

            async def reached(job_id: str, state: int) -> None:
                request = service_pb2.GetJobRequest(name=path(job_id, "vision"))
                async with asyncio.timeout(60):
                    while (await root.GetJob(request)).state != state:
                        await asyncio.sleep(0.01)

            async def sign_in(user: str, words: str) -> None:
                await at(browser.until, "document.querySelector('.issuer')")
                await at(browser.run, PRESS.format("Sign in with Example"))
                await at(browser.until, "document.body.innerText.includes('fake issuer')")
                await at(browser.run, PRESS.format(user))
                await at(browser.until, f"document.body.innerText.includes({words!r})")

            await at(browser.go, "about:blank")
            await at(browser.go, f"{address}/#/queue")
            await at(browser.until, "document.querySelector('.issuer')")
            await at(browser.run, axe)
            assert await at(browser.run, AXE) == []
            await at(browser.listen)
            browser.errors.clear()
            await sign_in("eve", "oidc:eve@example.org has no role")
            await at(browser.listen)
            assert all(" 403 " in error for error in browser.errors), browser.errors
            browser.errors.clear()
            browser.requests.clear()

            # Signed in, the page that was left is there, and nothing of the way.
            await sign_in("ada", "Free hosts of each domain")
            await at(browser.until, "document.querySelector('.fresh')")
            assert await at(browser.run, "return location.href") == f"{address}/#/queue"
            kept = "return Object.keys(sessionStorage).join() + document.cookie"
            assert await at(browser.run, kept) == "muster.token"
            await at(browser.listen)
            assert browser.errors == []
            own = (address, issuer.url, "data:")
            assert all(asked.startswith(own) for asked in browser.requests), browser.requests
            assert any("prompt=login" in asked for asked in browser.requests)  # not eve again
            token = await at(browser.run, "return sessionStorage.getItem('muster.token')")

            await at(browser.resize, 390, 844, is_phone=True)
            head = "document.querySelector('header').innerText"
            await at(browser.until, f"{head}.includes('oidc:ada@example.org (submitter)')")
            await at(browser.run, axe)
            assert await at(browser.run, AXE) == []
            wide = "return document.documentElement.scrollWidth - innerWidth"
            assert await at(browser.run, wide) <= 0
            await at(browser.resize, 1_280, 900)

            # What the role allows is done, and is hers; what it does not is refused.
            async with house.calling(served, token=token) as stub:
                made = await stub.CreateJob(create("mine", hosts=2, tenant="vision"))
                assert made.user == "oidc:ada@example.org"
                # A page that was drawn before the start would find it changed.
                await reached("mine", RUNNING)
                await at(browser.run, "location.hash = '/job/vision/mine'")
                await at(browser.until, f"/Cancel/.test({main}.textContent)")
                await at(browser.run, PRESS.format("Cancel vision/mine"))
                await at(browser.until, f"{dialog} && /cancelled/.test({dialog}.innerText)")
                await at(browser.run, f"{dialog}.querySelector('button').click()")
                await reached("mine", job_pb2.JOB_STATE_CANCELLED)
            await at(browser.until, f"!{dialog}")
            await at(browser.run, "location.hash = '/job/vision/theirs'")
            await at(browser.until, f"/Checkpoints/.test({main}.textContent)")
            assert not await at(browser.run, f"return /Cancel/.test({main}.textContent)")
            cordon = """return fetch('/scheduler.v1.SchedulerService/CordonHost', {method: 'POST',
              headers: {'Content-Type': 'application/json',
                Authorization: 'Bearer ' + sessionStorage.getItem('muster.token')},
              body: JSON.stringify({name: 'z0-r0-h0'})}).then(answer => answer.status)"""
            assert await at(browser.run, cordon) == 403

            # When the ID token ends the page says so, and signs in again where it was.
            issuer.users["ada"]["exp"] = time.time() - 26  # 4 s are left of the leeway
            await at(browser.run, "location.hash = '/tenants'")
            await at(browser.run, PRESS.format("Sign out"))
            await sign_in("ada", "Live jobs of each tenant")
            said = "document.body.innerText.includes('the ID token has expired: sign in again')"
            await at(browser.until, said, 15)
            assert await at(browser.run, "return sessionStorage.length") == 0
            issuer.users["ada"].pop("exp")
            await sign_in("ada", "Live jobs of each tenant")

            # A code that this tab did not ask for is refused, without a word to the server.
            await at(browser.run, PRESS.format("Sign out"))
            issuer.asked.clear()
            await at(browser.go, f"{address}/?code=x&state=y&error_description=call+us")
            await at(browser.until, "/did not begin in this tab/.test(document.body.innerText)")
            assert await at(browser.run, "return location.href") == f"{address}/"
            begun = {"state": "y", "issuer": issuer.url, "place": ""}
            for query, words in (
                ("error=access_denied&error_description=not+now&state=y", "access_denied: not now"),
                ("code=x&state=y&iss=https://other.example", "Another issuer has answered"),
            ):
                await at(
                    browser.run,
                    "sessionStorage.setItem('muster.login', JSON.stringify(arguments[0]))",
                    begun,
                )
                await at(browser.go, f"{address}/?{query}")
                await at(browser.until, f"document.body.innerText.includes({words!r})")
            assert "/token" not in issuer.asked
            await at(browser.run, "sessionStorage.clear()")


@pytest.mark.slow
async def test_a_click_holds_a_host_and_jobs_that_share_it_are_named(
    tmp_path: Path, browser: Page
) -> None:
    async with serving(tmp_path, console=LOCAL) as served:
        for name, gpus in (("a", 2), ("b", 4)):
            await served.stub.CreateJob(create(name, gpus=gpus))
            await served.until(path(name), RUNNING)
        await at(browser.resize, 1_280, 900)
        await at(look, browser, served.ready.console)
        host = (await served.stub.GetJob(service_pb2.GetJobRequest(name=path("a")))).placement
        index = list(fabric().hosts).index(host.hosts[0])
        await at(browser.run, POINTER + f"send('pointerdown', {index}); send('pointerup', {index})")
        await at(browser.run, POINTER + f"send('pointermove', {1 - index})")
        held = "document.querySelector('.details').textContent"
        await at(browser.until, f"{held}.includes('GPU 0, 1') && {held}.includes('GPU 4, 5, 6, 7')")
        assert host.hosts[0] in await at(browser.run, f"return {held}")
        await at(browser.run, POINTER + f"send('pointerdown', {index}); send('pointerup', {index})")
        await at(browser.run, POINTER + f"send('pointermove', {1 - index})")
        await at(browser.until, f"!{held}.includes({host.hosts[0]!r})")


async def test_map_and_page_of_a_gang_of_roles_say_who_is_where(
    tmp_path: Path, browser: Page
) -> None:
    shape = {"tp": 8, "pp": 2}
    roles = [
        {"name": "trainer", "parallelism": shape, "sends": {"server": 10}},
        {"name": "server", "parallelism": {"tp": 8}},
    ]
    spec = spec_to_proto(job_from_mapping({"name": "trio", "spares": 0, "roles": roles}))
    async with serving(tmp_path, console=LOCAL) as served:
        await served.stub.CreateJob(service_pb2.CreateJobRequest(spec=spec))
        hosts = list((await served.until(path("trio"), RUNNING)).placement.hosts)
        await at(browser.resize, 1_280, 900)
        await at(look, browser, served.ready.console)
        shown = "document.querySelector('.details').textContent"
        for host, words in ((hosts[1], ("trainer", "1 of 0 to 1")), (hosts[2], ("server", "16"))):
            index = list(fabric().hosts).index(host)
            await at(browser.run, POINTER + f"send('pointermove', {index})")
            for word in words:
                await at(browser.until, f"{shown}.includes({word!r})")
        await at(look, browser, served.ready.console, "job/default/trio", "Role and stage")
        rows = "[...document.querySelectorAll('main tbody tr')].map(row => row.textContent)"
        for label in ("trainer 0", "trainer 1", "server"):
            await at(browser.until, f"{rows}.some(row => row.startsWith({label!r}))")
        assert browser.errors == []


@pytest.mark.slow
def test_the_page_of_a_replay_has_no_fault_of_accessibility(
    tmp_path: Path, browser: Page, axe: str
) -> None:
    """It stands alone, in the console's look."""
    page = write_report(tmp_path) / "index.html"
    for is_dark, (width, height), is_phone in (
        (False, (1_280, 900), False),
        (True, (390, 844), True),
    ):
        browser.resize(width, height, is_phone=is_phone)
        browser.shade(is_dark=is_dark)
        browser.go(page.as_uri())
        browser.until("document.querySelector('main section svg')")
        browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
        browser.run(axe)
        assert browser.run(AXE) == [], width
        assert browser.run("return document.documentElement.scrollWidth - innerWidth") <= 0
