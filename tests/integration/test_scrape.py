"""/metrics beyond this machine: over TLS, to those who may look at everything."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
import trustme

from scheduler.access.listener import CannotListen
from scheduler.server.metrics.exposition import MetricsEndpoint
from tests.secured import House
from tests.serving import Served, create, serving
from tests.waiting import until

EVERYWHERE = MetricsEndpoint("0.0.0.0", 0)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def get(
    served: Served,
    house: House,
    token: str | None,
    scheme: str = "Bearer",
    shown: trustme.LeafCert | None = None,
) -> tuple[int, str]:
    """Status and text, as a scraper on this machine is answered. `shown`: its certificate."""
    url = served.ready.metrics.replace("0.0.0.0", "127.0.0.1")
    headers = {} if token is None else {"Authorization": f"{scheme} {token}"}
    trusted = ssl.create_default_context(cadata=house.ca.cert_pem.bytes().decode())
    if shown is not None:
        shown.configure_cert(trusted)
    over = trusted if url.startswith("https") else None
    try:
        with urlopen(Request(url, headers=headers), timeout=60, context=over) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def test_a_token_of_a_viewer_of_all_reads_metrics_and_no_other(
    tmp_path: Path, house: House
) -> None:
    good = house.token("prometheus", "viewer", "*")
    expired = house.token("old", "viewer", "*", ", expires: 2020-01-01")
    bound = house.token("ada", "viewer", "vision")
    async with serving(tmp_path, metrics=EVERYWHERE, access=house.access()) as served:
        assert served.ready.metrics.startswith("https://")
        port = int(served.ready.metrics.removesuffix("/metrics").rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)):  # who says nothing holds up nobody
            status, text = await asyncio.to_thread(get, served, house, good)
        assert (status, "muster_ready 1.0" in text) == (200, True)
        for token, scheme, expected, said in (
            (None, "Bearer", 401, "give a token or a client cert"),
            ("x" * 40, "Bearer", 401, "not known"),
            (expired, "Bearer", 401, "expired"),
            (good, "Basic", 401, "not known"),
            (bound, "Bearer", 403, "belongs to tenant vision"),
        ):
            status, text = await asyncio.to_thread(get, served, house, token, scheme)
            assert (status, said in text, "muster_ready" in text) == (expected, True, False), text


async def test_a_revoked_token_and_a_new_certificate_count_at_once(
    tmp_path: Path, house: House
) -> None:
    token = house.token("prometheus", "viewer", "*")
    async with serving(tmp_path, metrics=EVERYWHERE, access=house.access()) as served:
        assert (await asyncio.to_thread(get, served, house, token))[0] == 200
        house.tokens.clear()
        house.write()
        house.issue()
        ask = partial(asyncio.to_thread, get, served, house, token)
        await until(ask, lambda answer: answer[0] == 401)  # files are looked at once a second


async def test_where_clients_need_a_certificate_one_that_the_auth_file_knows_needs_no_token(
    tmp_path: Path, house: House
) -> None:
    token = house.token("prometheus", "viewer", "*")
    house.admit("{san: prometheus.example, name: prometheus, role: viewer, tenant: '*'}")
    house.admit("{common_name: scraper, name: other, role: operator}")
    house.admit("{san: ada.example, name: ada, role: viewer, tenant: vision}")
    async with serving(tmp_path, metrics=EVERYWHERE, access=house.access(mtls=True)) as served:
        with pytest.raises((URLError, ConnectionError, ssl.SSLError)):
            await asyncio.to_thread(get, served, house, token)
        for san, common_name, bad_token, status, said in (
            ("prometheus.example", "x", None, 200, "ready 1"),
            ("y.example", "scraper", None, 200, "ready 1"),
            ("ada.example", "x", None, 403, "vision"),
            ("y.example", "x", None, 401, "(san y.example, common_name x)"),
            ("prometheus.example", "x", "revoked", 401, "not known"),  # it does not make up for it
        ):
            shown = house.client_ca.issue_cert(san, common_name=common_name)
            found = await asyncio.to_thread(get, served, house, bad_token, shown=shown)
            assert (found[0], said in found[1]) == (status, True), found


async def test_on_loopback_names_are_for_callers_who_may_see_all(
    tmp_path: Path, house: House
) -> None:
    """Jobs and users of a host reach loopback as well."""
    here = MetricsEndpoint("127.0.0.1", 0, is_per_job=True)
    admin = house.token("root", "admin")
    bound = house.token("ada", "submitter", "vision")
    access = house.access()
    async with (
        serving(tmp_path, metrics=here, access=access) as served,
        house.calling(served, token=admin) as stub,
    ):
        assert served.ready.metrics.startswith("http://")
        await stub.CreateJob(create("secret", tenant="default"))
        texts = [await asyncio.to_thread(get, served, house, t) for t in (None, bound, admin)]
    assert [status for status, _ in texts] == [200, 403, 200]
    assert ["default" in text for _, text in texts] == [False, False, True]
    assert "secret" not in texts[0][1]
    assert "muster_hosts{" in texts[0][1]


async def test_in_the_clear_only_where_the_operator_insists(
    tmp_path: Path, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    token = house.token("prometheus", "viewer", "*")
    clear = replace(house.access(), tls=None)
    with pytest.raises(CannotListen, match=r"for metrics.*: no encryption"):
        async with serving(tmp_path, metrics=EVERYWHERE, access=clear):
            pass
    clear = replace(clear, is_insecure=True)
    async with serving(tmp_path, metrics=EVERYWHERE, access=clear) as served:
        asked = [await asyncio.to_thread(get, served, house, one) for one in (None, token)]
    assert [status for status, _ in asked] == [401, 200]
    assert "insecure on 0.0.0.0:0 for metrics" in caplog.text
