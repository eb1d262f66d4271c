"""Burn-ins: has agents check idle hosts that are taken out for it, and reports what they measured.

Hosts without a gang that an operator has cordoned with the reason BURN_IN (`muster burn-in`), and
hosts in the state `burn_in` where the site names its checks, are checked together: each by itself,
then its network with two others in turn, of which the better counts. So a slow peer makes no host
slow.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from scheduler.core import State
from scheduler.core.model.commands import MoveHost, ReportHost
from scheduler.core.model.lifecycle import HostMove, HostState
from scheduler.core.model.records.host import measures_text
from scheduler.core.policies.health_signals import BUILT_IN_CHECKS, BURN_IN, MEASURED
from scheduler.launch.streams.sessions import AgentSessions
from scheduler.v1 import agent_pb2

NETWORK = "network"
MOST_UNFIT = 3  # hosts that fail while none passes, after which it is the checks that are wrong
_GATHER_S = 3.0  # without a new host, after which checks begin: peers are found among these
_STATES = (HostState.CORDONED, HostState.BURN_IN)
_BESIDES_S = 60.0  # that the built-in checks may take

Submit = Callable[[MoveHost | ReportHost], None]
log = logging.getLogger("muster.launch")


@dataclass
class CheckedHost:
    """A host that is checked while idle. `address`: where it receives what a peer sends. `is_busy`:
    ranks run there after all."""

    request_id: str
    measures: dict[str, float] = field(default_factory=dict)
    failure: str = ""
    address: str = ""
    is_busy: bool = False


class BurnIns:
    """Checks of idle hosts (burn-ins) that the agents carry out. `checks`: program and arguments by
    name, with empty arguments for checks that are built in; None: the site names none. `limit_s`:
    of each."""

    def __init__(
        self,
        sessions: AgentSessions,
        submit: Submit,
        checks: Mapping[str, tuple[str, ...]] | None,
        limit_s: float,
    ) -> None:
        self._sessions, self._submit = sessions, submit
        self._states = (HostState.CORDONED,) if checks is None else _STATES
        self._checks = dict.fromkeys(BUILT_IN_CHECKS, ()) if checks is None else checks
        self._limit_s = limit_s
        self._gathered: tuple[str, ...] = ()
        self._since_s = 0.0
        self._batch: dict[str, CheckedHost] = {}
        self._awaited: set[str] = set()
        self._rounds = 0  # of the check network that are over
        self._over: frozenset[str] = frozenset()  # hosts whose end the log has yet to say

    def forget(self) -> None:
        """Drop the checks that are under way, for another server may lead."""
        self._batch.clear()
        self._awaited.clear()
        self._gathered, self._over = (), frozenset()

    def tick(self, state: State, busy: Collection[str], now_s: float) -> None:
        """Begin checks on hosts that wait for one, and go on with those under way."""
        if self._batch:
            self._go_on(state, now_s)
            return
        waiting = self._hosts_to_check(state) & self._sessions.connected - set(busy)
        self._over &= waiting
        waiting -= self._over
        if (hosts := tuple(sorted(waiting))) != self._gathered:
            self._gathered, self._since_s = hosts, now_s
        elif hosts and now_s - self._since_s >= _GATHER_S:
            self._begin(state, hosts, now_s)

    def on_checked(self, host: str, word: agent_pb2.HostChecked) -> None:
        """Note the answer of a host."""
        checked = self._batch.get(host)
        if checked is None or host not in self._awaited or word.request_id != self._id_of(host):
            return
        self._awaited.discard(host)
        if self._rounds:
            for each in (host, self._peer(host)):
                known = self._batch[each].measures
                known[NETWORK] = max(known.get(NETWORK, 0.0), word.measures.get(NETWORK, 0.0))
            return  # a peer that is out of reach shows as 0 unless the other one reaches it
        checked.measures.update(word.measures)
        checked.failure, checked.address = word.failure, word.address
        checked.is_busy = word.is_busy

    def _begin(self, state: State, hosts: tuple[str, ...], now_s: float) -> None:
        self._since_s, self._gathered, self._rounds = now_s, (), 0
        self._batch = {host: CheckedHost(uuid.uuid4().hex) for host in hosts}
        self._awaited = set(hosts)
        fabric = state.loaded_fabric
        for host, checked in self._batch.items():
            gpus = int(fabric.by_host.gpus[fabric.index_by_name[host]])
            self._order(host, checked.request_id, tuple(self._checks), gpus=gpus)

    def _order(
        self, host: str, request_id: str, names: tuple[str, ...], *, gpus: int = 0, peer: str = ""
    ) -> None:
        order = agent_pb2.CheckHost(request_id=request_id, gpus=gpus, peer=peer)
        for name in names:
            check = order.checks.add(name=name, command=self._checks[name], is_of_site=True)
            check.limit.FromMilliseconds(round(self._limit_s * 1_000))
        self._sessions.send(host, agent_pb2.SessionResponse(check_host=order))

    def _go_on(self, state: State, now_s: float) -> None:
        """Take the next step once all have answered, or are too late or gone."""
        wanted, programs = self._hosts_to_check(state), sum(map(bool, self._checks.values()))
        self._awaited &= self._sessions.connected & wanted
        limit_s = _BESIDES_S + (0 if self._rounds else self._limit_s * programs)
        if self._awaited and now_s - self._since_s < limit_s:
            return
        for host in self._awaited if not self._rounds else ():
            self._batch[host].failure = f"its checks have taken longer than {limit_s:.0f} s"
        self._awaited.clear()
        self._since_s = now_s
        present = self._sessions.connected & wanted
        self._batch = {host: c for host, c in self._batch.items() if host in present}
        fit = self._fit
        if self._rounds < 2 and len(fit) > 1:
            self._rounds += 1
            for host in fit[self._rounds - 1 :: 2]:
                self._awaited.add(host)
                peer = self._batch[self._peer(host)]
                self._order(host, peer.request_id, (NETWORK,), peer=peer.address)
            return
        self._report(state)

    @property
    def _fit(self) -> list[str]:
        """Hosts that take part in the check network."""
        return [host for host, c in self._batch.items() if c.address and not c.failure]

    def _peer(self, host: str) -> str:
        fit = self._fit
        return fit[(fit.index(host) + 1) % len(fit)]

    def _id_of(self, host: str) -> str:
        return self._batch[self._peer(host) if self._rounds else host].request_id

    def _report(self, state: State) -> None:
        """Tell the log of each host, and return those that have passed to service."""
        failed = [host for host, checked in self._batch.items() if checked.failure]
        is_wrong = len(failed) > MOST_UNFIT and len(failed) == len(self._batch)
        for host, checked in self._batch.items():
            if checked.is_busy:
                continue  # it is checked once nothing runs there
            if measures := {name: v for name, v in checked.measures.items() if v > 0}:
                text = measures_text(sorted(measures.items()))
                self._submit(ReportHost(host, MEASURED, text))
            if checked.failure and not is_wrong:
                self._submit(ReportHost(host, "stress-test-failed", checked.failure))
                continue
            if checked.failure:
                log.error("all hosts have failed their burn-in; %s: %s", host, checked.failure)
            if state.host(state.loaded_fabric.index_by_name[host]).cordon == BURN_IN:
                self._submit(MoveHost(host, HostMove.UNCORDON))
            if not checked.failure:
                self._submit(ReportHost(host, "stress-test-passed"))
        self._over = frozenset(host for host, c in self._batch.items() if not c.is_busy)
        self._batch.clear()

    def _hosts_to_check(self, state: State) -> set[str]:
        """Return the hosts without a gang whose burn-in has begun."""
        return {
            state.loaded_fabric.hosts[index]
            for index, host in state.hosts.items()
            if host.state in self._states
            and (host.state is HostState.BURN_IN or host.cordon == BURN_IN)
            and not state.holders(index)
        }
