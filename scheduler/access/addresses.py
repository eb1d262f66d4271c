"""HOST:PORT: its two parts, and which hosts only this machine reaches."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

MOST_PORT = 65_535


class HostPort(NamedTuple):
    """A host and a port of an address. `host`: without the brackets of an IPv6 address. `port`:
    None if it is missing or invalid."""

    host: str
    port: int | None


def host_and_port(address: str) -> HostPort:
    """Split HOST:PORT, such as [::1]:7443, into its parts."""
    host, colon, port = address.rpartition(":")
    if not colon:
        return HostPort(address.strip("[]"), None)
    is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) <= MOST_PORT
    return HostPort(host.strip("[]"), int(port) if is_port else None)


def is_loopback(host: str) -> bool:
    """Whether `host`, a name or an address, is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
