"""Hosts that Slurm does not grant: why, and when they are asked for again.

A refusal says nothing of the health of a host. Slurm grants all hosts of an allocation or none and
names the culprit seldom, so those of a refused allocation are asked for again in halves, until each
is granted or has been refused alone. That also finds how many hosts a limit of nodes permits. What
is refused for want of licenses is refused for one host as for many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

_FIRST_WAIT_S, _MOST_WAIT_S = 10.0, 300.0
_OF_ANY_HOST = ("Licenses",)  # reasons that say nothing of hosts


@dataclass(slots=True)
class HostRefusal:
    """Refusal of a host by Slurm. `most`: hosts of the next allocation that is asked for with this
    one, 0 for any number. `reason`: "" until the host was refused alone. `again_s`: when it may be
    asked for again."""

    most: int = 0
    reason: str = ""
    again_s: float = 0.0
    wait_s: float = _FIRST_WAIT_S


class Refusals:
    """Hosts that Slurm did not grant. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._by_host: dict[str, HostRefusal] = {}

    def reason(self, host: str) -> str:
        """Return why the host is not granted, "" where it was not refused."""
        refusal = self._by_host.get(host)
        return refusal.reason if refusal else ""

    def split(self, hosts: Sequence[str], now_s: float) -> Iterator[list[str]]:
        """Yield the allocations to ask for now, of hosts whose wait after a refusal is over: the
        more often hosts were refused together, the smaller."""
        due = [(self._by_host.get(host, HostRefusal()), host) for host in hosts]
        due = [(refusal, host) for refusal, host in due if now_s >= refusal.again_s]
        for most, group in groupby(due, key=lambda pair: pair[0].most):
            names = [host for _, host in group]
            size = most or len(names)
            yield from (names[at : at + size] for at in range(0, len(names), size))

    def add(self, hosts: Sequence[str], reason: str, now_s: float) -> bool:
        """Record that these were refused together. Return whether a host has a new reason."""
        refusals = [self._by_host.setdefault(host, HostRefusal()) for host in hosts]
        if len(hosts) > 1 and reason not in _OF_ANY_HOST:
            for refusal in refusals:
                refusal.most = (len(hosts) + 1) // 2
            return False
        is_new = any(refusal.reason != reason for refusal in refusals)
        for refusal in refusals:
            refusal.reason, refusal.most = reason, 0
            refusal.again_s = now_s + refusal.wait_s
            refusal.wait_s = min(_MOST_WAIT_S, refusal.wait_s * 2)
        return is_new

    def remove(self, hosts: Sequence[str]) -> None:
        """Forget refusals of hosts that were granted."""
        for host in hosts:
            self._by_host.pop(host, None)

    def release(self, wanted: set[str], now_s: float) -> None:
        """Let gangs try hosts again that nobody has asked for since they were refused."""
        for host, refusal in self._by_host.items():
            if host not in wanted and now_s >= refusal.again_s:
                refusal.reason, refusal.most = "", 0
