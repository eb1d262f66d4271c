"""The server's side of TLS: certificates that can be replaced while connections go on.

gRPC asks for the certificate before every handshake, so that a new one serves the next
connection and leaves open connections alone.
"""

from __future__ import annotations

import logging
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc

from muster.structs import struct
from scheduler.access.reloading import Reloading
from scheduler.files.errors import InputError, Problem
from scheduler.files.yaml12 import read_text

_SOON = timedelta(days=30)

log = logging.getLogger("muster.access")


@struct(frozen=True, slots=True)
class TlsFiles:
    """PEM files. `client_ca` None: clients show no certificate."""

    certificate: str
    key: str
    client_ca: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.certificate, self.key, self.client_ca)))


def reloading(files: TlsFiles) -> Reloading[grpc.ServerCertificateConfiguration]:
    """Return the certificates, which follow changes of the files. Raises: InputError."""
    return Reloading(files.paths, lambda: _configuration(files))


def credentials(
    files: TlsFiles, certificates: Reloading[grpc.ServerCertificateConfiguration]
) -> grpc.ServerCredentials:
    """Return credentials of a port; callers need certificates when `client_ca` is given."""

    served = certificates.current()

    def newer() -> Any:
        """None when nothing has changed, which its type does not know."""
        nonlocal served
        certificates.look()
        if (newest := certificates.current()) is served:
            return None
        served = newest
        return newest

    return grpc.dynamic_ssl_server_credentials(
        served, newer, require_client_authentication=files.client_ca is not None
    )


def channel_credentials(files: TlsFiles | None) -> grpc.ChannelCredentials | None:
    """Return the credentials with which a server calls another one, whose certificate must be
    signed by `client_ca` or, without one, by a CA that the system trusts; None where nothing is
    encrypted."""
    if files is None:
        return None
    roots = read_text(files.client_ca).encode() if files.client_ca else None
    key, certificate = read_text(files.key).encode(), read_text(files.certificate).encode()
    return grpc.ssl_channel_credentials(roots, key, certificate)


def _configuration(files: TlsFiles) -> grpc.ServerCertificateConfiguration:
    certificate, key = read_text(files.certificate), read_text(files.key)
    roots = read_text(files.client_ca) if files.client_ca else None
    context(files)
    _warn_of_expiry(files.certificate)
    return grpc.ssl_server_certificate_configuration(
        [(key.encode(), certificate.encode())], roots.encode() if roots else None
    )


def _warn_of_expiry(certificate: str) -> None:
    """No client would say more than that it does not trust this server."""
    from scheduler.access.certificates import read_certificate

    read, now = read_certificate(Path(certificate)), datetime.now(UTC)
    if now >= read.expires:
        log.error("%s has expired at %s: no client trusts it", certificate, read.expires)
    elif now < read.begins:
        log.error("%s begins at %s: no client trusts it yet", certificate, read.begins)
    elif read.expires - now < _SOON:
        log.warning("%s expires at %s", certificate, read.expires)


def context(files: TlsFiles) -> ssl.SSLContext:
    """Load the TLS context of servers other than gRPC. Name the file at fault, where gRPC would
    only say that the handshake failed. Raises: InputError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # An encrypted key must not ask at the terminal.
        context.load_cert_chain(files.certificate, files.key, password=lambda: "")
    except ssl.SSLError as error:
        reason = f"does not go with {files.key}, or is no PEM file ({error.reason or error})"
        raise InputError(Problem("tls.certificate", reason, files.certificate)) from None
    if files.client_ca is None:
        return context
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(files.client_ca)
    except ssl.SSLError as error:
        reason = f"has no certificate in PEM form ({error.reason or error})"
        raise InputError(Problem("tls.client_ca", reason, files.client_ca)) from None
    return context
