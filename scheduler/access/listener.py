"""The way in: address, certificates, who is asked, and the interceptor behind it.

Beyond loopback nobody is let in unasked or in the clear, unless that is what the
operator insists on.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from dataclasses import field

import grpc

from muster.structs import struct
from scheduler.access import tls
from scheduler.access.addresses import MOST_PORT, host_and_port, is_loopback
from scheduler.access.auth_interceptor import AuthInterceptor
from scheduler.access.authenticate import Authenticator, anybody
from scheduler.access.options import CallLimits
from scheduler.access.tenant_filter import TenantFilter
from scheduler.access.tls import TlsFiles
from scheduler.core import State

_METADATA_BYTES = 32_768  # an ID token with many groups is longer than gRPC's own 8 KiB

log = logging.getLogger("muster.access")


class CannotListen(Exception):
    """The address is taken, is none, or would be open to callers whom nobody checks."""


@struct(frozen=True, slots=True)
class Access:
    """Who may connect, and how they identify themselves. `auth_file` None: nobody is asked who they
    are.

    `is_insecure`: serve beyond loopback without TLS or without asking.
    """

    tls: TlsFiles | None = None
    auth_file: str | None = None
    limits: CallLimits = field(default_factory=CallLimits)
    is_insecure: bool = False


class Listener:
    """Checks and encryption for the callers of one server. `auth` None: nobody is asked.

    Raises: InputError for files that will not do."""

    def __init__(
        self, access: Access, state: Callable[[], State | None], clock: Callable[[], int]
    ) -> None:
        self._access = access
        self._certificates = tls.reloading(access.tls) if access.tls else None
        self.auth = Authenticator(access.auth_file, clock) if access.auth_file else None
        identify = self.auth.identify if self.auth else anybody
        self.interceptor = AuthInterceptor(
            TenantFilter(state), access.limits, time.monotonic, identify
        )

    @property
    def options(self) -> tuple[tuple[str, int], ...]:
        """Limits of gRPC itself."""
        return (
            ("grpc.max_receive_message_length", self._access.limits.message_bytes),
            ("grpc.max_metadata_size", _METADATA_BYTES),
        )

    def open(self, server: grpc.aio.Server, listen: str) -> str:
        """Listen at the address, and return the one that was taken. Raises: CannotListen."""
        host, port = host_and_port(listen)
        if port is None:  # gRPC would take a larger one modulo 65,536
            raise CannotListen(
                f"cannot listen on {listen!r}: give HOST:PORT, a port up to {MOST_PORT}"
            )
        check_exposure(host, listen, "anybody may do anything", self._access)
        if self.auth is not None:
            self.auth.begin()
        try:
            _check_free(host, port)
            bound = self._take(server, listen)
        except (OSError, RuntimeError):
            raise CannotListen(f"cannot listen on {listen}: is another server there?") from None
        return f"{listen.rpartition(':')[0]}:{bound}"

    def _take(self, server: grpc.aio.Server, address: str) -> int:
        if self._access.tls and self._certificates:
            shown = tls.credentials(self._access.tls, self._certificates)
            return server.add_secure_port(address, shown)
        return server.add_insecure_port(address)

    def look(self) -> None:
        """Read changed certificates, tokens and roles now."""
        for files in (self._certificates, self.auth):
            if files is not None:
                files.look()


def _check_free(host: str, port: int) -> None:
    """Raises: OSError. Of a name with several addresses gRPC would be content with one."""
    for family, kind, _, _, address in socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM
    ):
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)


def check_exposure(host: str, where: str, unasked: str, access: Access) -> None:
    """Refuse to listen where others than this machine's users could call unidentified or be
    overheard, unless the operator insists on it. `unasked`: what they could do. Raises:
    CannotListen."""
    lacks = [f"{unasked} (give it an auth file)"] if access.auth_file is None else []
    lacks += ["no encryption (give it a tls section)"] if access.tls is None else []
    if is_loopback(host) or not lacks:
        return
    lacking = " and ".join(lacks)
    if not access.is_insecure:
        raise CannotListen(
            f"not listening on {where}, beyond this machine: {lacking};"
            " --insecure serves all the same"
        )
    log.warning("insecure on %s, beyond this machine: %s", where, lacking)
