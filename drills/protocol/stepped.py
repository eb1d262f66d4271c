"""muster's agent, its launcher, and its two ends of a gateway, as parts that a search can step,
copy and compare.

The rules are those of Agent, HostAttempt, AgentLauncher, AgentSessions and Gateway themselves; only
what touches processes, files, sockets and the event loop is replaced.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler.agent import agent as agent_module
from scheduler.agent.agent import Agent, Preparation
from scheduler.agent.ranks.attempt import HostAttempt, Key, Phase, RankExit
from scheduler.agent.ranks.rank_times import ComputedStep
from scheduler.core import State, admit
from scheduler.core.model.commands import EndJob, MoveHost, ReportHost, RequeueJob
from scheduler.engine.proposal import Answer
from scheduler.launch.gangs.ending import EndingAttempt, EndingAttempts
from scheduler.launch.gangs.gang import LaunchedGang
from scheduler.launch.gangs.reports import LaunchReports
from scheduler.launch.launcher import AgentLauncher, AgentSettings
from scheduler.launch.streams.frames import Frame, FrameKind
from scheduler.launch.streams.gateway import Gateway, GatewayOptions
from scheduler.launch.streams.sessions import AgentSessions
from scheduler.observe.supervision import Heartbeats
from scheduler.v1 import agent_pb2

LEASE_S = 10.0
TICK_S = 11.0  # a lease and a little
_FAR = 150.0  # seconds after which it makes no difference any more how long ago something was
_OPTIONS = GatewayOptions("127.0.0.1:0", is_insecure=True)
_NOWHERE = Path("/nonexistent/muster-protocol")
Send = Callable[[str, int, bytes], None]  # to an agent: its host, number of the stream, message


class Clock:
    """The clock of the state that is being stepped."""

    now_s = 1_000.0


def now_s() -> float:
    return Clock.now_s


@contextmanager
def stepped_clock() -> Iterator[None]:
    """Let agents read the clock of the search."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent_module, "now_s", now_s)
        yield


def ago(at_s: float) -> float:
    """Return the seconds since `at_s`, negative for a time to come, and `_FAR` at most: no deadline
    is longer, so states that differ beyond it are alike."""
    return max(-_FAR, min(_FAR, Clock.now_s - at_s))


# --- a host ---------------------------------------------------------------------------------------


class SteppedAttempt(HostAttempt):
    """An attempt whose rank is a flag. `is_alive`: the rank runs; `is_dying`: it has been
    killed."""

    def __init__(self, key: Key, order: dict[str, Any]) -> None:
        super().__init__(key, _NOWHERE, order)
        self.is_alive = self.is_dying = False
        self.ends: tuple[int, int] | None = None  # (code, signal) with which the rank has ended
        self._supervisor_begun = -1  # of no process

    def clone(self) -> SteppedAttempt:
        other = copy.copy(self)
        other.exits = list(self.exits)
        return other

    def key_of_state(self) -> tuple[Any, ...]:
        until = None if self.kill_s is None else ago(self.kill_s)
        exits = tuple((done.rank, done.code, done.signal) for done in self.exits)
        return (*self.key, self.phase, self.is_alive, self.is_dying, self.ends, exits, until)

    def write_order(self) -> None:
        pass

    def launch(self, warm: Any) -> None:
        self.phase = Phase.STARTING
        self.is_alive = True

    def look(self) -> list[RankExit]:
        if not self.has_processes:
            return []
        self.phase, self.has_started = Phase.STARTED, True
        if self.is_alive:
            return []
        code, number = self.ends or (0, 9)
        new = [RankExit(self.order["ranks"][0]["rank"], code, number, 2**62)]
        self.exits += new
        self._over()
        return new

    def look_at_progress(self) -> bool:
        return False

    def look_at_times(self, now_s: float) -> list[ComputedStep]:
        return []  # nobody is slow here

    def ask_to_save(self, left_s: float | None = None) -> None:
        pass

    def stop(self, grace_s: float, now_s: float) -> None:
        super().stop(grace_s, now_s)
        self.is_dying |= self.has_processes and self.is_alive

    def kill(self, now_s: float) -> None:
        self.is_dying |= self.is_alive

    def release(self) -> None:
        pass

    def forget(self) -> None:
        pass

    def rank_ends(self, code: int = 0, number: int = 9) -> None:
        """End the rank; the agent has yet to notice."""
        self.is_alive = self.is_dying = False
        self.ends = (code, number)

    def _over(self) -> None:
        self.phase = Phase.STOPPED


class _Preparation:
    """As the task of Agent._make_ready."""

    def __init__(self, key: Key, wanted: agent_pb2.Prepare) -> None:
        self.key, self.wanted = key, wanted
        self.is_cancelled = False

    def clone(self) -> _Preparation:
        return _Preparation(self.key, self.wanted)

    def cancel(self) -> None:
        self.is_cancelled = True

    def add_done_callback(self, _: Any) -> None:
        pass


class _LeaseFile:
    """As the file of a lease and its path. `text`: what is in it."""

    def __init__(self) -> None:
        self.text = ""

    def with_suffix(self, _: str) -> _LeaseFile:
        return self

    def replace(self, _: _LeaseFile) -> None:
        pass

    def write_text(self, text: str, encoding: str) -> None:
        self.text = text

    def read_text(self, encoding: str) -> str:
        return self.text


class SteppedAgent(Agent):
    """An agent that runs step by step. `on_start`: is called with each attempt whose ranks
    start."""

    on_start: Callable[[Key], None]

    def __init__(self, host: str) -> None:
        self.host, self.address, self.place = host, host, {}
        self.say = lambda _: None
        self.beat_s = 1.0
        self._epoch, self._lease_s, self._is_given_up = 0, 0.0, False
        self._keeps_ranks = self._has_lapsed = False
        self._epoch_file: Any = SimpleNamespace(write_text=lambda *_, **__: None)
        self._lease_file: Any = _LeaseFile()
        self._cgroups: Any = SimpleNamespace(path=None)
        self._root: Any = SimpleNamespace(iterdir=list)
        self._over: Any = SimpleNamespace(set=lambda: None)
        self.has_expired: Any = self._over
        self.has_finished: Any = self._over
        self._socket_path = self._engine = ""
        self._own_container: Any = None
        self.is_for_one, self._only, self._begun_s = False, None, 0.0
        self._attempts: Any = {}
        self._preparing: Any = {}
        self._failing: Any = set()
        self._tails: Any = {}
        self._warm: Any = {}
        self.prober: Any = SimpleNamespace(begins=lambda *_, **__: False)
        self._channels: Any = SimpleNamespace(close=lambda *_: None)
        self.on_start = lambda _: None

    @property
    def attempts(self) -> dict[Key, SteppedAttempt]:
        return self._attempts  # type: ignore[no-any-return]

    @property
    def preparing(self) -> dict[Key, Preparation]:
        return self._preparing  # type: ignore[no-any-return]

    @property
    def may_run(self) -> bool:
        return self._keeps_ranks or self._lease_s > Clock.now_s

    def clone(self) -> SteppedAgent:
        other = copy.copy(self)
        other._attempts = {key: attempt.clone() for key, attempt in self.attempts.items()}
        other._preparing = {
            key: Preparation(preparation.task.clone(), preparation.gpus)
            for key, preparation in self._preparing.items()
        }
        other._lease_file = copy.copy(self._lease_file)
        return other

    def key_of_state(self) -> tuple[Any, ...]:
        lease = ago(self._lease_s) if self._lease_s else None
        attempts = tuple(sorted(a.key_of_state() for a in self.attempts.values()))
        given_up = self._is_given_up, self._keeps_ranks
        return self._epoch, lease, given_up, attempts, tuple(sorted(self.preparing))

    def started_anew(self) -> SteppedAgent:
        """Return the agent as after a crash: it knows only what the folders of its attempts say."""
        other = SteppedAgent(self.host)
        other._epoch = self._epoch
        other._lease_file = copy.copy(self._lease_file)
        other._attempts = {key: attempt.clone() for key, attempt in self.attempts.items()}
        for attempt in other.attempts.values():
            attempt.kill_s = None
            if attempt.has_processes:
                attempt.look()
            if attempt.has_processes:
                other._lease_s = other._lease_found()
        return other

    def alive(self) -> list[Key]:
        """Return the attempts whose ranks run here."""
        return [key for key, attempt in self.attempts.items() if attempt.is_alive]

    def hear_word(self, body: bytes) -> None:
        """Carry out a message of the server. Raises: StaleLeader."""
        self.hear(agent_pb2.SessionResponse.FromString(body))
        self.drop_cancelled()

    def drop_cancelled(self) -> None:
        for key, preparation in list(self._preparing.items()):
            if preparation.task.is_cancelled:
                del self.preparing[key]

    def prepare(self) -> None:
        """Start the attempts whose GPUs are free, as `_make_ready` does once it runs."""
        for key, preparation in list(self._preparing.items()):
            if self._end_others(key, preparation.gpus):
                wanted = preparation.task.wanted
                env = {"WORLD_SIZE": str(wanted.world_size)}
                order: dict[str, Any] = {
                    "port": 0 if wanted.node else 4_000,
                    "env": env,
                    "warm": [],
                }
                order |= {"ranks": [{"rank": wanted.first_rank}], "gpus": list(wanted.gpus)}
                self.attempts[key] = made = SteppedAttempt(key, order)
                del self.preparing[key]
                self.say(agent_pb2.SessionRequest(prepared=self._prepared(made)))

    def refuse(self) -> None:
        """Refuse to prepare an attempt."""
        for key in list(self.preparing):
            del self.preparing[key]
            self._refuse(key, "there is no program")

    def tick(self) -> None:
        """Do what is due by the clock, as `run` does."""
        self._check_lease()
        self.drop_cancelled()
        self._look()

    def look(self) -> None:
        self._look()

    def _make_ready(self, key: Key, wanted: agent_pb2.Prepare, port: int) -> Any:
        return _Preparation(key, wanted)

    def _spawn(self, work: Any) -> Any:
        if isinstance(work, _Preparation):
            self._supersede(work.key, frozenset(work.wanted.gpus))
            self.drop_cancelled()
            return work
        with pytest.raises(StopIteration):  # a launch waits for nothing
            work.send(None)
        return None

    async def _launch(self, wanted: agent_pb2.Launch) -> None:
        before = self.alive()
        await super()._launch(wanted)
        for key in self.alive():
            if key not in before:
                self.on_start(key)


# --- a server ------------------------------------------------------------------------------------


class SteppedStream:
    """A stream as AgentStream, which passes what is sent to `send`."""

    def __init__(self, host: str, number: int, send: Send) -> None:
        self.host, self.number, self.send = host, number, partial(send, host, number)
        self.heard_s, self.lease_s = Clock.now_s, 0.0
        self.reason = ""
        self.end = SimpleNamespace(set=lambda: None)


class SteppedGateway(Gateway):
    def __init__(self) -> None:
        self.told: list[Frame] = []
        super().__init__(_OPTIONS, self.told.append, now_s)

    @property
    def streams(self) -> dict[str, Any]:
        return self._streams

    @property
    def leads(self) -> bool:
        return self._epoch is not None

    def admit_stream(self, stream: Any, hello: bytes) -> None:
        """Admit a stream by its first message, as `session` does."""
        self._drop(stream.host, "another stream is open for this host")
        self._streams[stream.host] = stream
        self._broken_s.pop(stream.host, None)
        self._lease(stream, Clock.now_s)
        self._tell(Frame(FrameKind.HELLO, stream.host, hello))

    def stream_ends(self, host: str, number: int) -> None:
        """End a stream that breaks, as `session` does."""
        if host in self._streams and self.streams[host].number == number:
            del self._streams[host]
            self._broken_s[host] = Clock.now_s
            self._tell(Frame(FrameKind.BROKEN, host))

    def key_of_state(self) -> tuple[Any, ...]:
        streams = sorted(
            (host, s.number, ago(s.heard_s), ago(s.lease_s)) for host, s in self.streams.items()
        )
        broken = sorted((host, ago(since_s)) for host, since_s in self._broken_s.items())
        return self._epoch, tuple(streams), tuple(broken)


class SteppedSessions(AgentSessions):
    def __init__(self, gateway: SteppedGateway) -> None:
        super().__init__(_OPTIONS, Heartbeats())
        self.gateway = gateway
        self.on_launch: Callable[[str, Key], None] = lambda *_: None

    def send(self, host: str, message: agent_pb2.SessionResponse) -> None:
        if message.WhichOneof("message") == "probe_host":
            return  # a probe changes nothing of what is searched here
        if message.WhichOneof("message") == "launch" and host in self.connected:
            self.on_launch(host, Key(message.launch.key.job_uid, message.launch.key.attempt))
        super().send(host, message)

    def _tell(self, frame: Frame) -> None:
        self.gateway.hear(frame)

    def hear(self, frame: Frame) -> None:
        self._hear(frame)


class SteppedReports(LaunchReports):
    """Collect checks of what to write in `pending_checks` until the model carries them out."""

    def __init__(self, pending_checks: Iterable[Callable[[State, int], Answer]] = ()) -> None:
        self.pending_checks = list(pending_checks)

    def carry_out(
        self, check: Callable[[State, int], Answer], then: Callable[[], None] | None = None
    ) -> None:
        self.pending_checks.append(check)
        if then is not None:
            then()

    def submit(self, command: EndJob | MoveHost | ReportHost | RequeueJob) -> None:
        self.pending_checks.append(lambda state, now_ns: admit(state, command, now_ns))


class SteppedLauncher(AgentLauncher):
    """A launcher that reports by SteppedReports."""

    _reports: SteppedReports

    @property
    def pending_checks(self) -> list[Callable[[State, int], Answer]]:
        return self._reports.pending_checks

    def key_of_state(self) -> tuple[Any, ...]:
        gangs = tuple(sorted(_gang_key(gang) for gang in self._gangs.values()))
        leaving = tuple(
            sorted(
                (_gang_key(e.gang), *sorted(e.hosts), e.grace_s, ago(e.until_s), e.is_saving)
                for e in self._ending.attempts
            )
        )
        times = ago(self._led_s), ago(self._looked_s) > 1.0
        silent = self._cut_off
        judged = ago(silent._judged_s) if silent.hosts else 0.0
        silences = sorted(silent._domains_by_host.items()), sorted(silent._counts.items())
        cut = *silences, silent._launched, judged
        hosts = tuple(sorted(self._seen)), tuple(sorted(self._ran_on))
        return gangs, leaving, times, hosts, cut


def _gang_key(gang: LaunchedGang) -> tuple[Any, ...]:
    first = min(gang.failures.values()).rank if gang.failures else -1
    return (
        gang.uid,
        gang.attempt,
        gang.phase,
        ago(gang.since_s),
        tuple(sorted(gang.by_host.items())),
        tuple(sorted(gang.refusals)),
        tuple(sorted(gang.done)),
        tuple(sorted(gang.failures)),
        first,
        next(iter(gang.masters.values()), ()),
    )


class _ServerWriter:
    """As much of the writer as the launcher asks."""

    def __init__(self, state: State) -> None:
        self.state, self.now = state, 0
        self.term: int | None = None
        self.leader = ""
        self.instruments = SimpleNamespace(beats=Heartbeats())

    def now_ns(self) -> int:
        return self.now


class LaunchServer:
    """A server as agents see it: launcher, sessions and gateway on a state of the log."""

    def __init__(self, state: State, *, keeps_ranks: bool = True) -> None:
        self.writer = _ServerWriter(state)
        self.gateway = SteppedGateway()
        self.sessions = SteppedSessions(self.gateway)
        writer: Any = self.writer
        settings = AgentSettings(_OPTIONS, LEASE_S, keeps_ranks=keeps_ranks)
        self.launcher = SteppedLauncher(writer, self.sessions, settings, now_s)
        self.launcher._reports = SteppedReports()

    def clone(self, send: Send) -> LaunchServer:
        """Copy the server. `send`: takes messages of the copy's streams."""
        other = copy.copy(self)
        other.writer = copy.copy(self.writer)
        other.gateway = gateway = copy.copy(self.gateway)
        gateway.told = []
        gateway._tell = gateway.told.append
        gateway._broken_s = dict(self.gateway._broken_s)
        gateway._streams = {}
        for host, stream in self.gateway.streams.items():
            new = gateway.streams[host] = copy.copy(stream)
            new.send = partial(send, host, stream.number)
        other.sessions = sessions = copy.copy(self.sessions)
        sessions.gateway = gateway
        sessions.connected = set(self.sessions.connected)
        other.launcher = self._launcher_for(other)
        return other

    def _launcher_for(self, server: LaunchServer) -> SteppedLauncher:
        old, new = self.launcher, copy.copy(self.launcher)
        writer: Any = server.writer
        new._writer, new._sessions = writer, server.sessions
        new._gangs = {uid: _cloned(gang) for uid, gang in old._gangs.items()}
        new._ending = EndingAttempts(
            server.sessions, now_s, LEASE_S, new._write_down, new._has_left
        )
        new._ending.attempts = [
            EndingAttempt(_cloned(e.gang), set(e.hosts), e.grace_s, e.until_s, None, e.is_saving)
            for e in old._ending.attempts
        ]
        new._seen, new._ran_on = set(old._seen), set(old._ran_on)
        new._cut_off = copy.copy(old._cut_off)
        new._cut_off._domains_by_host = dict(old._cut_off._domains_by_host)
        new._cut_off._counts = dict(old._cut_off._counts)
        new._checkpoints = copy.copy(old._checkpoints)
        new._checkpoints._newest = dict(old._checkpoints._newest)
        new._reports = SteppedReports(old.pending_checks)
        if server.sessions._listener is not None:
            server.sessions._listener = new
        return new

    def hear_gateway(self) -> None:
        """Hand the gateway's messages to the sessions."""
        while self.gateway.told:
            self.sessions.hear(self.gateway.told.pop(0))

    def key_of_state(self) -> tuple[Any, ...]:
        connected = tuple(sorted(self.sessions.connected))
        term = self.writer.term
        return term, connected, self.gateway.key_of_state(), self.launcher.key_of_state()


def _cloned(gang: LaunchedGang) -> LaunchedGang:
    new = copy.copy(gang)
    new.refusals, new.done = dict(gang.refusals), set(gang.done)
    new.failures, new.left = dict(gang.failures), set(gang.left)
    new._by_host, new._counts = dict(gang._by_host), copy.copy(gang._counts)
    return new
