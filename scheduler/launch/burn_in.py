"""Burn-ins: has agents check idle hosts that are taken out for it, and reports what they measured.

Hosts without a gang that an operator has cordoned with the reason BURN_IN (`muster burn-in`), and
hosts in the state `burn_in` where the site names its checks, are checked together: each by itself,
then its network with two others in turn, of which the better counts. So a slow peer makes no host
slow.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence, Set
from typing import Any

from scheduler.core.model.commands import MoveHost, ReportHost
from scheduler.core.model.lifecycle import HostMove, HostState
from scheduler.core.model.records.host import measures_text
from scheduler.core.policies.health_signals import BUILT_IN_CHECKS, BURN_IN, MEASURED
from scheduler.engine.writer import Writer
from scheduler.launch.streams.sessions import AgentSessions
from scheduler.v1 import agent_pb2

NETWORK = "network"
MOST_UNFIT = 3  # hosts that fail while none passes, after which it is the checks that are wrong
_GATHER_S = 2.0  # without a new host, after which checks begin: peers are found among these
_LOOK_S = 1.0
_STATES = (HostState.CORDONED, HostState.BURN_IN)
_BESIDES_S = 60.0  # that the built-in checks may take

Write = Callable[[MoveHost | ReportHost], Coroutine[Any, Any, None]]
log = logging.getLogger("muster.launch")


class BurnIns:
    """Checks of idle hosts (burn-ins) that the agents carry out. `busy`: returns hosts on which
    something runs, or should. `write`: has the log learn something. `checks`: program and arguments
    by name, with empty arguments for checks that are built in; None: the site names none.
    `limit_s`: of each."""

    def __init__(
        self,
        writer: Writer,
        sessions: AgentSessions,
        busy: Callable[[], Set[str]],
        write: Write,
        checks: Mapping[str, tuple[str, ...]] | None,
        limit_s: float,
    ) -> None:
        self._writer, self._sessions, self._busy, self._write = writer, sessions, busy, write
        self._states = (HostState.CORDONED,) if checks is None else _STATES
        self._checks = dict.fromkeys(BUILT_IN_CHECKS, ()) if checks is None else checks
        self._limit_s = limit_s
        self._asked: dict[tuple[str, str], asyncio.Future[agent_pb2.HostChecked]] = {}

    async def run(self) -> None:
        """Check hosts that wait for it, until cancelled: another server may lead then."""
        before = set[str]()
        while True:
            waiting = self._present() - self._busy()
            if waiting and waiting == before:
                await self._check(sorted(waiting))
                waiting.clear()
            before = waiting
            await asyncio.sleep(_GATHER_S)

    def on_checked(self, host: str, word: agent_pb2.HostChecked) -> None:
        """Note the answer of a host."""
        future = self._asked.pop((host, word.request_id), None)
        if future is not None and not future.done():
            future.set_result(word)

    async def _check(self, hosts: Sequence[str]) -> None:
        """Check hosts, each by itself and then its network, and report what has come of it."""
        fabric, orders = self._writer.state.loaded_fabric, dict[str, agent_pb2.CheckHost]()
        for host in hosts:
            gpus = int(fabric.by_host.gpus[fabric.index_by_name[host]])
            orders[host] = self._order(uuid.uuid4().hex, tuple(self._checks), gpus=gpus)
        programs = sum(map(bool, self._checks.values()))
        checked = await self._ask(orders, _BESIDES_S + self._limit_s * programs)
        for turn in (0, 1):
            present = self._present()
            checked = {host: word for host, word in checked.items() if host in present}
            fit = [host for host, word in checked.items() if word.address and not word.failure]
            if len(fit) < 2:
                break
            peers = {h: fit[(n + 1) % len(fit)] for n, h in enumerate(fit) if n % 2 == turn}
            sends = {
                host: self._order(orders[peer].request_id, (NETWORK,), peer=checked[peer].address)
                for host, peer in peers.items()
            }
            for host, word in (await self._ask(sends, _BESIDES_S)).items():
                for each in (host, peers[host]):
                    known = checked[each].measures
                    known[NETWORK] = max(known[NETWORK], word.measures[NETWORK])
        await self._report(checked)

    def _order(
        self, request_id: str, names: tuple[str, ...], *, gpus: int = 0, peer: str = ""
    ) -> agent_pb2.CheckHost:
        order = agent_pb2.CheckHost(request_id=request_id, gpus=gpus, peer=peer)
        for name in names:
            check = order.checks.add(name=name, command=self._checks[name], is_of_site=True)
            check.limit.FromMilliseconds(round(self._limit_s * 1_000))
        return order

    async def _ask(
        self, orders: Mapping[str, agent_pb2.CheckHost], limit_s: float
    ) -> dict[str, agent_pb2.HostChecked]:
        """Return the answers of hosts: a failure of one that is late, none of one that has gone or
        that somebody has taken back."""
        loop = asyncio.get_running_loop()
        answers = {host: loop.create_future() for host in orders}
        self._asked = {(host, orders[host].request_id): answers[host] for host in orders}
        for host, order in orders.items():
            self._sessions.send(host, agent_pb2.SessionResponse(check_host=order))
        until_s = loop.time() + limit_s
        while loop.time() < until_s:
            present = self._present()
            if not (awaited := [a for h, a in answers.items() if h in present and not a.done()]):
                break
            await asyncio.wait(awaited, timeout=_LOOK_S)
        late, present = f"its checks have taken longer than {limit_s:.0f} s", self._present()
        return {
            host: answer.result() if answer.done() else agent_pb2.HostChecked(failure=late)
            for host, answer in answers.items()
            if host in present
        }

    async def _report(self, checked: Mapping[str, agent_pb2.HostChecked]) -> None:
        """Tell the log of each host."""
        failed = [host for host, word in checked.items() if word.failure]
        is_wrong = len(failed) > MOST_UNFIT and len(failed) == len(checked)
        for host, word in checked.items():
            if word.is_busy:
                continue  # it is checked once nothing runs there
            if measures := {name: v for name, v in word.measures.items() if v > 0}:
                text = measures_text(sorted(measures.items()))
                await self._write(ReportHost(host, MEASURED, text))
            if word.failure and not is_wrong:
                await self._write(ReportHost(host, "stress-test-failed", word.failure))
                continue
            if word.failure:
                log.error("all hosts have failed their burn-in; %s: %s", host, word.failure)
            state = self._writer.state
            if state.host(state.loaded_fabric.index_by_name[host]).cordon == BURN_IN:
                await self._write(MoveHost(host, HostMove.UNCORDON))
            if not word.failure:
                await self._write(ReportHost(host, "stress-test-passed"))

    def _present(self) -> set[str]:
        """Return the hosts without a gang whose burn-in has begun, and whose agents are there."""
        state = self._writer.state
        return self._sessions.connected & {
            state.loaded_fabric.hosts[index]
            for index, host in state.hosts.items()
            if host.state in self._states
            and (host.state is HostState.BURN_IN or host.cordon == BURN_IN)
            and not state.holders(index)
        }
