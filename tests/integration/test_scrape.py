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


async def test_a_token_of_a_viewer_of_all_reads_metrics(tmp_path: Path, house: House) -> None:
    token = house.token("prometheus", "viewer", "*")
    async with serving(tmp_path, metrics=EVERYWHERE, access=house.access()) as served:
        assert served.ready.metrics.startswith("https://")
        status, text = await asyncio.to_thread(get, served, house, token)
    assert (status, "muster_ready 1.0" in text) == (200, True)


@pytest.mark.parametrize(
    ("whose", "status", "said"),
    [
        ("nobody", 401, "give a token or a client cert"),
        ("somebody", 401, "not known"),
        ("expired", 401, "expired"),
        ("basic", 401, "not known"),
        ("bound", 403, "belongs to tenant vision"),
    ],
)
async def test_others_read_nothing(
    tmp_path: Path, house: House, whose: str, status: int, said: str
) -> None:
    good = house.token("prometheus", "viewer", "*")
    tokens = {
        "nobody": None,
        "somebody": "x" * 40,
        "expired": house.token("old", "viewer", "*", ", expires: 2020-01-01"),
        "basic": good,
        "bound": house.token("ada", "viewer", "vision"),
    }
    scheme = "Basic" if whose == "basic" else "Bearer"
    async with serving(tmp_path, metrics=EVERYWHERE, access=house.access()) as served:
        found = await asyncio.to_thread(get, served, house, tokens[whose], scheme)
    assert found[0] == status
    assert said in found[1]
    assert "muster_ready" not in found[1]


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


async def test_where_clients_need_a_certificate_a_scraper_does_as_well(
    tmp_path: Path, house: House
) -> None:
    token = house.token("prometheus", "viewer", "*")
    async with serving(tmp_path, metrics=EVERYWHERE, access=house.access(mtls=True)) as served:
        with pytest.raises((URLError, ConnectionError, ssl.SSLError)):
            await asyncio.to_thread(get, served, house, token)


@pytest.mark.parametrize(
    ("entry", "status", "said"),
    [
        ("{san: prometheus.example, name: prometheus, role: viewer, tenant: '*'}", 200, "ready 1"),
        ("{common_name: scraper, name: prometheus, role: operator}", 200, "ready 1"),
        ("{san: prometheus.example, name: ada, role: viewer, tenant: vision}", 403, "vision"),
        (
            "{san: other.example, name: other, role: operator}",
            401,
            "(san prometheus.example, common_name scraper)",
        ),
    ],
)
async def test_a_certificate_that_the_auth_file_knows_needs_no_token(
    tmp_path: Path, house: House, entry: str, status: int, said: str
) -> None:
    house.admit(entry)
    shown = house.client_ca.issue_cert("prometheus.example", common_name="scraper")
    async with serving(tmp_path, metrics=EVERYWHERE, access=house.access(mtls=True)) as served:
        found = await asyncio.to_thread(get, served, house, None, shown=shown)
    assert found[0] == status
    assert said in found[1]


async def test_a_certificate_does_not_make_up_for_a_bad_token(tmp_path: Path, house: House) -> None:
    house.admit("{san: prometheus.example, name: prometheus, role: operator}")
    shown = house.client_ca.issue_cert("prometheus.example")
    async with serving(tmp_path, metrics=EVERYWHERE, access=house.access(mtls=True)) as served:
        found = await asyncio.to_thread(get, served, house, "revoked", shown=shown)
    assert (found[0], "not known" in found[1]) == (401, True)


async def test_one_who_says_nothing_holds_up_nobody(tmp_path: Path, house: House) -> None:
    token = house.token("prometheus", "viewer", "*")
    async with serving(tmp_path, metrics=EVERYWHERE, access=house.access()) as served:
        port = int(served.ready.metrics.removesuffix("/metrics").rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)):
            assert (await asyncio.to_thread(get, served, house, token))[0] == 200


async def test_on_loopback_nobody_is_asked(tmp_path: Path, house: House) -> None:
    here = MetricsEndpoint("127.0.0.1", 0)
    async with serving(tmp_path, metrics=here, access=house.access()) as served:
        assert served.ready.metrics.startswith("http://")
        status, text = await asyncio.to_thread(get, served, house, None)
        assert (status, "muster_ready 1.0" in text, "muster_hosts{" in text) == (200, True, True)


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
        await stub.CreateJob(create("secret", tenant="default"))
        texts = [await asyncio.to_thread(get, served, house, t) for t in (None, bound, admin)]
    assert [status for status, _ in texts] == [200, 403, 200]
    assert ["default" in text for _, text in texts] == [False, False, True]
    assert "secret" not in texts[0][1]


async def test_in_the_clear_only_where_the_operator_insists(tmp_path: Path, house: House) -> None:
    token = house.token("prometheus", "viewer", "*")
    clear = replace(house.access(), tls=None)
    with pytest.raises(CannotListen, match=r"for metrics.*: no encryption"):
        async with serving(tmp_path, metrics=EVERYWHERE, access=clear):
            pass
    clear = replace(clear, is_insecure=True)
    async with serving(tmp_path, metrics=EVERYWHERE, access=clear) as served:
        asked = [await asyncio.to_thread(get, served, house, one) for one in (None, token)]
    assert [status for status, _ in asked] == [401, 200]
