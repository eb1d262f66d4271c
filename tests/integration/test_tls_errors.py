"""What a client says when TLS fails, and what `muster certs` refuses."""

import asyncio
import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme
from typer.testing import CliRunner

from scheduler.access.listener import Access
from scheduler.access.tls import TlsFiles
from scheduler.cli.program import app
from scheduler.client.credentials import Credentials
from scheduler.client.diagnosis import unreachable
from scheduler.files.errors import InputError
from tests.cases import case
from tests.secured import House
from tests.serving import serving

LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC), datetime(2002, 1, 1, tzinfo=UTC)


@pytest.fixture
def house(tmp_path: Path) -> House:
    house = House(tmp_path)
    house.ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    trustme.CA().cert_pem.write_to_path(tmp_path / "other-ca.pem")
    write(tmp_path / "ada", house.client_ca.issue_cert("ada", common_name="ada"))
    write(tmp_path / "eve", trustme.CA().issue_cert("eve", common_name="eve"))
    return house


def write(path: Path, certificate: trustme.LeafCert) -> None:
    chain = b"".join(pem.bytes() for pem in certificate.cert_chain_pems)
    path.with_suffix(".pem").write_bytes(chain)
    certificate.private_key_pem.write_to_path(path.with_suffix(".key"))


def who(folder: Path, ca: str = "ca.pem", name: str = "") -> Credentials:
    shown = [str(folder / f"{name}{suffix}") if name else "" for suffix in (".pem", ".key")]
    return Credentials(str(folder / ca) if ca else "", *shown)


async def test_each_way_that_tls_fails_has_its_sentence(tmp_path: Path, house: House) -> None:
    expected = {
        who(tmp_path, ca=""): "it accepts only TLS: say with --ca",
        who(tmp_path, "other-ca.pem"): f"not signed by the CA in {tmp_path}/other-ca.pem",
        who(tmp_path): "it wants a certificate of the client",
        who(tmp_path, name="eve"): f"it does not accept {tmp_path}/eve.pem",
    }
    async with serving(tmp_path, access=house.access(mtls=True)) as served:
        for caller, sentence in expected.items():
            said = await asyncio.to_thread(unreachable, served.ready.address, caller)
            assert said.startswith(f"no server answers at {served.ready.address}: ")
            assert sentence in said
    addresses = "127.0.0.1:1,127.0.0.1:2"  # those that fail alike share a sentence
    refused = f"no server answers at {addresses} (connection refused)"
    assert await asyncio.to_thread(unreachable, addresses, Credentials()) == refused


async def test_a_server_in_the_clear_or_with_a_wrong_certificate(
    tmp_path: Path, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as served:
        said = await asyncio.to_thread(unreachable, served.ready.address, who(tmp_path))
        assert "it has no TLS there: leave out --ca" in said
    begin, end = LONG_AGO
    write(tmp_path / "foreign", house.ca.issue_cert("elsewhere.example"))
    old = house.ca.issue_cert("127.0.0.1", not_before=begin, not_after=end)
    write(tmp_path / "old", old)
    for name, sentence in (("foreign", "is for another address"), ("old", "has expired")):
        files = TlsFiles(str(tmp_path / f"{name}.pem"), str(tmp_path / f"{name}.key"))
        (tmp_path / name).mkdir()
        with caplog.at_level(logging.ERROR):
            async with serving(tmp_path / name, access=Access(files)) as served:
                said = await asyncio.to_thread(unreachable, served.ready.address, who(tmp_path))
        assert sentence in said
    assert f"{tmp_path}/old.pem has expired at 2002-01-01" in caplog.text
    assert "foreign" not in caplog.text


def test_a_key_of_another_certificate_is_named(tmp_path: Path, house: House) -> None:
    mixed = Credentials(*(str(tmp_path / name) for name in ("ca.pem", "ada.pem", "eve.key")))
    with pytest.raises(InputError, match=r"ada\.pem: does not go with .*eve\.key"):
        mixed.channel("127.0.0.1:1", ())


def test_wrong_wishes_for_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.access.certificates.CA_DAYS", 1_000)
    at, run = ["--folder", str(tmp_path)], CliRunner()
    assert run.invoke(app, ["certs", "init", "--client", "ada", *at]).exit_code == 0
    assert (tmp_path / "ca.key").stat().st_mode & 0o777 == 0o600
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for words, sentence in (
        (["init"], "ca.key: already exists"),
        (["new", "ada"], "ada.key: already exists"),
        (["new", "ca", "--replace"], "is the CA's"),
        (["new", "../x"], "must be 1 to 128 letters"),
        (["new", "ada", "--server", "x"], "--server: goes with the name `server` alone"),
        (["new", "server", "--server", "a b", "--replace"], "'a b' is neither an IP address"),
        (["new", "late", "--days", "3650"], "is more than the [0-9]+ days that the CA has left"),
    ):
        with case(words=words), pytest.raises(InputError, match=sentence):
            run.invoke(app, ["certs", *words, *at], catch_exceptions=False)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert run.invoke(app, ["certs", "new", "ada", "--replace", *at]).exit_code == 0
    names = run.invoke(app, ["certs", "list", "-o", "name", *at]).output.split()
    assert names == ["ada", "ca", "server"]
