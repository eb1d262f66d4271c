"""Certificates for a start: a CA of one's own, and what it signs, as PEM files in one folder.

    ca.pem, ca.key              who signs; the key belongs on no server
    server.pem, server.key      of servers, for the names and addresses that clients call them by;
                                urn:muster:server lets them pass calls on to the one that leads
    NAME.pem, NAME.key          of a caller, or of a host with an agent; the common name is NAME,
                                and urn:muster:host:NAME makes it that of a host

A site that has a CA does without. Keys are on P-256, signatures are ECDSA with SHA-256.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from muster.structs import struct
from scheduler.access.tokens import HOST_URI, SERVER_URI
from scheduler.files.atomic_file import written
from scheduler.files.errors import InputError, Problem

CA, SERVER = "ca", "server"
CA_DAYS = 3_650
_CLOCKS_DIFFER = timedelta(hours=1)
_MACHINE = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
_PRIVATE, _FOR_THE_GROUP, _FOR_ALL = 0o600, 0o640, 0o644


@struct(frozen=True, slots=True)
class CertificateFile:
    """A certificate in a folder. `names`: whom it is for. Times are UTC."""

    path: Path
    names: tuple[str, ...]
    begins: datetime
    expires: datetime


def make_ca(folder: Path, now: datetime) -> None:
    """Make a new CA in `folder`. Raises: InputError where there is one."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "muster CA")])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    ca = (
        _builder(name, name, key.public_key(), now, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write_pair(folder, CA, key, ca, _PRIVATE, replace=False)


def issue(
    folder: Path,
    name: str,
    alternatives: Sequence[str],
    days: int,
    now: datetime,
    *,
    replace: bool,
    is_host: bool = False,
) -> Path:
    """Issue a certificate, signed by the CA in `folder`, with its key, and return its path.

    `name`: the common name and that of the files; SERVER for a server's. `alternatives`: names and
    IP addresses. `is_host`: the agent of a host shows it, and no caller. Raises: InputError.
    """
    ca, ca_key = _read_ca(folder)
    if now + timedelta(days=days) > ca.not_valid_after_utc:
        left = (ca.not_valid_after_utc - now).days
        raise InputError(Problem("--days", f"is more than the {left} days that the CA has left"))
    is_server = name == SERVER
    key = ec.generate_private_key(ec.SECP256R1())
    shown = alternatives[0] if is_server else name
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, shown)])
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]  # also of servers: they pass calls on
    purposes += [ExtendedKeyUsageOID.SERVER_AUTH] if is_server else []
    uris = [SERVER_URI] if is_server else [HOST_URI + name] if is_host else []
    listed = [*map(_general, alternatives), *map(x509.UniformResourceIdentifier, uris)]
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    certificate = (
        _builder(subject, ca.subject, key.public_key(), now, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(listed), False)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(authority, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    mode = _FOR_THE_GROUP if is_server else _PRIVATE
    _write_pair(folder, name, key, certificate, mode, replace=replace)
    return folder / f"{name}.pem"


def certificates_in(folder: Path) -> Iterator[CertificateFile]:
    """The certificates in `folder`, by name of the file. Raises: InputError."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".pem")
    except OSError as error:
        raise InputError(Problem("", f"{error.strerror}", str(folder))) from None
    for path in paths:
        yield read_certificate(path)


def read_certificate(path: Path) -> CertificateFile:
    """The first certificate of a PEM file. Raises: InputError."""
    read = _load(path)
    common = read.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    names = [str(attribute.value) for attribute in common]
    try:
        listed = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        listed = x509.SubjectAlternativeName([])
    names += listed.get_values_for_type(x509.DNSName)
    names += map(str, listed.get_values_for_type(x509.IPAddress))
    names += listed.get_values_for_type(x509.UniformResourceIdentifier)
    begins, expires = read.not_valid_before_utc, read.not_valid_after_utc
    return CertificateFile(path, tuple(dict.fromkeys(names)), begins, expires)


def _load(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise InputError(Problem("", f"{error.strerror}", str(path))) from None
    except ValueError:
        raise InputError(Problem("", "holds no certificate in PEM form", str(path))) from None


def _read_ca(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    ca, path = _load(folder / f"{CA}.pem"), folder / f"{CA}.key"
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise InputError(Problem("", f"{error.strerror}", str(path))) from None
    except (TypeError, ValueError):
        raise InputError(
            Problem("", "is not a key in PEM form, or is encrypted", str(path))
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != ca.public_key():
        raise InputError(Problem("", "is not the key of ca.pem", str(path)))
    return ca, key


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + timedelta(days=days))
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    if _MACHINE.fullmatch(name) is None:
        raise InputError(Problem("", f"{name!r} is neither an IP address nor a name of a machine"))
    return x509.DNSName(name)


def _write_pair(
    folder: Path,
    name: str,
    key: ec.EllipticCurvePrivateKey,
    certificate: x509.Certificate,
    mode: int,
    *,
    replace: bool,
) -> None:
    """The key first: a certificate is never without it."""
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    shown = certificate.public_bytes(serialization.Encoding.PEM)
    _write(folder / f"{name}.key", secret, mode, replace=replace)
    _write(folder / f"{name}.pem", shown, _FOR_ALL, replace=replace)


def _write(path: Path, content: bytes, mode: int, *, replace: bool) -> None:
    """At once: a server that looks meanwhile reads the old or the new. Raises: InputError."""
    if path.exists() and not replace:
        raise InputError(Problem("", "already exists", str(path)))
    with written(path, "", mode) as file:
        file.write(content)
