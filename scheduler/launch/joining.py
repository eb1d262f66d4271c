"""Hosts join the fabric by themselves: those whose agents prove their names and say where they are.

Agents come by the hundred when racks are switched on, so hosts are gathered for a moment and join
in one change of the fabric.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from placement import BadInput
from scheduler.core import Rejected
from scheduler.core.model.commands import ChangeFabric
from scheduler.core.model.rejected import Code
from scheduler.core.names import NAME_RULE, is_name
from scheduler.engine.proposal import NotLeading, WriterStopped
from scheduler.engine.writer import Writer
from scheduler.eventlog.store import StoreError
from scheduler.files.fabrics.growth import with_host
from scheduler.identity import SERVER, Caller, Role, act_for
from scheduler.observe.supervision import Tasks
from scheduler.v1 import agent_pb2

_GATHER_S: Final = 0.3
_TRIES: Final = 20  # each is undone by somebody who changes the fabric meanwhile

log = logging.getLogger("muster.launch")


class HostJoins:
    """Lets hosts join the fabric that it does not have. `joined`: is called for each host that is
    in the fabric by now, with its Hello; `refused`: of one that is not, and why."""

    def __init__(
        self,
        writer: Writer,
        joined: Callable[[str, agent_pb2.Hello], None],
        refused: Callable[[str, str], None],
    ) -> None:
        self._writer = writer
        self._joined = joined
        self._refused = refused
        self._waiting: dict[str, agent_pb2.Hello] = {}
        self._tasks = Tasks(writer.instruments.beats)
        self._task: asyncio.Task[None] | None = None

    def offer(self, host: str, hello: agent_pb2.Hello) -> None:
        """Note a host that the fabric does not have; it joins soon."""
        self._waiting[host] = hello
        if self._task is None or self._task.done():
            self._task = self._tasks.start(self._run())

    async def _run(self) -> None:
        act_for(Caller(SERVER, Role.ADMIN))
        while self._waiting:
            await asyncio.sleep(_GATHER_S)
            hosts, self._waiting = self._waiting, {}
            try:
                refusals = await self._join({host: dict(h.place) for host, h in hosts.items()})
            except (NotLeading, WriterStopped, StoreError) as error:
                refusals = dict.fromkeys(hosts, f"cannot join now: {error}")
            except Exception:  # the agents of these hosts try again, and others join meanwhile
                log.exception("hosts cannot join")
                refusals = dict.fromkeys(hosts, "cannot join now: the server failed")
            for host, hello in hosts.items():
                if host in refusals:
                    log.warning("host %s does not join: %s", host, refusals[host])
                    self._refused(host, refusals[host])
                else:
                    self._joined(host, hello)

    async def _join(self, hosts: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        """Why some of the hosts did not join."""
        for _ in range(_TRIES):
            fabric = self._writer.state.built_fabric
            spec, refusals = await asyncio.to_thread(_grown, fabric.spec, fabric.hosts, hosts)
            if len(refusals) == len(hosts):
                return refusals
            answer = await self._writer.submit(ChangeFabric(spec, etag=fabric.digest))
            if not isinstance(answer, Rejected):
                names = ", ".join(host for host in hosts if host not in refusals)
                log.warning("joined the fabric: %s", names)
                return refusals
            if answer.code is not Code.STALE:
                return dict.fromkeys(hosts, answer.message)
        return dict.fromkeys(hosts, "the fabric keeps changing")


def _grown(
    spec: Mapping[str, Any], known: tuple[str, ...], hosts: Mapping[str, Mapping[str, str]]
) -> tuple[Mapping[str, Any], dict[str, str]]:
    """The fabric file with all hosts that have a place in it, and what is wrong with others."""
    refusals, there = dict[str, str](), {*known}
    tiers = {tier["name"] for tier in spec["tiers"]}
    for host, place in hosts.items():
        if host in there:
            continue
        domains = (name for key, name in place.items() if key.rpartition("/")[2] in tiers)
        if odd := next((name for name in (host, *domains) if not is_name(name)), None):
            refusals[host] = f"{odd!r} is not a name: {NAME_RULE}"
            continue
        try:
            spec = with_host(spec, host, place)
        except BadInput as error:
            refusals[host] = error.message
    return spec, refusals
