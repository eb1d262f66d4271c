"""Why no server answered: gRPC says UNAVAILABLE of one that is absent, of one that it does not
trust and of one that does not trust us. So connect once more, and look at how that fails.
"""

from __future__ import annotations

import socket
import ssl

from scheduler.access.addresses import host_and_port
from scheduler.client.credentials import SYSTEM, Credentials
from scheduler.client.failover import addresses

_TIMEOUT_S = 2.0

_NONE = "it wants a certificate of the client: give --cert and --key (or MUSTER_CERT, MUSTER_KEY)"
_UNACCEPTED = "it does not accept {certificate}: signed by another CA than it trusts, or expired"

# By OpenSSL's number of a verification that failed.
_UNTRUSTED = {
    9: "is not valid yet: compare the clocks",
    10: "has expired",
    18: "is signed by itself, not by {ca}",
    19: "is not signed by {ca}",
    20: "is not signed by {ca}",
    21: "is not signed by {ca}",
    62: "is for another name",
    64: "is for another address",
}


def unreachable(address: str, who: Credentials) -> str:
    """A sentence on why nobody answers `who` at any server of `address`."""
    servers_by_reason: dict[str, list[str]] = {}
    for server in addresses(address):
        servers_by_reason.setdefault(_why(server, who), []).append(server)
    return "; ".join(
        f"no server answers at {','.join(servers)}{reason}"
        for reason, servers in servers_by_reason.items()
    )


def _why(server: str, who: Credentials) -> str:
    """Explain in brackets why no server answers at HOST:PORT."""
    host, port = host_and_port(server)
    if port is None:
        return ""
    try:
        opened = socket.create_connection((host, port), _TIMEOUT_S)
    except OSError as error:
        return f" ({(error.strerror or str(error)).lower()})"
    with opened:
        try:
            reason = _of_handshake(opened, host, who)
        except TimeoutError:
            reason = "it accepted the connection and sends nothing"
        except OSError:  # of files, too: they were read a moment ago
            reason = "it accepted the connection and closed it"
    return f": {reason}"


def _of_handshake(opened: socket.socket, host: str, who: Credentials) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    if not who.ca:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif who.ca == SYSTEM:
        context.load_default_certs()
    else:
        context.load_verify_locations(who.ca)
    if who.certificate:
        context.load_cert_chain(who.certificate, who.key)
    secured = _Secured(opened, context, host)
    try:
        secured.shake_hands()
    except ssl.SSLCertVerificationError as error:
        ca = "a CA that this machine trusts" if who.ca == SYSTEM else f"the CA in {who.ca}"
        text = _UNTRUSTED.get(error.verify_code, error.verify_message)
        return f"it shows a certificate that {text.format(ca=ca)}"
    except (ssl.SSLError, ConnectionError):
        if who.ca:
            return "it has no TLS there: leave out --ca (and MUSTER_CA)"
        return "it accepted the connection and closed it"
    if not who.ca:
        return "it accepts only TLS: say with --ca (or MUSTER_CA) who signed its certificate"
    if not secured.hears():  # with TLS 1.3, our certificate is looked at after all else
        return _UNACCEPTED.format(certificate=who.certificate) if who.certificate else _NONE
    return "it accepted the connection and is not ready yet"


class _Secured:
    """TLS over an open socket. SSLContext.wrap_socket leaves its socket open where the server
    resets the connection just then."""

    def __init__(self, opened: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._socket = opened
        self._read, self._write = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._read, self._write, server_hostname=host)

    def shake_hands(self) -> None:
        """Raises: SSLError, OSError."""
        while True:
            try:
                return self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._exchange()
            finally:
                self._socket.sendall(self._write.read())

    def hears(self) -> bool:
        """Whether the server says anything before it closes the connection; an alert is nothing.

        Raises: OSError.
        """
        while True:
            try:
                return bool(self._tls.read(1))
            except ssl.SSLWantReadError:
                self._exchange()
            except ssl.SSLError:
                return False

    def _exchange(self) -> None:
        self._socket.sendall(self._write.read())
        if content := self._socket.recv(1 << 14):
            self._read.write(content)
        else:
            self._read.write_eof()
