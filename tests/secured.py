"""Servers that ask who calls, over real TLS on loopback, and the callers to match.

async with callers(tmp_path, ("ada", "submitter", "vision")) as (served, ada): ...

house = House(tmp_path)
ada = house.token("ada", "submitter", "vision")
async with serving(tmp_path, access=house.access()) as served:
    async with house.calling(served, token=ada) as stub: ...
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import trustme

from scheduler.access.listener import Access
from scheduler.access.options import CallLimits
from scheduler.access.tls import TlsFiles
from scheduler.access.tokens import mint
from scheduler.v1 import service_pb2_grpc
from tests.serving import Served, serving

_later = 0


def replace(path: Path, text: str | bytes) -> None:
    """Write `path` anew, so that it is seen to have changed within a clock tick."""
    global _later
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    _later += 1
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + _later))


class House:
    """Certificates, an auth file and callers, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca, self.client_ca = trustme.CA(), trustme.CA()
        self.certificate, self.key = folder / "server.pem", folder / "server-key.pem"
        self.auth = folder / "auth.yaml"
        self.tokens: list[str] = []
        self.certificates: list[str] = []
        self.oidc = ""
        (folder / "clients.pem").write_bytes(self.client_ca.cert_pem.bytes())
        self.issue()
        self.write()

    def issue(self) -> None:
        """A new server certificate, in the place of the old one."""
        made = self.ca.issue_cert("localhost", "127.0.0.1")
        replace(self.key, made.private_key_pem.bytes())
        replace(self.certificate, b"".join(pem.bytes() for pem in made.cert_chain_pems))

    def token(self, name: str, role: str, tenant: str = "", more: str = "") -> str:
        """Let a caller in; the token."""
        made = mint()
        of = f', tenant: "{tenant}"' if tenant else ""
        self.tokens.append(
            f'{{id: "{made.id}", name: {name}, role: {role}{of}, sha256: "{made.sha256}"{more}}}'
        )
        self.write()
        return made.text

    def admit(self, entry: str) -> None:
        """Let the bearer of a certificate in: `{san: x, role: operator}`."""
        self.certificates.append(entry)
        self.write()

    def write(self) -> None:
        rows = [
            f"{key}:\n" + "".join(f"  - {entry}\n" for entry in entries)
            for key, entries in (("tokens", self.tokens), ("certificates", self.certificates))
            if entries
        ]
        replace(self.auth, "".join(rows) + self.oidc or "{}\n")

    def trust(self, section: str) -> None:
        """Let users of an issuer in, by rows as FakeIssuer.section has them."""
        self.oidc = section
        self.write()

    def access(
        self, *, mtls: bool = False, limits: dict[str, int] | None = None, **more: Any
    ) -> Access:
        clients = str(self.folder / "clients.pem") if mtls else None
        files = TlsFiles(str(self.certificate), str(self.key), clients)
        return Access(files, str(self.auth), limits=CallLimits(**(limits or {})), **more)

    def channel(
        self, address: str, shown: trustme.LeafCert | None = None, token: str = ""
    ) -> grpc.aio.Channel:
        """`shown`: the client's certificate. `token`: in every call."""
        trusted = self.ca.cert_pem.bytes()
        key = shown.private_key_pem.bytes() if shown else None
        chain = b"".join(pem.bytes() for pem in shown.cert_chain_pems) if shown else None
        given = grpc.ssl_channel_credentials(trusted, key, chain)
        if token:
            bearer = grpc.access_token_call_credentials(token)
            given = grpc.composite_channel_credentials(given, bearer)
        return grpc.aio.secure_channel(address, given)

    @asynccontextmanager
    async def calling(
        self, served: Served, token: str = "", shown: trustme.LeafCert | None = None
    ) -> AsyncIterator[service_pb2_grpc.SchedulerServiceAsyncStub]:
        async with self.channel(served.ready.address, shown, token) as channel:
            yield service_pb2_grpc.SchedulerServiceStub(channel)


@asynccontextmanager
async def callers(
    folder: Path, *who: tuple[str, ...], limits: dict[str, int] | None = None, **settings: Any
) -> AsyncIterator[tuple[Any, ...]]:
    """A server that asks who calls, and a stub of each caller: as `House.token` lets it in."""
    house = House(folder)
    tokens = [house.token(*each) for each in who]
    async with AsyncExitStack() as stack:
        access = house.access(limits=limits)
        served = await stack.enter_async_context(serving(folder, access=access, **settings))
        stubs = [await stack.enter_async_context(house.calling(served, each)) for each in tokens]
        yield served, *stubs
