"""The client's side of access: whom it trusts, and how it says who it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from muster.structs import struct
from scheduler.access.addresses import host_and_port, is_loopback
from scheduler.files.errors import InputError, Problem

SYSTEM = "system"
_LONGEST = 16_384  # bytes of a token file; an ID token with many groups is long


@struct(frozen=True, slots=True)
class Credentials:
    """PEM files, and a token. `ca`: who signs the server's certificate, "system" for those
    that gRPC trusts by itself; given, the connection is TLS.

    With everything empty the connection is in the clear and the caller is nobody.
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""
    token: str = ""

    @staticmethod
    def from_environment() -> Credentials:
        """Read MUSTER_CA, MUSTER_CERT, MUSTER_KEY, MUSTER_TOKEN_FILE or else MUSTER_TOKEN. Raises:
        InputError."""
        variable = os.environ.get
        file = variable("MUSTER_TOKEN_FILE", "")
        token = read_token(file) if file else variable("MUSTER_TOKEN", "")
        return Credentials(
            variable("MUSTER_CA", ""),
            variable("MUSTER_CERT", ""),
            variable("MUSTER_KEY", ""),
            token,
        )

    def channel(self, address: str, options: Sequence[tuple[str, Any]]) -> grpc.Channel:
        """Open a channel. Raises: InputError for bad files, or a token that anybody could read."""
        if self.ca:
            opened = grpc.secure_channel(address, self.tls(), options=options)
        elif self.certificate or self.key:
            raise InputError(Problem("ca", "a client certificate takes TLS: give --ca as well"))
        elif self.token and not is_loopback(host_and_port(address).host):
            reason = f"a token is not sent to {address} in the clear: give --ca as well"
            raise InputError(Problem("token", reason))
        else:
            opened = grpc.insecure_channel(address, options=options)
        return grpc.intercept_channel(opened, _Bearer(self.token)) if self.token else opened

    def tls(self) -> grpc.ChannelCredentials:
        """Return what a channel over TLS needs. Raises: InputError for bad files."""
        if bool(self.certificate) != bool(self.key):
            raise InputError(Problem("cert", "a certificate and its key go together"))
        trusted = None if self.ca == SYSTEM else _pem(self.ca)
        if not self.certificate:
            return grpc.ssl_channel_credentials(trusted)
        shown = _pem(self.key), _pem(self.certificate)
        _check_pair(self.certificate, self.key)
        return grpc.ssl_channel_credentials(trusted, *shown)


def read_token(path: str) -> str:
    """Read a token from a file. Raises: InputError."""
    from scheduler.files.yaml12 import read_text

    token = read_text(path, _LONGEST).strip()
    if not token.isascii() or not token.isprintable() or not token:
        raise InputError(Problem("", "holds no token", path))
    return token


def _pem(path: str) -> bytes:
    from scheduler.files.yaml12 import read_text

    text = read_text(path)
    if "-----BEGIN" not in text:
        raise InputError(Problem("", "is no PEM file", path))
    return text.encode()


def _check_pair(certificate: str, key: str) -> None:
    """gRPC would only say that nobody answers. Raises: InputError."""
    import ssl

    try:
        # An encrypted key must not ask at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, key, lambda: "")
    except ssl.SSLError as error:
        reason = f"does not go with {key} ({error.reason or error})"
        raise InputError(Problem("", reason, certificate)) from None


class _Bearer(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Puts the token into every call."""

    def __init__(self, token: str) -> None:
        self._metadata = ("authorization", f"Bearer {token}")

    def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        return continuation(self._signed(client_call_details), request)

    intercept_unary_stream = intercept_unary_unary
    intercept_stream_stream: Any = intercept_unary_unary

    def _signed(self, details: Any) -> Any:
        return details._replace(metadata=(*(details.metadata or ()), self._metadata))
