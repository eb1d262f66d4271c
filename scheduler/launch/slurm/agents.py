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

What Slurm says of its nodes is written to the log: drained, down, held by a job of somebody else,
or refused, and why. Its reservations are windows there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from placement.fabric import hostlist
from scheduler.access.addresses import host_and_port, is_loopback
from scheduler.access.tokens import join_token
from scheduler.agent.ranks.containers import OWN_CONTAINER, container_key
from scheduler.core import Job, State
from scheduler.core.model.commands import RemoveWindow, SetWindow
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.window import Leave, Window, WindowKind
from scheduler.core.policies.job_terms import ContainerSpec
from scheduler.engine.writer import Writer
from scheduler.files.health.found import REFUSED, SLURM, NodeState
from scheduler.launch.gangs.reports import lacks_agent
from scheduler.launch.keys import HoldingScope, SlurmKeys, StepScope
from scheduler.launch.slurm.commands import (
    LEAVE_S,
    Partition,
    Reservation,
    SlurmCommands,
    SlurmFailed,
    SlurmJob,
    agent_step,
    container_options,
    own_name,
)
from scheduler.launch.slurm.refusals import Refusals
from scheduler.launch.streams.sessions import AgentSessions
from scheduler.launch.substrate import Substrate
from scheduler.observe.supervision import Heartbeats

WHOLE = "hosts"  # the group of an allocation of the whole fabric
_NODES_EVERY_S = 5.0
_JOBS_EVERY_S = 1.0
_LOOK_S = 0.1
_ABSENT = "it has no such node, or hides it from this user"
_START_S = 20.0  # for which an agent may take to come in, before it is started again
_MOST_START_S = 120.0
_MOST_ASKED = 16  # allocations at a time
_LEAST_MINUTES = 5  # of an allocation before a reservation
_WINDOW = "slurm-"  # names of windows that are reservations begin so
# salloc has no answer of the controller, which is no refusal.
_NO_ANSWER = re.compile(r"contact|[Ss]ocket|Zero Bytes|temporarily|[Cc]ommunication|such program")
_NO_REASON = ("", "None", "Cleaning")  # the controller has not come to it within GRANT_S
_ENVIRONMENT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "PYTHONPATH", "SLURM_CONF", "MUSTER_CA")

log = logging.getLogger("muster.slurm")


@dataclass(slots=True)
class Starting:
    """An agent that has been started, `until_s` by when it should have come in. `is_found`: by an
    earlier server."""

    until_s: float
    wait_s: float
    is_found: bool = False


class AgentStep(NamedTuple):
    """Agents that start together. `uid`, `attempt`: for which alone they are, "" and 0 for whatever
    comes. `workdir`: of its ranks."""

    name: str
    hosts: tuple[str, ...]
    uid: str = ""
    attempt: int = 0
    container: ContainerSpec | None = None
    workdir: str = ""


class SlurmAgents(Substrate):
    """Starts agents in allocations of Slurm. `folder`: of the server, for its secret and the output
    of steps. `secret`: of join tokens, "" for one of the folder. `commands`: those of Slurm.
    `clock`: seconds."""

    name = "slurm"

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
        super().__init__(folder, secret, beats=beats)
        self._nodes: dict[str, tuple[NodeState | None, str]] = {}
        self._gpus: dict[str, int] = {}  # of hosts that have some for Slurm
        self._nodes_s = self._jobs_s = float("-inf")
        self._partitions: dict[str, list[str]] = {}  # by host
        self._partition: Partition | None = None
        self._has_pyxis = False
        self._reservations: list[Reservation] = []
        self._refusals = Refusals()
        self._asked: dict[str, str] = {}  # by host: the allocation that is asked for now
        self._tasks_asked: set[asyncio.Task[None]] = set()
        self._waiting: dict[frozenset[str], str] = {}  # why each of these is not granted
        self._held: set[str] | None = None  # hosts of own allocations; None: not known yet
        self._allocations: dict[str, tuple[str, ...]] = {}  # hosts of each, by job id
        self._starting: dict[str, Starting] = {}
        self._awaited: dict[str, float] = {}  # until when wanted hosts may be on their way
        self._holders: dict[str, Job] = {}  # by the group of their allocation
        self._before: tuple[dict[str, tuple[str, ...]], list[AgentStep]] = ({}, [])
        # Allocations, and attempts in them, whose agents have been started. None: it leads not yet.
        self._stepped: set[tuple[str, str, int]] | None = None

    def start(self, writer: Writer, sessions: AgentSessions, busy: Callable[[], Set[str]]) -> None:
        if os.geteuid():
            text = "ranks of all users run as %s, as this server does (docs/slurm.md, Users)"
            log.warning(text, own_name())
        super().start(writer, sessions, busy)

    def starting(self) -> Set[str]:
        """Return the hosts that were asked for so lately that their agents may still be on their
        way."""
        now_s = self._clock()
        return {host for host, until_s in self._awaited.items() if now_s < until_s}

    def is_dismissed(self, host: str) -> bool:
        """Return whether a host can have no agent because it has no allocation, whatever its
        health."""
        if self._held is not None and host in self._nodes and host not in self._held:
            return True
        return host not in self._agent_hosts(self._writer.state)

    def container_refusal(self, container: ContainerSpec) -> str | None:
        if self._keys.step is StepScope.ALLOCATION:
            return None
        if not os.geteuid():
            return "pyxis would run the image as root, as whom the server starts steps"
        if not self._has_pyxis:
            return "srun has no --container-image here: pyxis is not installed in this Slurm"
        return ""

    def _forget(self) -> None:
        self._stepped = None
        self._awaited.clear()
        self._held = self._partition = None
        self._allocations.clear()

    async def _look(self) -> None:
        """Act on changes of the gangs, and on what is due now."""
        now_s = self._clock()
        state = self._writer.state
        wanted, attempts = self.groups_to_hold(state), self.attempts(state)
        self._holders = {job.uid: job for job in state.holding}
        if (wanted, attempts) == self._before and now_s - self._jobs_s < _JOBS_EVERY_S:
            return
        self._before, self._jobs_s = (wanted, attempts), now_s
        jobs = await self._commands.jobs()
        if now_s - self._nodes_s >= _NODES_EVERY_S:
            self._nodes_s = now_s
            nodes, self._gpus, self._partitions = await self._commands.nodes()
            self._nodes = {node.host: (node.standing, node.detail) for node in nodes}
            self._reservations = await self._commands.reservations()
            if self._partition is None and (partition := await self._commands.partition()):
                self._partition = partition
                if self._keys.step is StepScope.ATTEMPT:
                    self._has_pyxis = await self._commands.has_pyxis()
                self._warn_of_limits(partition)
            await self._set_windows(jobs)
            await self._tell(jobs)
        await self.reconcile(wanted, jobs, self._agent_hosts(state), attempts)

    # --- allocations ------------------------------------------------------------------------

    def groups_to_hold(self, state: State) -> dict[str, tuple[str, ...]]:
        """Return the groups of hosts to hold, by the name of each. A host whose agent was lost is
        held as well, for it is back when an agent comes in from there."""
        if self._keys.holding is HoldingScope.WHOLE:
            return {WHOLE: tuple(state.loaded_fabric.hosts)}
        fabric = state.loaded_fabric
        gangs = {
            job.uid: (*fabric.names(job.hosts), *fabric.names(job.spares))
            for job in state.holding
            if job.spec.run is not None
        }
        return gangs | {f"lost-{host}": (host,) for host in sorted(_hosts_without_agent(state))}

    def attempts(self, state: State) -> list[AgentStep]:
        """Return the attempts that are to have Slurm steps of their own; jobs on parts of hosts
        have none."""
        if self._keys.step is StepScope.ALLOCATION:
            return []
        names = state.loaded_fabric.names
        return [
            AgentStep(
                f"{job.name}.{job.attempt}",
                names(job.hosts),
                job.uid,
                job.attempt,
                run.container,
                run.workdir,
            )
            for job in state.holding
            if (run := job.spec.run) is not None
            and job.state is JobState.RUNNING
            and not job.part_gpus
        ]

    def _agent_hosts(self, state: State) -> Set[str]:
        """Hosts that are to have an agent."""
        if self._keys.step is StepScope.ALLOCATION:
            return {host for hosts in self.groups_to_hold(state).values() for host in hosts}
        names = state.loaded_fabric.hosts
        shared = {names[host] for host in state.index.shared}  # one agent for all that share it
        return shared.union(
            _hosts_without_agent(state), *(each.hosts for each in self.attempts(state))
        )

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
        attempts: Sequence[AgentStep] = (),
    ) -> None:
        """Ask for what is missing, give back what is not wanted. `with_agent`: hosts that are to
        have one; `attempts`: those of them that begin with a step of their own. Raises:
        SlurmFailed."""
        ours = self._ours(jobs)
        busy = self._busy()
        self._note(ours)
        self._await_agents(with_agent)
        of_attempts = {host for each in attempts for host in each.hosts}
        is_first, self._stepped = self._stepped is None, self._stepped or set()
        unwanted = []
        for group, held in ours.items():
            needed = set(wanted.get(group, ()))
            for job in held:
                if job.requested and self._asked.keys() >= set(job.requested):
                    continue  # it may be granted yet
                is_ending = self._is_ending(job)
                is_free = busy.isdisjoint(job.hosts)
                if is_free and (is_ending or needed.isdisjoint(job.hosts)):
                    why = "its time is nearly over" if is_ending else "it is not needed"
                    if job.hosts:  # else it waits, for hosts that have been asked for again
                        shown = hostlist.fold(job.hosts)
                        log.warning("cancelling %s, %s: nothing runs on %s", job.name, why, shown)
                    self._nodes_s = float("-inf")
                    self._allocations.pop(job.job_id, None)
                    unwanted.append(job.job_id)
                elif job.is_running:
                    kept = with_agent - of_attempts
                    own = AgentStep("agents", tuple(host for host in job.hosts if host in kept))
                    for step in (own, *attempts):
                        self._keep_agents(job, step, is_found=is_first)
        held_groups = {group for group, held in ours.items() if any(job.hosts for job in held)}
        self._allocate(wanted, {host for job in jobs for host in job.hosts}, held_groups)
        for job_id in unwanted:
            await self._commands.cancel(job_id)

    def _is_ending(self, job: SlurmJob) -> bool:
        """Whether its gangs are to leave it now, for its time limit kills them soon."""
        return job.leave_ns is not None and self._writer.now_ns() >= job.leave_ns

    def _note(self, ours: Mapping[str, Sequence[SlurmJob]]) -> None:
        """Keep which hosts are held, and why others are not; say how allocations ended."""
        allocations = {}
        for job in (job for held in ours.values() for job in held):
            if job.hosts:
                allocations[job.job_id] = job.hosts
            elif job.reason not in _NO_REASON:
                self._waiting[frozenset(job.requested)] = job.reason
        for job_id in self._allocations.keys() - allocations.keys():
            self._tasks.start(self._say_end(job_id, self._allocations[job_id]))
        self._allocations = allocations
        self._held = {host for hosts in allocations.values() for host in hosts}

    async def _say_end(self, job_id: str, hosts: Sequence[str]) -> None:
        try:
            ending = await self._commands.end_of(job_id)
        except SlurmFailed as error:
            ending = str(error)
        text = "allocation %s of %s has ended: %s; its hosts are asked for again where wanted"
        log.warning(text, job_id, hostlist.fold(hosts), ending)

    def _allocate(
        self, wanted: Mapping[str, Sequence[str]], taken: Set[str], held_groups: Set[str]
    ) -> None:
        """Ask for all that is missing, at once: one that is not granted keeps no other waiting. Of
        a group that is to have licenses the first allocation alone asks for them, before others."""
        now_s, licenses = self._clock(), self._keys.licenses
        self._refusals.release({host for hosts in wanted.values() for host in hosts}, now_s)
        taken = taken | self._asked.keys()
        for group, hosts in wanted.items():
            name, options = f"{self._keys.name}:{group}", self._labels(group)
            absent = [h for h in hosts if h not in taken and self._is_up(h)]
            taken = taken | set(absent)
            pieces = list(self._pieces(absent, now_s))
            if licenses and group not in held_groups:
                options.append(f"--licenses={licenses}")
                pieces = [] if name in self._asked.values() else pieces[:1]
            for piece, minutes in pieces:
                self._ask(name, piece, [*options, *([f"--time={minutes}"] if minutes else [])])

    def _pieces(self, absent: Sequence[str], now_s: float) -> Iterator[tuple[list[str], int]]:
        """Yield the hosts of each allocation to ask for, and for how many minutes, 0 for as long as
        Slurm gives it."""
        by_end: dict[int, list[str]] = {}
        for host in absent:
            if not self._bar(host):
                by_end.setdefault(self._minutes(host), []).append(host)
        for minutes, alike in by_end.items():
            most = (self._partition and self._partition.most_nodes) or len(alike)
            for piece in self._refusals.split(alike, now_s):
                for at in range(0, len(piece), most):
                    yield piece[at : at + most], minutes

    def _labels(self, group: str) -> list[str]:
        """Return options of salloc that tell Slurm's users and accounting whose gang it is for."""
        job = self._holders.get(group)
        if job is None:
            return []
        account = self._keys.accounts.get(job.tenant)
        comment = f"--comment=gang {job.name} of {job.user or 'nobody'}, tenant {job.tenant}"
        return [comment, *([f"--account={account}"] if account else [])]

    def _ask(self, name: str, hosts: Sequence[str], options: Sequence[str]) -> None:
        if len(self._tasks_asked) < _MOST_ASKED:
            self._asked.update(dict.fromkeys(hosts, name))
            self._tasks_asked.add(task := self._tasks.start(self._request(name, hosts, options)))
            task.add_done_callback(self._tasks_asked.discard)

    async def _request(self, name: str, hosts: Sequence[str], options: Sequence[str]) -> None:
        """Have these hosts allocated, or write down why not."""
        try:
            await self._commands.allocate(name, hosts, options)
        except SlurmFailed as error:
            reason = self._waiting.get(frozenset(hosts), "") or _refusal(error)
            if not reason:
                log.warning("%s is not allocated: %s", hostlist.fold(hosts), error)
            elif self._refusals.add(hosts, reason, self._clock()):
                log.warning("Slurm does not grant %s: %s", hostlist.fold(hosts), reason)
                self._nodes_s = float("-inf")
        else:
            self._refusals.remove(hosts)
        finally:
            for host in hosts:
                self._asked.pop(host, None)
            self._waiting.pop(frozenset(hosts), None)
            self._jobs_s = float("-inf")

    def _bar(self, host: str) -> str:
        """Return why it is of no use to ask for this host now, "" where it may be granted."""
        own, of_host = self._partition, self._partitions.get(host)
        if own is not None and of_host is not None and own.name not in of_host:
            return f"it is not in partition {own.name}"
        reservation = self._next_reservation(host)
        if reservation is not None and self._minutes_to(reservation) < _LEAST_MINUTES:
            return reservation.text
        return ""

    def _minutes(self, host: str) -> int:
        """Return for how long the host is asked for, 0 for as long as Slurm gives it."""
        reservation = self._next_reservation(host)
        return 0 if reservation is None else self._minutes_to(reservation)

    def _next_reservation(self, host: str) -> Reservation | None:
        """Return the first reservation that an allocation of this host would reach into."""
        most_ns = self._partition.most_ns if self._partition else None
        reached = [
            each
            for each in self._reservations
            if host in each.hosts
            and (most_ns is None or each.start_ns < self._writer.now_ns() + most_ns)
        ]
        return min(reached, key=lambda each: each.start_ns, default=None)

    def _minutes_to(self, reservation: Reservation) -> int:
        left_s = (reservation.start_ns - self._writer.now_ns()) / SECOND_NS
        return int(left_s - LEAVE_S / 3) // 60

    def _await_agents(self, wanted: Set[str]) -> None:
        """Each that is newly wanted is awaited until its agent has come in, for a while from when
        its host is held."""
        until_s, connected = self._clock() + _START_S, self._sessions.connected
        held, before = self._held or set(), self._awaited
        self._awaited = {}
        for host in wanted:
            since_s = before.get(host, math.inf)
            if host in connected:
                self._awaited[host] = 0.0
            elif host not in held:
                self._awaited[host] = math.inf
            else:
                self._awaited[host] = until_s if since_s == math.inf else since_s
        for host in self._starting.keys() - wanted:
            del self._starting[host]

    def _is_up(self, host: str) -> bool:
        return self._nodes.get(host, (None, ""))[0] is NodeState.UP

    # --- steps of agents ----------------------------------------------------------------------

    def _keep_agents(self, job: SlurmJob, step: AgentStep, *, is_found: bool) -> None:
        """Have agents on those hosts of an allocation. All of a new one are one Slurm step; one
        that is missing later has a step of its own, so that no dead host keeps the others waiting.
        Agents for one attempt are started once. `is_found`: an earlier server has seen to that,
        unless agents that should come in do not."""
        assert self._stepped is not None
        now_s, connected = self._clock(), self._sessions.connected
        hosts = [host for host in step.hosts if host in job.hosts]
        key = (job.job_id, step.uid, step.attempt)
        if key not in self._stepped:
            self._stepped.add(key)
            if is_found:
                for host in set(hosts) - connected:
                    self._starting[host] = Starting(now_s + _START_S / 4, _START_S, is_found=True)
                return
            for host in hosts if step.uid else ():  # those of the attempt before have yet to leave
                self._starting.pop(host, None)
                self._awaited[host] = now_s + _START_S
            self._start_step(job, step, [h for h in hosts if step.uid or h not in connected])
            return
        for host in connected.intersection(hosts):
            self._starting.pop(host, None)
        late = [host for host in hosts if host not in connected and self._is_late(host, now_s)]
        if step.uid:
            late = [h for h in late if (at := self._starting.get(h)) is not None and at.is_found]
        if new := [host for host in late if self._is_first_wait(host)]:
            log.warning("%s", self._late_agents(new))
        for host in late:
            self._start_step(job, step, [host])

    def _is_late(self, host: str, now_s: float) -> bool:
        starting = self._starting.get(host)
        return (starting is None or now_s >= starting.until_s) and self._is_up(host)

    def _is_first_wait(self, host: str) -> bool:
        """Whether it has been started once, and its agent has not come in since."""
        starting = self._starting.get(host)
        return starting is not None and starting.wait_s == _START_S

    def _late_agents(self, hosts: Sequence[str]) -> str:
        """Tell an operator where to look when agents do not come in."""
        shown, server = hostlist.fold(hosts), self._server()
        text = f"no agent has come in from {shown}: it is started again; what agents and srun say"
        text += f" is in {self._folder / 'steps.log'}; they look for this server at {server}"
        if is_loopback(host_and_port(server).host):
            text += ", which other machines do not reach: set agents.listen and slurm.server"
        return text

    def _start_step(self, job: SlurmJob, step: AgentStep, hosts: Sequence[str]) -> None:
        if not hosts:
            return
        now_s = self._clock()
        is_again = all(host in self._starting for host in hosts)
        level = logging.INFO if is_again else logging.WARNING  # late ones have been named
        shown = hostlist.fold(hosts)
        log.log(level, "starting %s on %s in allocation %s", step.name, shown, job.job_id)
        for host in hosts:
            before = self._starting.get(host)
            wait_s = min(_MOST_START_S, before.wait_s * 2) if before else _START_S
            self._starting[host] = Starting(now_s + wait_s, wait_s)
        for gpus in sorted({self._gpus.get(host, 0) for host in hosts}):
            alike = [host for host in hosts if self._gpus.get(host, 0) == gpus]
            self._tasks.start(self._run_step(job.job_id, step, alike, gpus))

    def _server(self) -> str:
        """Where agents look for this server."""
        return self._keys.server or self._sessions.address

    def agent_command(self) -> list[str]:
        """Return the command that starts an agent on a host."""
        keys = self._keys
        program = keys.muster or str(Path(sys.executable).with_name("muster"))
        state = keys.state or f"/tmp/muster-agents-{os.geteuid()}/%h"
        words = [program, "agent", "--server", self._server()]
        words += ["--state", state, "--join-token-file", "-"]
        words += ["--one-attempt"] if keys.step is StepScope.ATTEMPT else []
        return words + (["--allow", keys.allow] if keys.allow else [])

    async def _run_step(
        self, job_id: str, step: AgentStep, hosts: Sequence[str], gpus: int
    ) -> None:
        """One srun, in a session of its own: it outlives the server. `gpus`: of each host."""
        env = {key: os.environ[key] for key in _ENVIRONMENT if key in os.environ}
        if self._keys.ca:
            env["MUSTER_CA"] = self._keys.ca
        command, options = self.agent_command(), self._keys.step_options
        if (container := step.container) is not None:
            env[OWN_CONTAINER] = container_key(container.image, container.mounts)
            options = (*options, *container_options(container, step.workdir))
        words = agent_step(job_id, hosts, command, sorted(env), step.name, options, gpus)
        with (self._folder / "steps.log").open("ab") as out:
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

    def _warn_of_limits(self, partition: Partition) -> None:
        """Say which limits of the partition gangs will meet."""
        if partition.most_ns is not None:
            span = timedelta(seconds=partition.most_ns // SECOND_NS)
            text = (
                "partition %s ends each allocation after %s: gangs save before and go on in another"
            )
            log.warning(text, partition.name, span)
        if partition.most_nodes is not None:
            text = "partition %s gives %d nodes at most to an allocation: hosts are held by several"
            log.warning(text, partition.name, partition.most_nodes)

    async def _set_windows(self, jobs: Sequence[SlurmJob]) -> None:
        """Have a window for each reservation of hosts of the fabric, and for each allocation whose
        gangs are to leave it now."""
        state, now_ns = self._writer.state, self._writer.now_ns()
        fabric, wanted = state.loaded_fabric, dict[str, Window]()
        closed = [
            (each.name, each.hosts, each.start_ns - LEAVE_S * SECOND_NS, each.end_ns, each.text)
            for each in self._reservations
        ]
        closed += [
            (
                f"job-{job.job_id}",
                job.hosts,
                job.leave_ns,
                job.end_ns,
                "allocation ends by its limit",
            )
            for held in self._ours(jobs).values()
            for job in held
            if self._is_ending(job) and job.leave_ns and job.end_ns
        ]
        for short, among, start_ns, end_ns, text in closed:
            hosts = tuple(host for host in among if host in fabric.index_by_name)
            if not hosts or end_ns <= now_ns:
                continue
            name = f"{_WINDOW}{short}"
            wanted[name] = Window(
                name,
                WindowKind.MAINTENANCE,
                start_ns,
                end_ns,
                hosts,
                leave=Leave.REQUEUE,
                reason=f"{SLURM}: {text}",
            )
        mark = f"{SLURM}: "
        known = {name: booking.window for name, booking in state.windows.items()}
        for name, window in wanted.items():
            before = known.get(name)
            is_same = before is not None and all(
                getattr(before, key) == getattr(window, key)
                for key in ("start_ns", "end_ns", "among", "reason")
            )
            if not is_same:
                await self._submit(SetWindow(window, is_change=before is not None))
        for name, window in known.items():
            is_ours = name.startswith(_WINDOW) and window.reason.startswith(mark)
            if is_ours and name not in wanted:
                await self._submit(RemoveWindow(name, f"{SLURM}: it is over"))

    async def _tell(self, jobs: Sequence[SlurmJob]) -> None:
        """Tell the log what Slurm says of the hosts."""
        ours = {job.job_id for held in self._ours(jobs).values() for job in held}
        held = {host for job in jobs if job.job_id in ours for host in job.hosts}
        others = {
            host: f"held by {job.user}'s job {job.job_id}"
            for job in jobs
            if job.job_id not in ours
            for host in job.hosts
        }
        standings = list[tuple[str, NodeState | None, str]]()
        for name in self._writer.state.loaded_fabric.hosts:
            if name not in self._nodes and name in self._sessions.connected:
                continue  # somebody else started its agent
            standing, detail = self._nodes.get(name, (NodeState.DRAIN, _ABSENT))
            if standing is NodeState.UP and name not in held:
                refused = self._bar(name) or self._refusals.reason(name)
                detail = others.get(name) or (f"{REFUSED}: {refused}" if refused else detail)
                standing = NodeState.DRAIN if name in others or refused else standing
            standings.append((name, standing, detail))
        await self._report_nodes(SLURM, standings)


def _refusal(error: SlurmFailed) -> str:
    """Return what Slurm objects to, "" where it has not answered or not come to it yet."""
    text = str(error).partition("failed: ")[2]
    return "" if _NO_ANSWER.search(str(error)) else text


def _hosts_without_agent(state: State) -> set[str]:
    """Hosts that are out of service because their agents are lost."""
    return {
        state.loaded_fabric.hosts[index] for index, host in state.hosts.items() if lacks_agent(host)
    }
