"""Agents on the nodes of a Slurm cluster: `muster serve --launcher slurm`.

muster holds its hosts by allocations of exactly their names, without a batch host, and has one step
of agents in each; to start a gang, to restart it or to put a spare in is then a message to agents
that are there already, and no work for Slurm. `whole`: one allocation of all hosts of the fabric
that Slurm has idle. `gang`: one for the hosts and spares of each gang, given back when it has left.

Where a step may not stand for as long as the allocation, `step: attempt` starts one for each
attempt of a gang, of agents that leave with it.

What should be is compared with what Slurm says, again and again (`reconcile`), and the difference
is asked for; so a server that starts again, or a slurmctld that does, changes nothing. A host more
is one allocation more beside the first, which no site has to permit, unlike `expand`. Allocations
of this name that nothing accounts for are cancelled.

What Slurm says of its nodes is written to the log: drained, down, or held by a job of somebody
else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from placement.fabric import hostlist
from scheduler.access.addresses import host_and_port, is_loopback
from scheduler.access.tokens import join_token
from scheduler.core import Rejected, State
from scheduler.core.model.commands import MoveHost, ReportHost
from scheduler.core.model.lifecycle import HostState, JobState
from scheduler.engine.proposal import NotLeading, WriterStopped
from scheduler.engine.writer import Writer
from scheduler.eventlog.store import NotWritten, StoreError
from scheduler.files.health.found import SLURM, NodeState
from scheduler.identity import SERVER, Caller, Role, act_for
from scheduler.launch.keys import HoldingScope, SlurmKeys, StepScope
from scheduler.launch.launcher import AGENT_LOST
from scheduler.launch.node_reports import report_of
from scheduler.launch.sessions import AgentSessions
from scheduler.launch.slurm_commands import (
    SlurmCommands,
    SlurmFailed,
    SlurmJob,
    agent_step,
    own_name,
)
from scheduler.launch.substrate import AgentFolder
from scheduler.observe.supervision import Heartbeats, Tasks

WHOLE = "hosts"  # the group of an allocation of the whole fabric
_NODES_EVERY_S = 5.0
_JOBS_EVERY_S = 1.0
_LOOK_S = 0.1
_ABSENT = "it has no such node, or hides it from this user"
_START_S = 20.0  # for which an agent may take to come in, before it is started again
_MOST_START_S = 120.0
_ENVIRONMENT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "PYTHONPATH", "SLURM_CONF", "MUSTER_CA")

log = logging.getLogger("muster.slurm")


@dataclass(slots=True)
class Starting:
    """An agent that has been started, `until_s` by when it should have come in."""

    until_s: float
    wait_s: float


class StepAttempt(NamedTuple):
    """An attempt that is to have steps of its own."""

    uid: str
    attempt: int
    name: str
    hosts: tuple[str, ...]


class SlurmAgents:
    """`folder`: of the server, for its secret and the output of steps. `secret`: of join tokens,
    "" for one of the folder. `commands`: those of Slurm. `clock`: seconds."""

    def __init__(
        self,
        keys: SlurmKeys,
        folder: Path,
        secret: str = "",
        commands: SlurmCommands | None = None,
        clock: Callable[[], float] = time.monotonic,
        beats: Heartbeats | None = None,
    ) -> None:
        self._keys = keys
        self._commands = commands or SlurmCommands(keys.allocation_options)
        self._clock = clock
        self._folder = AgentFolder(folder)
        self.secrets: tuple[str, ...] = (secret or self._folder.secret(),)
        self._nodes: dict[str, tuple[NodeState | None, str]] = {}
        self._gpus: dict[str, int] = {}  # of hosts that have some for Slurm
        self._nodes_s = self._jobs_s = float("-inf")
        self._starting: dict[str, Starting] = {}
        self._awaited: dict[
            str, float
        ] = {}  # wanted hosts, and until when they may be on their way
        self._known: set[str] = set()  # job ids of allocations that have been looked at
        self._granted: set[frozenset[str]] = set()  # hosts of new ones, which have no agents yet
        self._down: set[str] = set()  # hosts that Slurm has been told are down
        self._tasks = Tasks(beats or Heartbeats())
        self._busy: Callable[[], Set[str]] = frozenset
        self._before: tuple[dict[str, tuple[str, ...]], list[StepAttempt]] = ({}, [])
        # By attempt and allocation: until when agents of an earlier server may come in by
        # themselves; 0.0: it has had its step. None: it does not lead.
        self._stepped: dict[tuple[str, int, str], float] | None = None
        self._fault = ""
        self._writer: Writer
        self._sessions: AgentSessions

    def address(self, wanted: str) -> str:
        return self._folder.address(wanted)

    def start(self, writer: Writer, sessions: AgentSessions, busy: Callable[[], Set[str]]) -> None:
        self._writer, self._sessions, self._busy = writer, sessions, busy
        self._folder.keep_address(sessions.address)
        self._tasks.keep("slurm", self._keep)

    def starting(self) -> Set[str]:
        """Hosts that have been wanted for no longer than an agent takes to come in."""
        now_s = self._clock()
        return {host for host, until_s in self._awaited.items() if now_s < until_s}

    def is_dismissed(self, host: str) -> bool:
        return host not in self._agent_hosts(self._writer.state)

    async def close(self) -> None:
        """Gangs run on, for the next server: their allocations stay."""
        await self._tasks.close()

    async def _keep(self) -> None:
        act_for(Caller(SERVER, Role.ADMIN))
        while True:
            if self._writer.term is None:
                self._known.clear()
                self._granted.clear()
                self._awaited.clear()
                self._stepped = None
            else:
                try:
                    await self._look()
                    self._fault = ""
                except SlurmFailed as error:
                    if str(error) != self._fault:
                        log.warning("%s", error)
                    self._fault = str(error)
                    await asyncio.sleep(_JOBS_EVERY_S)
            await asyncio.sleep(_LOOK_S)

    async def _look(self) -> None:
        """What is due now, or made necessary by a change of the gangs."""
        now_s = self._clock()
        state = self._writer.state
        wanted, attempts = self.wanted(state), self.attempts(state)
        if (wanted, attempts) == self._before and now_s - self._jobs_s < _JOBS_EVERY_S:
            return
        self._before, self._jobs_s = (wanted, attempts), now_s
        jobs = await self._commands.jobs()
        if now_s - self._nodes_s >= _NODES_EVERY_S:
            self._nodes_s = now_s
            nodes, self._gpus = await self._commands.nodes()
            self._nodes = {node.host: (node.standing, node.detail) for node in nodes}
            await self._tell(jobs)
        await self.reconcile(wanted, jobs, self._agent_hosts(state), attempts)
        if self._keys.set_down:
            await self._set_down()

    # --- allocations ------------------------------------------------------------------------

    def wanted(self, state: State) -> dict[str, tuple[str, ...]]:
        """Which group of hosts should be held, by its name. A host whose agent was lost is back
        when an agent comes in from there, so it is to have one."""
        if self._keys.holding is HoldingScope.WHOLE:
            return {WHOLE: tuple(state.loaded_fabric.hosts)}
        fabric = state.loaded_fabric
        gangs = {
            job.uid: (*fabric.names(job.hosts), *fabric.names(job.spares))
            for job in state.holding
            if job.spec.run is not None
        }
        return gangs | {f"lost-{host}": (host,) for host in sorted(_lost_hosts(state))}

    def attempts(self, state: State) -> list[StepAttempt]:
        """Attempts that are to have steps of their own; jobs on parts of hosts have none."""
        if self._keys.step is StepScope.ALLOCATION:
            return []
        names = state.loaded_fabric.names
        return [
            StepAttempt(job.uid, job.attempt, job.name, names(job.hosts))
            for job in state.holding
            if job.spec.run is not None and job.state is JobState.RUNNING and not job.part_gpus
        ]

    def _agent_hosts(self, state: State) -> Set[str]:
        """Hosts that are to have an agent."""
        if self._keys.step is StepScope.ALLOCATION:
            return {host for hosts in self.wanted(state).values() for host in hosts}
        names = state.loaded_fabric.hosts
        shared = {names[host] for host in state.shared}  # one agent for all that share it
        return shared.union(_lost_hosts(state), *(each.hosts for each in self.attempts(state)))

    def _ours(self, jobs: Iterable[SlurmJob]) -> dict[str, list[SlurmJob]]:
        """Own allocations by their group."""
        user, mark = own_name(), f"{self._keys.name}:"
        ours: dict[str, list[SlurmJob]] = {}
        for job in jobs:
            if job.user == user and job.name.startswith(mark):
                ours.setdefault(job.name.removeprefix(mark), []).append(job)
        return ours

    async def reconcile(
        self,
        wanted: Mapping[str, Sequence[str]],
        jobs: Sequence[SlurmJob],
        with_agent: Set[str],
        attempts: Sequence[StepAttempt] = (),
    ) -> None:
        """Ask for what is missing, give back what is not wanted. `with_agent`: hosts that are to
        have one; `attempts`: those of them that begin with a step of their own. Raises:
        SlurmFailed."""
        ours = self._ours(jobs)
        busy = self._busy()
        self._await_agents(with_agent)
        of_attempts = {host for each in attempts for host in each.hosts}
        is_first, self._stepped = self._stepped is None, self._stepped or {}
        for group, held in ours.items():
            needed = set(wanted.get(group, ()))
            for job in held:
                if needed.isdisjoint(job.hosts) and busy.isdisjoint(job.hosts):
                    log.warning("cancelling %s: nothing runs on %s", job.name, job.hosts)
                    await self._commands.cancel(job.job_id)
                elif job.is_running:
                    kept = with_agent - of_attempts
                    self._keep_agents(job, [host for host in job.hosts if host in kept])
                    for attempt in attempts:
                        self._step_attempt(job, attempt, is_first)
        await self._allocate(wanted, {host for job in jobs for host in job.hosts})

    async def _allocate(self, wanted: Mapping[str, Sequence[str]], taken: set[str]) -> None:
        """All that is missing, at once: one that is not granted keeps no other waiting.
        Raises: SlurmFailed."""
        missing: dict[str, list[str]] = {}
        for group, hosts in wanted.items():
            if absent := [h for h in hosts if h not in taken and self._is_up(h)]:
                missing[group] = absent
                taken.update(absent)
        if not missing:
            return
        name = self._keys.name
        calls = (self._commands.allocate(f"{name}:{g}", hosts) for g, hosts in missing.items())
        done = await asyncio.gather(*calls, return_exceptions=True)
        self._jobs_s = float("-inf")
        for hosts, error in zip(missing.values(), done, strict=True):
            if error is None:
                self._granted.add(frozenset(hosts))
        for error in done:
            if error is not None:
                raise error

    def _await_agents(self, wanted: Set[str]) -> None:
        """Each that is newly wanted is awaited until its agent has come in."""
        until_s, connected = self._clock() + _START_S, self._sessions.connected
        before = self._awaited
        self._awaited = {
            host: 0.0 if host in connected else before.get(host, until_s) for host in wanted
        }
        for host in self._starting.keys() - wanted:
            del self._starting[host]

    def _is_up(self, host: str) -> bool:
        return self._nodes.get(host, (None, ""))[0] is NodeState.UP

    # --- steps of agents ----------------------------------------------------------------------

    def _keep_agents(self, job: SlurmJob, hosts: Sequence[str]) -> None:
        """Have an agent on each of these. All of a new allocation are one step; one that is missing
        later is a step of its own, so that no dead host keeps the others waiting."""
        now_s = self._clock()
        for host in self._sessions.connected.intersection(hosts):
            self._starting.pop(host, None)
        missing = [host for host in hosts if host not in self._sessions.connected]
        if job.job_id not in self._known:
            self._known.add(job.job_id)
            if frozenset(job.hosts) in self._granted:
                self._granted.discard(frozenset(job.hosts))
                self._start_step(job, missing)
                return
            for host in missing:  # agents of an earlier server come in by themselves
                self._starting[host] = Starting(now_s + _START_S / 4, _START_S)
            return
        late = [host for host in missing if self._is_late(host, now_s)]
        if new := [host for host in late if self._is_first_wait(host)]:
            log.warning("%s", self._late_agents(new))
        for host in late:
            self._start_step(job, [host])

    def _is_late(self, host: str, now_s: float) -> bool:
        starting = self._starting.get(host)
        return (starting is None or now_s >= starting.until_s) and self._is_up(host)

    def _is_first_wait(self, host: str) -> bool:
        """Whether it has been started once, and its agent has not come in since."""
        starting = self._starting.get(host)
        return starting is not None and starting.wait_s == _START_S

    def _late_agents(self, hosts: Sequence[str]) -> str:
        """What an operator can look at where agents do not come in."""
        shown, server = hostlist.fold(hosts), self._server()
        text = f"no agent has come in from {shown}: it is started again; what agents and srun say"
        text += f" is in {self._folder.path / 'steps.log'}; they look for this server at {server}"
        if is_loopback(host_and_port(server).host):
            text += ", which other machines do not reach: set agents.listen and slurm.server"
        return text

    def _step_attempt(self, job: SlurmJob, attempt: StepAttempt, is_found: bool) -> None:
        """Have the attempt begin with a step on its hosts of this allocation. `is_found`: an
        earlier server has seen to that, unless agents that should come in do not."""
        assert self._stepped is not None
        key = (attempt.uid, attempt.attempt, job.job_id)
        hosts = [host for host in attempt.hosts if host in job.hosts]
        now_s = self._clock()
        if is_found:
            self._stepped[key] = now_s + _START_S / 4
            return
        until_s = self._stepped.get(key)
        if until_s is not None and (until_s == 0.0 or now_s < until_s):
            return
        if until_s is not None:
            hosts = [host for host in hosts if host not in self._sessions.connected]
        self._stepped[key] = 0.0
        for host in hosts:
            self._starting.pop(host, None)
            self._awaited[host] = now_s + _START_S
        self._start_step(job, hosts, f"{attempt.name}.{attempt.attempt}")

    def _start_step(self, job: SlurmJob, hosts: Sequence[str], name: str = "agents") -> None:
        if not hosts:
            return
        now_s = self._clock()
        is_again = all(host in self._starting for host in hosts)
        level = logging.INFO if is_again else logging.WARNING  # late ones have been named
        log.log(level, "starting %s on %s in allocation %s", name, hostlist.fold(hosts), job.job_id)
        for host in hosts:
            before = self._starting.get(host)
            wait_s = min(_MOST_START_S, before.wait_s * 2) if before else _START_S
            self._starting[host] = Starting(now_s + wait_s, wait_s)
        for gpus in sorted({self._gpus.get(host, 0) for host in hosts}):
            alike = [host for host in hosts if self._gpus.get(host, 0) == gpus]
            self._tasks.start(self._run_step(job.job_id, alike, name, gpus))

    def _server(self) -> str:
        """Where agents look for this server."""
        return self._keys.server or self._sessions.address

    def agent_command(self) -> list[str]:
        """How an agent is started on a host."""
        keys = self._keys
        program = keys.muster or str(Path(sys.executable).with_name("muster"))
        state = keys.state or f"/tmp/muster-agents-{os.geteuid()}/%h"
        words = [program, "agent", "--server", self._server()]
        words += ["--state", state, "--join-token-file", "-"]
        words += ["--one-attempt"] if keys.step is StepScope.ATTEMPT else []
        return words + (["--allow", keys.allow] if keys.allow else [])

    async def _run_step(self, job_id: str, hosts: Sequence[str], name: str, gpus: int) -> None:
        """One srun, in a session of its own: it outlives the server. `gpus`: of each host."""
        env = {key: os.environ[key] for key in _ENVIRONMENT if key in os.environ}
        if self._keys.ca:
            env["MUSTER_CA"] = self._keys.ca
        command, options = self.agent_command(), self._keys.step_options
        words = agent_step(job_id, hosts, command, sorted(env), name, options, gpus)
        with (self._folder.path / "steps.log").open("ab") as out:
            try:
                process = subprocess.Popen(
                    words,
                    stdin=subprocess.PIPE,
                    stdout=out,
                    stderr=out,
                    env=env,
                    start_new_session=True,
                )
            except OSError as error:
                log.error("srun: %s", error.strerror)
                return
        tokens = "".join(join_token(self.secrets[0], host) + "\n" for host in hosts)
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            await asyncio.to_thread(process.stdin.write, tokens.encode())
            process.stdin.close()
        try:
            while process.poll() is None:
                await asyncio.sleep(1.0)
        finally:
            if process.returncode is None:
                process.returncode = 0  # the next server's agents: nobody waits for it any more
        for host in hosts:  # it may be started again soon, and each time a little later
            if starting := self._starting.get(host):
                again_s = self._clock() + starting.wait_s / 10
                starting.until_s = min(starting.until_s, again_s)

    # --- states of nodes ------------------------------------------------------------------------

    async def _tell(self, jobs: Sequence[SlurmJob]) -> None:
        """Tell the log what Slurm says of the hosts."""
        ours = {job.job_id for held in self._ours(jobs).values() for job in held}
        others = {
            host: f"held by job {job.job_id} of {job.user}"
            for job in jobs
            if job.job_id not in ours
            for host in job.hosts
        }
        state = self._writer.state
        for index, name in enumerate(state.loaded_fabric.hosts):
            if name not in self._nodes and name in self._sessions.connected:
                continue  # somebody else started its agent
            standing, detail = self._nodes.get(name, (NodeState.DRAIN, _ABSENT))
            if standing is NodeState.UP and name in others:
                standing, detail = NodeState.DRAIN, others[name]
            command = report_of(SLURM, name, standing, detail, state.host(index))
            if command is not None:
                await self._submit(command)

    async def _submit(self, command: MoveHost | ReportHost) -> None:
        with contextlib.suppress(NotLeading, WriterStopped, StoreError, NotWritten):
            answer = await self._writer.submit(command)
            if isinstance(answer, Rejected):
                log.info("a report of the launcher was refused: %s", answer.message)

    async def _set_down(self) -> None:
        """Hosts whose agents are lost are down for Slurm as well."""
        lost = _lost_hosts(self._writer.state)
        for host in sorted(lost - self._down):
            if self._is_up(host):
                try:
                    await self._commands.down(host, "muster: its agent is lost")
                except SlurmFailed as error:
                    log.warning("%s is not set down: %s", host, error)
        self._down = lost


def _lost_hosts(state: State) -> set[str]:
    """Hosts that are out of service because their agents are lost."""
    return {
        state.loaded_fabric.hosts[index]
        for index, host in state.hosts.items()
        if host.state is HostState.FAILED and host.signal == AGENT_LOST
    }
