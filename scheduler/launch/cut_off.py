"""Whether silent hosts have failed, or this server is cut off from them.

Hosts fail one at a time, or a rack at a time; when many stop sending messages together, it is more
likely that the server, or the network to it, is to blame. The gangs there run on, and nobody is
helped by starting them anew. Source: the node lifecycle controller of Kubernetes, which evicts
nothing in full disruption.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection
from typing import Final

from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from scheduler.core import State
from scheduler.core.model.commands import ReportHost
from scheduler.core.model.lifecycle import JobState
from scheduler.core.policies.health_signals import AGENT_LOST, POWER_LOST
from scheduler.observe.supervision import Heartbeats

ALL_SHARE: Final = 1 / 4  # of all agents, silent together
DOMAIN_SHARE: Final = 1 / 2  # of the agents of an outermost domain
FEW: Final = 2  # hosts may fail together in a cluster of any size, unless there are no others
CUT_OFF, REACHED = "agents-cut-off", "agents-reached"  # of domains

log = logging.getLogger("muster.launch")


class CutOffHosts:
    """Hosts that are silent because the server is cut off from them, each with its outermost
    domain."""

    def __init__(self) -> None:
        self._domains_by_host: dict[str, str] = {}
        self._counts: dict[str, int] = {}  # by domain
        self._launched: HostSet = 0  # hosts of gangs that ran when agents were silent last
        self._with_gangs: set[str] = set()  # domains of those that are cut off
        self._judged_s = 0.0

    def __contains__(self, host: str) -> bool:
        return host in self._domains_by_host

    @property
    def hosts(self) -> set[str]:
        return set(self._domains_by_host)

    def judge(
        self, state: State, silent: Collection[str], connected: Collection[str], now_s: float
    ) -> list[ReportHost]:
        """Judge whether silent hosts, and those that were cut off, have failed, or the server is
        cut off from them; return what the log is to learn of domains."""
        self._judged_s, fabric = now_s, state.loaded_fabric
        known = fabric.index_by_name
        quiet = {host for host in silent if host in known} | self._domains_by_host.keys()
        agents = quiet.union(host for host in connected if host in known)
        self._launched = 0
        for job in state.in_state(JobState.RUNNING):
            self._launched |= job.allocation if job.present.launched_ns is not None else 0
        before = self._counts
        self._counts = cut_domains(quiet, agents, lambda host: _domain_of(fabric, host))
        by_host = {host: _domain_of(fabric, host) for host in quiet}
        self._domains_by_host = {
            h: domain for h, domain in by_host.items() if domain in self._counts
        }
        self._with_gangs = {
            domain
            for host, domain in self._domains_by_host.items()
            if hostset.has(self._launched, known[host])
        }
        reports = []
        for domain, count in self._counts.items():
            if domain not in before:
                named = domain if fabric.tiers else "HOST"  # one switch is no domain
                words = f"{count:,} hosts silent; {_consequence(domain in self._with_gangs, named)}"
                reports.append(ReportHost(domain, CUT_OFF, words))
                log.error("control plane cut off from %s: %s", domain, words)
        return reports + [ReportHost(domain, REACHED) for domain in before.keys() - self._counts]

    def note_reached(self, host: str, now_s: float) -> ReportHost | None:
        """Note that a host has its agent again; its domain is reached once all of its hosts are."""
        if host not in self:
            return None
        self._judged_s = now_s
        domain = self._drop(host)
        return None if domain in self._counts else ReportHost(domain, REACHED)

    def drop_down(self, state: State) -> bool:
        """Drop hosts that an operator has said are down, and idle hosts of the same domain; return
        whether there were any."""
        fabric = state.loaded_fabric
        records = {h: state.host(fabric.index_by_name[h]) for h in self._domains_by_host}
        down = {h: record for h, record in records.items() if record.is_down}
        said = {self._domains_by_host[h] for h, it in down.items() if it.signal != AGENT_LOST}
        dropped = [host for host in down if self._domains_by_host[host] in said]
        for host in dropped:
            self._drop(host)
        return bool(dropped)

    def _drop(self, host: str) -> str:
        """Return the domain of the host, which is counted no longer once no other one is left."""
        domain = self._domains_by_host.pop(host)
        self._counts[domain] -= 1
        if not self._counts[domain]:
            del self._counts[domain]
        return domain

    def is_due(self, now_s: float, lease_s: float) -> bool:
        """Whether hosts are still silent a lease after most others have come back."""
        return bool(self._domains_by_host) and now_s - self._judged_s > lease_s

    def has_gang(self, state: State, host: str) -> bool:
        """Return whether a gang runs on this host that the server is cut off from, as far as is
        known."""
        index = state.loaded_fabric.index_by_name[host]
        return host in self and hostset.has(self._launched, index)

    def forget(self) -> None:
        """Forget the hosts that count as cut off."""
        self._domains_by_host, self._counts = {}, {}

    def show(self, beats: Heartbeats) -> None:
        """Show cut-off hosts in health and metrics."""
        beats.cut_off.clear()
        beats.cut_off.update({(domain,): n for domain, n in self._counts.items()})
        silent = [f"{domain}: {n:,} hosts silent" for domain, n in self._counts.items()]
        words = f"control plane cut off from {'; '.join(silent)}"
        hint = _consequence(not self._with_gangs.isdisjoint(self._counts), "DOMAIN")
        beats.tell("agents", f"{words}; {hint}" if silent else "")


def _consequence(has_gangs: bool, named: str) -> str:
    """Say what becomes of the hosts: idle ones are out already, so no report is of use."""
    if not has_gangs:
        return "no gang runs there; idle hosts are out until their agents answer"
    return (
        f"gangs there are left alone; if they are down: muster report {named} --signal {POWER_LOST}"
    )


def _domain_of(fabric: Fabric, host: str) -> str:
    """Return the outermost domain of a host; in a fabric of one switch its first host."""
    if not fabric.tiers:
        return fabric.hosts[0]
    return fabric.tiers[0].domains[fabric.zone_of(fabric.index_by_name[host])]


def cut_domains(
    silent: Collection[str], agents: Collection[str], domain_of: Callable[[str], str]
) -> dict[str, int]:
    """Return how many hosts are silent in each outermost domain that the server is held to be cut
    off from. `agents`: hosts that have one, the silent ones included."""
    quiet, there = Counter(map(domain_of, silent)), Counter(map(domain_of, agents))
    if _is_many(len(silent), len(agents), ALL_SHARE):
        return dict(quiet)
    return {d: count for d, count in quiet.items() if _is_many(count, there[d], DOMAIN_SHARE)}


def _is_many(silent: int, agents: int, share: float) -> bool:
    return silent > 1 and (silent == agents or silent > max(FEW, agents * share))
