"""Launches as a search: servers, of which one leads, and agents of a few hosts, through crashes,
pauses, cuts and deaths of hosts.

muster's own: agents, launcher, gateway and sessions (stepped), the rules of the log. A model: the
network, ranks, and when what happens. A tick is a lease and a little; what can happen at once
happens before it, unless a fault holds it up. What the launcher wants written is written at once,
or refused if another server leads: the log with its leaders has a search of its own (leaders).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

from drills.protocol.log import LogNode, LogTree, is_answer
from drills.protocol.search import Broken
from drills.protocol.stepped import TICK_S, Clock, LaunchServer, SteppedAgent, SteppedStream
from scheduler.agent.agent import StaleLeader
from scheduler.agent.ranks.attempt import Key, Phase
from scheduler.core import State, admit, commit
from scheduler.core.fold.apply import effects
from scheduler.core.fold.effects import JobChange
from scheduler.core.model.commands import CancelJob, Command, MoveHost, SubmitJob
from scheduler.core.model.events import GangLaunched
from scheduler.core.model.lifecycle import HostMove, JobState
from scheduler.core.policies.job_terms import RunSpec
from scheduler.engine.proposal import Answer
from scheduler.v1 import agent_pb2
from tests.build import exactly, spec

GRACE_S = 1
_MOST_SETTLING = 2_000  # steps


class LaunchFaults(NamedTuple):
    """How often each fault may happen in a search. `breaks` of a stream, `cuts` of a host from the
    network, `freezes` of a host with its ranks, `agent_crashes` beside ranks that run on, `deaths`
    of a host with all that it knew, `reboots` after which it knows what it ran; `rank_failures`,
    `rank_ends` that are well, `refusals` of an agent; `successions`: another server takes the lead
    while the leader stands still, `crashes`: after it has crashed; `commands` of the scope in their
    order; `blackouts`: servers are cut off from all hosts, until they reach all again."""

    breaks: int = 0
    cuts: int = 0
    freezes: int = 0
    agent_crashes: int = 0
    deaths: int = 0
    reboots: int = 0
    rank_failures: int = 0
    rank_ends: int = 0
    refusals: int = 0
    successions: int = 0
    crashes: int = 0
    commands: int = 0
    blackouts: int = 0

    def less(self, kind: str) -> LaunchFaults:
        return self._replace(**{kind: getattr(self, kind) - 1})


@dataclass(frozen=True, slots=True)
class LaunchScope:
    """`jobs`: (name, hosts, spares), submitted at the start. `commands`: by operators, later.
    `keeps_ranks`: those of an agent that hears nothing run on."""

    name: str
    faults: LaunchFaults
    hosts: int = 2
    jobs: tuple[tuple[str, int, int], ...] = (("a", 1, 0),)
    servers: int = 1
    commands: tuple[Command, ...] = ()
    keeps_ranks: bool = True

    @property
    def spares_ranks(self) -> bool:
        """Whether only servers and their network fail, so that no running gang may be stopped."""
        return not any(self.faults._replace(blackouts=0, crashes=0))


class AgentLink:
    """The stream between an agent and a server. `has_ended`: at the server's end; the agent learns
    of it after what is still on its way to it."""

    def __init__(self, number: int, server: int, term: int) -> None:
        self.number, self.server, self.term = number, server, term
        self.to_agent: tuple[bytes, ...] = ()
        self.to_server: tuple[bytes, ...] = ()
        self.has_ended = self.is_known = False  # is_known: its Hello has arrived

    def key_of_state(self) -> tuple[Any, ...]:
        flags = self.has_ended, self.is_known
        return self.number, self.server, self.term, self.to_agent, self.to_server, *flags


class HostSim:
    """A simulated host. `is_up`: its agent runs; `is_frozen`, `is_cut`: the host with its ranks,
    its network."""

    def __init__(self, agent: SteppedAgent) -> None:
        self.agent = agent
        self.link: AgentLink | None = None
        self.is_up, self.is_frozen, self.is_cut = True, False, False
        self.was_lost = False  # what it had run it does not know any more
        self.launched: frozenset[Key] = frozenset()
        self.term = 0  # the highest of a leader whose words it has taken

    @property
    def acts(self) -> bool:
        return self.is_up and not self.is_frozen

    def clone(self) -> HostSim:
        other = copy.copy(self)
        other.agent, other.link = self.agent.clone(), copy.copy(self.link)
        return other

    def key_of_state(self) -> tuple[Any, ...]:
        link = self.link.key_of_state() if self.link else None
        flags = self.is_up, self.is_frozen, self.is_cut, self.was_lost, self.term
        return *flags, link, self.agent.key_of_state(), tuple(sorted(self.launched))


class ServerSim:
    """A simulated server. `stands`: it is paused, and has been replaced."""

    def __init__(self, server: LaunchServer) -> None:
        self.server = server
        self.is_up, self.is_paused = True, False

    @property
    def acts(self) -> bool:
        return self.is_up and not self.is_paused


class LaunchWorld:
    """One state of the search. `node`: the end of the log; `seen`: of each server the log node of
    its state."""

    def __init__(self, scope: LaunchScope, tree: LogTree, node: LogNode) -> None:
        self.scope, self.tree, self.node = scope, tree, node
        self.now_s, self.term, self.leader = Clock.now_s, 1, 0
        self.faults = scope.faults
        self.launches: frozenset[tuple[int, Key]] = frozenset()  # that leaders have begun
        names = node.state.built_fabric.hosts
        self.hosts = {name: HostSim(SteppedAgent(name)) for name in names}
        self.servers = [ServerSim(self._new_server()) for _ in range(scope.servers)]
        self._wire()

    def _new_server(self) -> LaunchServer:
        return LaunchServer(self.node.state, keeps_ranks=self.scope.keeps_ranks)

    def _wire(self) -> None:
        for name, host in self.hosts.items():
            host.agent.say = partial(self._send_to_server, name)
            host.agent.on_start = partial(self.check_start, name)
        for number, sim in enumerate(self.servers):
            sim.server.sessions.on_launch = partial(self._note_launch, number)

    def clone(self) -> LaunchWorld:
        other = copy.copy(self)
        Clock.now_s = self.now_s
        other.hosts = {name: host.clone() for name, host in self.hosts.items()}
        other.servers = [copy.copy(sim) for sim in self.servers]
        for sim in other.servers:
            sim.server = sim.server.clone(other.send_to_agent)
        other._wire()
        return other

    def key(self) -> bytes:
        Clock.now_s = self.now_s
        parts = (
            self.node.number,
            self.term,
            self.leader,
            self.faults,
            tuple(sorted(self.launches)),
            tuple(host.key_of_state() for host in self.hosts.values()),
            tuple((s.is_up, s.is_paused, s.server.key_of_state()) for s in self.servers),
        )
        return blake2b(repr(parts).encode(), digest_size=16).digest()

    # --- words on their way ----------------------------------------------------------------------

    def _send_to_server(self, host: str, word: agent_pb2.SessionRequest) -> None:
        link = self.hosts[host].link
        if link is not None and not link.has_ended:
            link.to_server = (*link.to_server, word.SerializeToString(deterministic=True))

    def send_to_agent(self, host: str, number: int, body: bytes) -> None:
        """Send by the stream of that number, if the host still has it."""
        link = self.hosts[host].link
        if link is not None and link.number == number and link.to_agent[-1:] != (body,):
            link.to_agent = (*link.to_agent, body)  # two leases in a row are as one

    def _note_launch(self, number: int, _: str, key: Key) -> None:
        if self.servers[number].server.writer.term == self.term:
            self.check_launch(key)

    # --- the log ----------------------------------------------------------------------------------

    def lead(self, number: int) -> None:
        """Let a server take the lead: it reads the log and serves agents."""
        server = self.servers[number].server
        self.leader = number
        server.writer.state, server.writer.now = self.node.state, self.node.now_ns
        server.writer.term = self.term
        server.launcher.begin_to_lead(self.term)
        server.launcher.take_over(self.node.state)
        self.settle_server(number)

    def give_up(self, number: int) -> None:
        """Let a server learn that another one leads."""
        server = self.servers[number].server
        server.writer.term = None
        server.launcher.pending_checks.clear()
        server.sessions.follow("")
        server.gateway.told.clear()
        self._close_ended()

    def settle_server(self, number: int) -> None:
        """Let a server read its gateway, write what is wanted, and process what is written, until
        nothing is left."""
        server = self.servers[number].server
        server.hear_gateway()
        while server.launcher.pending_checks:
            check = server.launcher.pending_checks.pop(0)
            answer = check(server.writer.state, server.writer.now)
            if is_answer(answer) and answer:
                if server.writer.term != self.term:
                    self.give_up(number)  # the store refuses the append
                    return
                self.write(answer)
            server.hear_gateway()
        self._close_ended()

    def write(self, answer: Answer) -> None:
        """Append the leader's events, apply and publish them."""
        assert isinstance(answer, tuple)
        server = self.servers[self.leader].server
        for event in answer:
            before = self.node.state
            if isinstance(event, GangLaunched):
                self.check_launched(event)
            self.node = self.tree.after(self.node, event)
            server.writer.state, server.writer.now = self.node.state, self.node.now_ns
            for effect in effects(before, event, self.node.state):
                if isinstance(effect, JobChange):
                    self.check_kept(before, effect)
                    server.launcher.feed(effect)

    def command(self, command: Command) -> None:
        answer = admit(self.node.state, command, self.node.now_ns)
        if is_answer(answer):
            self.write(answer)
            self.settle_server(self.leader)

    def plan(self) -> bool:
        """Decide and commit, and return whether there was anything to do."""
        plan = self.tree.plan(self.node)
        if not plan.actions:
            return False
        answer = commit(self.node.state, plan, self.node.now_ns)
        if not is_answer(answer) or not answer:
            return False
        self.write(answer)
        self.settle_server(self.leader)
        return True

    def _close_ended(self) -> None:
        """Streams that a server has ended."""
        for name, host in self.hosts.items():
            link = host.link
            if link is None or link.has_ended or not link.is_known:
                continue
            stream = self.servers[link.server].server.gateway.streams.get(name)
            link.has_ended = stream is None or stream.number != link.number

    # --- steps ------------------------------------------------------------------------------------

    def connect(self, name: str, number: int) -> None:
        host = self.hosts[name]
        known = self.servers[number].server.gateway.streams.get(name)
        new = 1 - known.number if known is not None else 0
        term = self.servers[number].server.writer.term or 0
        host.link = link = AgentLink(new, number, term)
        link.to_server = (host.agent.hello().SerializeToString(deterministic=True),)

    def hear_agent(self, name: str) -> None:
        """Deliver the next message of a host to a server."""
        link = self.hosts[name].link
        assert link is not None
        server = self.servers[link.server].server
        body, link.to_server = link.to_server[0], link.to_server[1:]
        if not link.is_known:
            link.is_known = True
            if server.gateway.leads:
                stream = SteppedStream(name, link.number, self.send_to_agent)
                server.gateway.admit_stream(stream, body)
            else:
                link.has_ended = True
        elif name in server.gateway.streams:
            server.gateway.streams[name].heard_s = self.now_s
            server.sessions.connected.add(name)
            server.launcher.on_word(name, agent_pb2.SessionRequest.FromString(body))
        self.settle_server(link.server)

    def hear_server(self, name: str) -> None:
        """Deliver the next message of its server to a host, or that the stream has ended."""
        host = self.hosts[name]
        link = host.link
        assert link is not None
        if not link.to_agent:
            host.agent.on_disconnect()
            host.link = None
            return
        body, link.to_agent = link.to_agent[0], link.to_agent[1:]
        try:
            host.agent.hear_word(body)
        except StaleLeader:
            self.break_link(name)
            return
        if link.term < host.term:
            raise Broken(f"{name} does what term {link.term} says after term {host.term}")
        host.term = link.term

    def break_link(self, name: str) -> None:
        """Break a stream; both ends learn of it, and messages on their way are lost."""
        host = self.hosts[name]
        link, host.link = host.link, None
        host.agent.on_disconnect()
        if link is not None and link.is_known and self.servers[link.server].is_up:
            self.servers[link.server].server.gateway.stream_ends(name, link.number)
            if not self.servers[link.server].is_paused:
                self.settle_server(link.server)

    def rank_ends(self, name: str, key: Key, code: int, number: int) -> None:
        host = self.hosts[name]
        host.agent.attempts[key].rank_ends(code, number)
        if host.acts:
            host.agent.look()

    def tick(self) -> None:
        """Let a little more time pass than a lease."""
        self.now_s += TICK_S
        Clock.now_s = self.now_s
        for name, host in self.hosts.items():
            link = host.link
            beats = host.acts and not host.is_cut
            if beats and link is not None and self.servers[link.server].is_up:
                stream = self.servers[link.server].server.gateway.streams.get(name)
                if stream is not None and stream.number == link.number:
                    stream.heard_s = self.now_s
        for number, sim in enumerate(self.servers):
            if sim.acts and sim.server.gateway.leads:
                sim.server.gateway.sweep(self.now_s)
                self.settle_server(number)
                if sim.server.writer.term is not None:
                    sim.server.launcher.tick()
                    self.settle_server(number)
        for host in self.hosts.values():
            if host.acts:
                host.agent.tick()

    def crash_server(self, number: int) -> None:
        sim = self.servers[number]
        sim.is_up, sim.is_paused = False, False
        sim.server = self._new_server()
        self._wire()
        for name, host in self.hosts.items():
            if host.link is not None and host.link.server == number:
                if host.is_cut or not host.acts:
                    host.link.has_ended, host.link.is_known = True, True
                else:
                    self.break_link(name)

    # --- what must hold ------------------------------------------------------------------------

    def is_reached(self, name: str) -> bool:
        """Return whether the leader, which is active, has a stream with this host."""
        host = self.hosts[name]
        link = host.link
        if link is None or host.is_cut or not host.acts or link.server != self.leader:
            return False
        gateway = self.servers[self.leader].server.gateway
        return link.is_known and not link.has_ended and name in gateway.streams

    def check_start(self, name: str, key: Key) -> None:
        """Check a start of ranks. Raises: Broken where other ranks run there, or these were started
        before."""
        host = self.hosts[name]
        others = [k for k in host.agent.alive() if k != key]
        if others:
            raise Broken(f"{name} runs {others[0].folder_name} and {key.folder_name}")
        if key in host.launched and not host.was_lost:
            raise Broken(f"{key.folder_name} is started twice on {name}")
        host.launched |= {key}

    def check_launch(self, key: Key) -> None:
        """Check that the leader starts ranks of a job only once others of that job have ended on
        every host that it reaches. Raises: Broken."""
        if (self.term, key) in self.launches:  # the same once more
            return
        self.launches |= {(self.term, key)}
        for other, host in self.hosts.items():
            stale = [k for k in host.agent.alive() if k.job_uid == key.job_uid and k != key]
            if stale and self.is_reached(other):
                words = f"attempt {stale[0].attempt} runs on {other}, which the leader reaches"
                raise Broken(f"attempt {key.attempt} is launched while {words}")

    def check_kept(self, before: State, change: JobChange) -> None:
        """Check that no running gang is stopped where only servers failed. Raises: Broken."""
        job = before.jobs.get(change.job.name)
        was_running = job is not None and job.present.launched_ns is not None
        if self.scope.spares_ranks and was_running and change.job.state is not JobState.RUNNING:
            raise Broken(f"{change.job.name} is stopped, and only the servers were cut off")

    def check_launched(self, event: GangLaunched) -> None:
        """Check the log's word that all ranks have started. Raises: Broken."""
        job = self.node.state.jobs[event.name]
        for name in self.node.state.loaded_fabric.names(job.hosts):
            host = self.hosts[name]
            if Key(job.uid, event.attempt) not in host.launched and not host.was_lost:
                raise Broken(f"{event.name} is launched, and {name} has not started")

    def broken(self) -> str:
        state = self.node.state
        for name, host in self.hosts.items():
            alive = host.agent.alive()
            if len(alive) > 1:
                return f"{name} runs two attempts"
            for key in alive:
                if not self._is_known(state, name, key):
                    return f"{name} runs {key.folder_name}, of which the log knows nothing"
                if host.acts and not host.agent.may_run and not self._is_ending(host, key):
                    return f"the ranks of {key.folder_name} run on {name} without a lease"
                if self.is_quiet and self.is_reached(name) and not self._is_wanted(name, key):
                    return f"{key.folder_name} runs on {name} for ever, and nobody wants it"
        return ""

    def overlap(self) -> str:
        """Return which two attempts of a job run together; empty: none do."""
        running: dict[str, Key] = {}
        for host in self.hosts.values():
            for key in host.agent.alive() if not host.is_frozen else ():
                other = running.setdefault(key.job_uid, key)
                if other != key:
                    return f"{other.folder_name} and {key.folder_name} run"
        return ""

    def _is_ending(self, host: HostSim, key: Key) -> bool:
        return host.agent.attempts[key].is_dying

    def _is_known(self, state: State, name: str, key: Key) -> bool:
        job = next((j for j in state.jobs.values() if j.uid == key.job_uid), None)
        job = job or state.ended.get(key.job_uid)
        return job is not None and job.attempt >= key.attempt

    def _is_wanted(self, name: str, key: Key) -> bool:
        """Whether the log has this attempt running on this host."""
        for job in self.node.state.holding:
            if job.uid == key.job_uid and job.attempt == key.attempt:
                return name in self.node.state.loaded_fabric.names(job.hosts)
        return False

    @property
    def is_quiet(self) -> bool:
        """Whether nothing can happen but time and faults."""
        return next(quick(self), None) is None


Step = Callable[[LaunchWorld], None]


def quick(world: LaunchWorld) -> Iterator[tuple[str, Step]]:
    """Yield steps that happen at once: messages arrive, ranks die, agents get ready, plans are
    made. In this order everything recovers; in others an agent could ask a replaced leader for
    ever."""
    for number, sim in enumerate(world.servers):
        if sim.acts and sim.server.writer.term not in (None, world.term):
            yield f"server {number} learns that another leads", _on(LaunchWorld.give_up, number)
    for name, host in world.hosts.items():
        link = host.link
        if link is not None and not host.is_cut:
            if link.to_server and world.servers[link.server].acts and not link.has_ended:
                yield f"the server hears {name}", _on(LaunchWorld.hear_agent, name)
            if host.acts and (link.to_agent or link.has_ended):
                yield f"{name} hears the server", _on(LaunchWorld.hear_server, name)
        if host.is_frozen:
            continue
        for key, attempt in host.agent.attempts.items():
            if attempt.is_dying and attempt.is_alive:
                words = f"the killed ranks of attempt {key.attempt} on {name} end"
                yield words, _on(LaunchWorld.rank_ends, name, key, 0, 9)
        if not host.acts:
            continue
        if any(a.phase is Phase.STARTING for a in host.agent.attempts.values()):
            yield f"the ranks on {name} have started", _on(_with_agent, SteppedAgent.look, name)
        if host.agent.preparing:
            yield f"{name} gets ready", _on(_with_agent, SteppedAgent.prepare, name)
        if link is None and not host.is_cut:
            for number, sim in enumerate(world.servers):
                if sim.acts and sim.server.gateway.leads:
                    yield (
                        f"{name} connects to server {number}",
                        _on(LaunchWorld.connect, name, number),
                    )
    if world.servers[world.leader].acts and world.tree.plan(world.node).actions:
        yield "the leader decides", _planned


def recoveries(world: LaunchWorld) -> Iterator[tuple[str, Step]]:
    """Yield the ends of faults."""
    for name, host in world.hosts.items():
        if host.is_frozen:
            yield f"{name} thaws", _on(_thaw, name)
        if host.is_cut and not world.scope.faults.blackouts:
            yield f"{name} is reached again", _on(_reach, [name], True)
        if not host.is_up:
            yield f"the agent of {name} starts again", _on(_start_agent, name)
    if world.scope.faults.blackouts and any(host.is_cut for host in world.hosts.values()):
        yield "all hosts are reached again", _on(_reach, world.hosts, True)
    for number, sim in enumerate(world.servers):
        if sim.is_paused:
            yield f"server {number} goes on", _on(_resume, number)
        if not sim.is_up and number != world.leader:
            yield f"server {number} starts again", _on(_start_server, number)


def faults(world: LaunchWorld) -> Iterator[tuple[str, Step]]:
    """Yield the faults that the scope still allows."""
    left = world.faults
    for name, host in world.hosts.items():
        running = [key for key, a in host.agent.attempts.items() if a.is_alive and not a.is_dying]
        if left.breaks and host.link is not None and host.acts and not host.is_cut:
            yield f"the stream of {name} breaks", _fault("breaks", LaunchWorld.break_link, name)
        if left.cuts and not host.is_cut:
            yield f"{name} is cut off", _fault("cuts", _reach, [name], False)
        if left.freezes and not host.is_frozen:
            yield f"{name} stands still", _fault("freezes", _freeze, name)
        if left.agent_crashes and host.acts:
            yield f"the agent of {name} crashes", _fault("agent_crashes", _crash_agent, name)
        if left.deaths:
            yield f"{name} dies and forgets", _fault("deaths", _die, name, False)
        if left.reboots:
            yield f"{name} dies", _fault("reboots", _die, name, True)
        if left.refusals and host.acts and host.agent.preparing:
            yield f"{name} refuses", _fault("refusals", _with_agent, SteppedAgent.refuse, name)
        if host.is_frozen:
            continue
        for key in running:
            if left.rank_failures:
                words = f"a rank of attempt {key.attempt} on {name} fails"
                yield words, _fault("rank_failures", LaunchWorld.rank_ends, name, key, 1, 0)
            if left.rank_ends:
                words = f"the ranks of attempt {key.attempt} on {name} end well"
                yield words, _fault("rank_ends", LaunchWorld.rank_ends, name, key, 0, 0)
    for number, sim in enumerate(world.servers):
        if number == world.leader or not sim.acts or sim.server.writer.term is not None:
            continue
        if left.successions:
            words = f"the leader stands still, server {number} takes the lead"
            yield words, _fault("successions", _succeed, number, False)
        if left.crashes:
            words = f"the leader crashes, server {number} takes the lead"
            yield words, _fault("crashes", _succeed, number, True)
    if left.crashes and len(world.servers) == 1:
        yield "the server crashes and starts again", _fault("crashes", _restart, 0)
    if left.blackouts:
        yield (
            "the servers are cut off from all hosts",
            _fault("blackouts", _reach, world.hosts, False),
        )
    if left.commands and world.servers[world.leader].acts:
        command = world.scope.commands[-left.commands]
        words = f"an operator gives {type(command).__name__}"
        yield words, _fault("commands", LaunchWorld.command, command)


def _on(step: Callable[..., Any], *arguments: Any) -> Step:
    return lambda world: step(world, *arguments)


def _fault(kind: str, step: Callable[..., Any], *arguments: Any) -> Step:
    def happen(world: LaunchWorld) -> None:
        world.faults = world.faults.less(kind)
        step(world, *arguments)

    return happen


def _planned(world: LaunchWorld) -> None:
    if not world.plan():
        raise Broken("a plan does not hold on its own version")


def _with_agent(world: LaunchWorld, step: Callable[[SteppedAgent], None], name: str) -> None:
    step(world.hosts[name].agent)


def _reach(world: LaunchWorld, names: Iterable[str], is_reached: bool) -> None:
    for name in names:
        world.hosts[name].is_cut = not is_reached


def _freeze(world: LaunchWorld, name: str) -> None:
    world.hosts[name].is_frozen = True


def _thaw(world: LaunchWorld, name: str) -> None:
    host = world.hosts[name]
    host.is_frozen = False
    if host.acts:
        host.agent.tick()


def _crash_agent(world: LaunchWorld, name: str) -> None:
    world.hosts[name].is_up = False
    if world.hosts[name].is_cut and world.hosts[name].link is not None:
        world.hosts[name].link = None  # the server does not learn of it
        return
    world.break_link(name)


def _start_agent(world: LaunchWorld, name: str) -> None:
    host = world.hosts[name]
    host.agent = host.agent.started_anew()
    host.is_up = True
    world._wire()
    host.agent.tick()


def _die(world: LaunchWorld, name: str, remembers: bool) -> None:
    """It is off, and will come up with nothing running."""
    host = world.hosts[name]
    host.link = None  # the server learns of it by silence
    for attempt in host.agent.attempts.values():
        if attempt.is_alive:
            attempt.rank_ends()
    if not remembers:
        host.agent, host.term = SteppedAgent(name), 0
        host.was_lost = True
        world._wire()
    host.is_up, host.is_frozen = False, False


def _succeed(world: LaunchWorld, number: int, has_crashed: bool) -> None:
    before = world.leader
    world.term += 1
    if has_crashed:
        world.crash_server(before)
    else:
        world.servers[before].is_paused = True
    world.lead(number)


def _restart(world: LaunchWorld, number: int) -> None:
    world.crash_server(number)
    world.servers[number].is_up = True
    world.term += 1
    world.lead(number)


def _resume(world: LaunchWorld, number: int) -> None:
    sim = world.servers[number]
    sim.is_paused = False
    sim.server.gateway._excuse(world.now_s)
    world.settle_server(number)


def _start_server(world: LaunchWorld, number: int) -> None:
    world.servers[number].is_up = True


class Launches:
    """The model of launches. `is_strict`: no two attempts of a job may run, not even where one of
    them is on a host that nobody reaches."""

    def __init__(self, scope: LaunchScope, *, is_strict: bool = False) -> None:
        self._scope = scope
        self._is_strict = is_strict
        self._tree = LogTree(scope.hosts)
        self._settled: dict[Hashable, str] = {}

    def start(self) -> LaunchWorld:
        Clock.now_s = 1_000.0
        world = LaunchWorld(self._scope, self._tree, self._tree.root)
        world.lead(0)
        for name, hosts, spares in self._scope.jobs:
            made = spec(name, hosts, gpus=1, spares=exactly(spares))
            run = RunSpec(("train",), grace_s=GRACE_S, per_host=1)
            world.command(SubmitJob(replace(made, run=run), f"uid-{name}"))
        world.plan()
        for name in world.hosts:  # all agents are there
            world.connect(name, 0)
            world.hear_agent(name)
            while (link := world.hosts[name].link) and link.to_agent:
                world.hear_server(name)
        return world

    def key(self, state: LaunchWorld) -> Hashable:
        return state.key()

    def steps(self, state: LaunchWorld) -> Iterator[tuple[str, LaunchWorld]]:
        is_quiet = True
        for words, step in quick(state):
            is_quiet = False
            yield words, _stepped(state, step)
        for words, step in (*recoveries(state), *faults(state)):
            yield words, _stepped(state, step)
        if is_quiet:
            yield "a lease passes", _stepped(state, LaunchWorld.tick)

    def broken(self, state: LaunchWorld) -> str:
        Clock.now_s = state.now_s
        return state.broken() or (state.overlap() if self._is_strict else "")

    def unsettled(self, state: LaunchWorld) -> str:
        """Run on without faults, paused parts first, then the first step that there is, then time;
        return what never recovers."""
        world, way = state.clone(), list[Hashable]()
        seen_at_rest: Hashable = None
        for _ in range(_MOST_SETTLING):
            key = world.key()
            if key in self._settled:
                break
            way.append(key)
            step = next(recoveries(world), None) or next(quick(world), None)
            Clock.now_s = world.now_s
            if step is not None:
                step[1](world)
                if fault := world.broken():
                    self._settled[key] = fault
                    break
                continue
            if key == seen_at_rest:
                self._settled[key] = self._at_rest(world)
                break
            seen_at_rest = key
            world.tick()
        else:
            self._settled[key] = "it goes on for ever"
        fault = self._settled[key]
        self._settled.update(dict.fromkeys(way, fault))
        return fault

    def _at_rest(self, world: LaunchWorld) -> str:
        state = world.node.state
        running: dict[str, Key] = {}
        for job in state.in_state(JobState.QUEUED, JobState.RUNNING, JobState.INTERRUPTED):
            names = state.loaded_fabric.names(job.hosts)
            if job.state is JobState.INTERRUPTED:
                return f"{job.name} stands still for ever"
            if job.state is JobState.RUNNING:
                running |= dict.fromkeys(names, Key(job.uid, job.attempt))
                if job.present.launched_ns is None:
                    return f"{job.name} has its hosts for ever, and is not launched"
        for name, host in world.hosts.items():
            alive, wanted = host.agent.alive(), running.get(name)
            if wanted is not None and alive != [wanted]:
                return f"{wanted.folder_name} does not run on {name}: {alive}"
            if wanted is None and alive:
                return f"{alive[0].folder_name} runs on {name} for ever, and nobody wants it"
            left = [key for key in host.agent.attempts if key != wanted]
            if left:
                return f"{name} is never told to forget {left[0].folder_name}"
        waiting = [job.name for job in state.in_state(JobState.QUEUED)]
        if waiting and state.free.bit_count() >= min(
            job.request.parallelism.world_size for job in state.in_state(JobState.QUEUED)
        ):
            return f"{waiting[0]} waits for ever beside free hosts"
        return ""


def _stepped(state: LaunchWorld, step: Step) -> LaunchWorld:
    world = state.clone()
    Clock.now_s = world.now_s
    step(world)
    return world


def cancel(name: str) -> Command:
    return CancelJob(name)


def drain(host: str) -> Command:
    return MoveHost(host, HostMove.DRAIN)
