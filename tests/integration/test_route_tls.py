"""`muster route` over two servers that ask who calls: TLS of authorities of their own, tokens, and
a client certificate."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.files.errors import InputError
from tests.build import fabric_spec
from tests.commands import quick_retries
from tests.integration.test_route import Sites
from tests.secured import House
from tests.serving import serving

TENANTS = Tenants((Tenant("vision"), Tenant("nlp")), "vision")
BOTH = ("--context", "east,west")


@dataclass
class Secured(Sites):
    """`contexts`: as the file of this user has them."""

    houses: dict[str, House] = field(default_factory=dict)
    contexts: dict[str, dict[str, str]] = field(default_factory=dict)

    async def open(self, name: str, *, mtls: bool = False) -> None:
        """A cluster with a certificate of its own authority, which lets ada submit for vision."""
        folder = self.folder / name
        folder.mkdir()
        house = self.houses[name] = House(folder)
        token = house.token("ada", "submitter", "vision")
        house.ca.cert_pem.write_to_path(str(folder / "ca.pem"))
        (folder / "token").write_text(token + "\n")
        (folder / "token").chmod(0o600)
        keys = {"ca": f"{name}/ca.pem", "token_file": f"{name}/token"}
        shown = house.client_ca.issue_cert("ada@example.com") if mtls else None
        if shown is not None:
            shown.private_key_pem.write_to_path(str(folder / "ada-key.pem"))
            shown.cert_chain_pems[0].write_to_path(str(folder / "ada.pem"))
            keys |= {"cert": f"{name}/ada.pem", "key": f"{name}/ada-key.pem"}

        def channel(address: str) -> grpc.aio.Channel:
            return house.channel(address, shown)

        self.opened[name] = serving(
            folder,
            channel=channel,
            access=house.access(mtls=mtls),
            tenants=TENANTS,
            fabric_spec=fabric_spec() | {"name": name},
            clock=time.time_ns,
        )
        self.up[name] = await self.opened[name].__aenter__()
        self.contexts[name] = {"address": self.up[name].ready.address, **keys}
        self.write()

    def write(self) -> None:
        (self.folder / "config.yaml").write_text(json.dumps({"contexts": self.contexts}))


@pytest.fixture
async def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Secured]:
    for variable in ("MUSTER_TOKEN", "MUSTER_TOKEN_FILE", "MUSTER_CA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("MUSTER_CONFIG", str(tmp_path / "config.yaml"))
    quick_retries(monkeypatch)
    sites = Secured(tmp_path)
    await sites.open("east")
    await sites.open("west", mtls=True)
    yield sites
    for name in list(sites.up):
        await sites.stop(name)


async def test_who_is_not_let_in_by_a_cluster_is_told_and_the_job_goes_nowhere_unsure(
    sites: Secured,
) -> None:
    """West has another token, then another authority, then a caller without a certificate."""
    file, west = sites.file("a", 3), dict(sites.contexts["west"])
    texts = []
    for changed in (
        west | {"token_file": "east/token"},
        west | {"ca": "east/ca.pem"},
        {key: west[key] for key in ("address", "ca", "token_file")},
    ):
        sites.contexts["west"] = changed
        sites.write()
        asked = await sites.muster("submit", file, *BOTH, "--dry-run")
        refused = await sites.muster("submit", file, *BOTH)
        assert refused.exit_code == 6, refused.output
        assert asked.exit_code == 0, asked.output
        texts.append((asked.stdout, refused.stderr))
    sites.contexts["west"] = west | {"token_file": "nowhere/token"}
    sites.write()
    missing = await sites.muster("submit", file, *BOTH)
    sites.contexts["west"] = west
    sites.write()
    made = await sites.muster("submit", file, *BOTH, "-o", "name")
    again = await sites.muster("submit", file, *BOTH, "-o", "json")
    for asked_text, refused_text in texts:
        assert "east" in asked_text
        assert "west: " in refused_text
        for text in (asked_text, refused_text):
            assert "Traceback" not in text
            assert sites.houses["east"].folder.joinpath("token").read_text().strip() not in text
    assert isinstance(missing.exception, InputError)
    assert str(missing.exception).endswith("nowhere/token: no such file")
    assert (made.exit_code, made.stdout, made.stderr) == (0, "vision/a\n", ""), made.output
    found = json.loads(again.stdout)
    assert (found["cluster"], found["is_repeat"]) == ("east", True)
