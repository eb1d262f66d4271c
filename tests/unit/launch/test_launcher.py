"""The launcher by itself: words of agents in, words to agents and events out, on a test's clock."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from placement.fabric.reader import from_spec
from placement.workload.request import NO_SPARES, SpareRule
from scheduler.core import JobState, Rejected, SchedulingOptions, State, admit, decide
from scheduler.core.fold.apply import apply
from scheduler.core.fold.attempts import EffectReader
from scheduler.core.fold.effects import JobChange
from scheduler.core.model.commands import Command, ReportHost, SubmitJob
from scheduler.core.model.events import (
    CheckpointSaved,
    Event,
    FabricLoaded,
    GangHung,
    GangLaunched,
    HostSignalled,
    JobEnded,
    JobRequeued,
    LaunchFailed,
    RankFailed,
)
from scheduler.core.model.lifecycle import Hold, HostState
from scheduler.core.model.state import Host
from scheduler.core.policies.job_terms import HangAction, HangTerms, RunSpec, StopCause
from scheduler.identity import SERVER, Caller, Role, act_for
from scheduler.launch.channels import AgentChannels
from scheduler.launch.gangs import orders
from scheduler.launch.gangs.checkpoints import LOG_EVERY_S
from scheduler.launch.gangs.ending import MOST_SAVE_S
from scheduler.launch.launcher import AgentLauncher, AgentSettings
from scheduler.launch.streams.gateway import GatewayOptions
from scheduler.observe.incidents import incident_of
from scheduler.observe.instruments import Instruments
from scheduler.v1 import agent_pb2
from tests.build import (
    cancel,
    committed,
    drain,
    exactly,
    fabric,
    job,
    spec,
    submit,
)

GPUS, LEASE_S = 8, 10.0
Request = agent_pb2.SessionRequest


class Sessions:
    """As the server's end of a gateway: whose agents are there, and what they are sent."""

    def __init__(self) -> None:
        self.connected: set[str] = set()
        self.sent: list[tuple[str, agent_pb2.SessionResponse]] = []
        self.dropped: list[str] = []

    def send(self, host: str, message: agent_pb2.SessionResponse) -> None:
        if host in self.connected:
            self.sent.append((host, message))

    def lead(self, *_: Any, **__: Any) -> None:
        pass

    def drop(self, host: str, reason: str) -> None:
        self.connected.discard(host)
        self.dropped.append(f"{host}: {reason}")


class World:
    """A log, its scheduler, a launcher and a fabric of agents, which say what a test has them say.
    As the writer does, it applies what is found true and tells the launcher of it."""

    def __init__(
        self, hosts: int, zones: int = 1, site: orders.SiteTerms = orders.NO_TERMS
    ) -> None:
        act_for(Caller(SERVER, Role.ADMIN))
        self.events: list[Event] = []
        self.now_s = 0.0
        self.state = State.empty()
        self._effects = EffectReader()
        self.instruments = Instruments()
        self.sessions = Sessions()
        self.launcher = self._new_launcher(site)
        self._write(FabricLoaded(0, fabric(zones, 1, hosts, gpus=GPUS).spec))

    # --- as a writer ---------------------------------------------------------------------

    def now_ns(self) -> int:
        return round(self.now_s * 1e9)

    async def submit(self, command: Command) -> State | Rejected:
        events = admit(self.state, command, self.now_ns())
        if isinstance(events, Rejected):
            return events
        self._write(*events)
        return self.state

    async def carry_out(self, check: Callable[[State, int], Any]) -> Any:
        events = check(self.state, self.now_ns())
        if not isinstance(events, Rejected):
            self._write(*events)
        return events

    def _write(self, *events: Event) -> None:
        for event in events:
            self.events.append(event)
            self.state = apply(self.state, event)
            for effect in self._effects.read(event, self.state):
                if isinstance(effect, JobChange):
                    self.launcher.feed(effect)

    # --- as everybody else ------------------------------------------------------------------

    async def give(self, *commands: Command) -> None:
        """Commands of callers, and what the scheduler then decides."""
        for command in commands:
            answer = await self.submit(command)
            assert not isinstance(answer, Rejected), answer
        await self.settle()

    async def settle(self) -> None:
        """Until nothing more is written."""
        seen = -1
        while seen != len(self.events):
            seen = len(self.events)
            for _ in range(3):
                await asyncio.sleep(0)
            plan = decide(self.state, self.now_ns(), SchedulingOptions())
            self._write(*committed(self.state, plan, self.now_ns()))

    async def after(self, seconds: float) -> None:
        self.now_s += seconds
        self.launcher.tick()
        await self.settle()

    def join(self, *hosts: str, attempts: tuple[agent_pb2.AttemptStatus, ...] = ()) -> None:
        """Agents introduce themselves."""
        for host in hosts or self.state.loaded_fabric.hosts:
            self.sessions.connected.add(host)
            self.launcher.on_hello(host, agent_pb2.Hello(host=host, attempts=attempts))

    def running(self) -> agent_pb2.AttemptStatus:
        """What an agent says of the present attempt of gang a when it comes back."""
        phase = agent_pb2.ATTEMPT_PHASE_STARTED
        return agent_pb2.AttemptStatus(key=self.key(), phase=phase)

    def lead_anew(self) -> AgentLauncher:
        """Another leader, which has reached no agent yet."""
        self.sessions.connected.clear()
        self.launcher = self._new_launcher()
        return self.launcher

    def _new_launcher(self, site: orders.SiteTerms = orders.NO_TERMS) -> AgentLauncher:
        writer: Any = self
        sessions: Any = self.sessions
        settings = AgentSettings(GatewayOptions(""), LEASE_S, may_join=True, site=site)
        return AgentLauncher(writer, sessions, settings, lambda: self.now_s)

    def breaks(self, host: str) -> None:
        self.sessions.connected.discard(host)
        self.launcher.on_broken(host)

    def say(self, host: str, **word: Any) -> None:
        self.launcher.on_word(host, Request(**word))

    def refuse(self, host: str, reason: str, **more: bool) -> None:
        self.say(host, refused=agent_pb2.Refused(key=self.key(), reason=reason, **more))

    def words(self, kind: str = "") -> list[tuple[str, Any]]:
        """(host, what it was sent) since the last call; of one kind, or all by their names."""
        sent, self.sessions.sent = self.sessions.sent, []
        rows = [(host, message.WhichOneof("message"), message) for host, message in sent]
        if not kind:
            return [(host, name) for host, name, _ in rows]
        return [(host, getattr(message, kind)) for host, name, message in rows if name == kind]

    async def lose(self, *hosts: str) -> None:
        """Nothing was heard of these hosts for a lease."""
        self.launcher.on_silent(hosts)
        for host in hosts:
            self.sessions.connected.discard(host)
            self.launcher.on_lost(host)
        await self.settle()

    async def prepared(self, name: str = "a") -> None:
        """All hosts of a gang say that they are ready."""
        for host in self.hosts(name):
            ready = agent_pb2.Prepared(key=self.key(name), address=f"ip-{host}", port=4_000)
            self.say(host, prepared=ready)
        await self.settle()

    async def launched(self, name: str = "a") -> None:
        """From the start until all ranks have started."""
        await self.prepared(name)
        for host in self.hosts(name):
            self.say(host, started=agent_pb2.Started(key=self.key(name)))
        await self.settle()
        assert job(self.state, name).present.launched_ns is not None
        self.words()

    async def exited(self, host: str, rank: int, code: int = 0, **more: Any) -> None:
        key = more.pop("key", None) or self.key()
        age_s = more.pop("age_s", 0.0)
        word = agent_pb2.Exited(key=key, rank=rank, code=code, **more)
        word.age.FromMilliseconds(round(age_s * 1_000))
        self.say(host, exited=word)
        await self.settle()

    async def stopped(self, *hosts: str, key: agent_pb2.AttemptKey | None = None) -> None:
        for host in hosts:
            self.say(host, stopped=agent_pb2.Stopped(key=key or self.key()))
        await self.settle()

    async def saved(self, host: str, step: int, key: agent_pb2.AttemptKey | None = None) -> None:
        word = agent_pb2.Progress(key=key or self.key(), step=step, can_save=True)
        word.checkpoint_step, word.checkpoint = step, f"/c/{step}"
        self.say(host, progress=word)
        await self.settle()

    def hosts(self, name: str = "a") -> tuple[str, ...]:
        return self.state.loaded_fabric.names(self.state.jobs[name].hosts)

    def key(self, name: str = "a") -> agent_pb2.AttemptKey:
        known = self.state.jobs[name]
        return agent_pb2.AttemptKey(job_uid=known.uid, attempt=known.attempt)

    def host(self, name: str) -> Host:
        return self.state.host(self.state.loaded_fabric.index_by_name[name])

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def gang(
    name: str = "a",
    hosts: int = 2,
    *,
    per_host: int = 1,
    gpus: int = GPUS,
    spares: SpareRule = NO_SPARES,
    **terms: Any,
) -> SubmitJob:
    """A job whose ranks train. `terms`: fields of its specification."""
    run = RunSpec(("train",), grace_s=20, per_host=per_host)
    made = replace(spec(name, hosts, gpus=gpus, spares=spares), run=run, **terms)
    return SubmitJob(made, f"uid-{name}")


async def given(made: World, *commands: Command) -> World:
    """A fabric all of whose agents are there, once these were decided."""
    made.join()
    await made.give(*commands)
    return made


@pytest.fixture
async def world() -> World:
    """Four hosts with agents, of which a gang has two and a spare."""
    return await given(World(4), gang(spares=exactly(1)))


async def test_a_gang_is_prepared_then_launched_together_then_in_the_log(world: World) -> None:
    first, second = world.hosts()
    wanted = dict(world.words("prepare"))
    assert list(wanted) == [first, second]
    told = [(w.node, w.first_rank, w.ranks, w.world_size) for w in wanted.values()]
    assert told == [(0, 0, 8, 16), (1, 8, 8, 16)]
    world.say(first, prepared=agent_pb2.Prepared(key=world.key(), address="x", port=7_000))
    assert world.words() == []  # one alone starts nothing
    world.say(second, prepared=agent_pb2.Prepared(key=world.key(), address="y"))
    launches = world.words("launch")
    assert [host for host, _ in launches] == [first, second]
    told = [(w.master_address, w.master_port, w.checkpoint) for _, w in launches]
    assert told == [("x", 7_000, "")] * 2
    world.say(first, started=agent_pb2.Started(key=world.key()))
    await world.settle()
    assert world.of(GangLaunched) == []
    world.say(second, started=agent_pb2.Started(key=world.key()))
    world.say(second, started=agent_pb2.Started(key=world.key()))
    await world.settle()
    (event,) = world.of(GangLaunched)
    assert (event.name, event.attempt) == ("a", 1)


@pytest.mark.parametrize(
    ("ages_s", "later_s", "rank", "reason"),
    [
        ((0.1, 0.4), 0, 8, "was killed by signal 9"),
        ((0, 0), 0.5, 0, "exited with code 1: ConnectionResetError"),
    ],
    ids=["heard of last", "others were told to end since"],
)
async def test_the_first_failure_is_the_cause_and_all_stop_at_once(
    world: World, ages_s: tuple[float, float], later_s: float, rank: int, reason: str
) -> None:
    await world.launched()
    first, second = world.hosts()
    await world.exited(first, 0, 1, log_tail="ConnectionResetError", age_s=ages_s[0])
    stops = [(host, word.grace.ToNanoseconds()) for host, word in world.words("stop")]
    assert stops == [(first, 0), (second, 0)]
    world.now_s += later_s
    await world.exited(second, 8, signal=9, age_s=ages_s[1])
    assert world.of(RankFailed) == []  # others may have been earlier
    await world.stopped(first, second)
    (event,) = world.of(RankFailed)
    assert (event.rank, event.reason) == (rank, reason)
    assert world.state.jobs["a"].attempt == 2
    assert [host for host, _ in world.words("prepare")] == list(world.hosts())


async def test_the_log_has_a_checkpoint_a_minute_and_the_last_of_each_attempt(world: World) -> None:
    await world.launched()
    first, second = world.hosts()
    for step in range(1, 130):
        await world.after(1.0)
        await world.saved(first, step)
    steps = [event.step for event in world.of(CheckpointSaved)]
    assert steps == [1, LOG_EVERY_S, 2 * LOG_EVERY_S]
    await world.after(1.0)
    await world.exited(first, 0, 1)
    await world.stopped(first, second)
    last = world.of(CheckpointSaved)[-1]
    assert (last.attempt, last.step) == (1, 129)
    await world.prepared()
    launches = world.words("launch")
    assert {(w.checkpoint_step, w.checkpoint) for _, w in launches} == {(129, "/c/129")}
    await world.launched()
    await world.saved(first, 130)
    assert world.of(CheckpointSaved)[-1] is last  # its minute is not over
    await world.after(LOG_EVERY_S)
    assert world.of(CheckpointSaved)[-1].step == 130


async def test_a_host_that_cannot_start_it_costs_an_attempt_and_none_that_can_the_job(
    world: World,
) -> None:
    world.words()
    first, second = world.hosts()
    world.refuse(first, "no program train")
    world.say(second, prepared=agent_pb2.Prepared(key=world.key(), address="y"))
    await world.settle()
    (event,) = world.of(LaunchFailed)
    assert (event.host, event.reason) == (first, "no program train")
    assert world.state.jobs["a"].attempt == 2
    assert {host for host, _ in world.words("stop")} >= {second}
    await world.stopped(first, second, key=agent_pb2.AttemptKey(job_uid="uid-a", attempt=1))
    for host in world.hosts():
        world.refuse(host, "another tenant", is_passing=True)
    await world.settle()
    assert world.of(JobEnded) == []  # others would start it
    second_key = agent_pb2.AttemptKey(job_uid="uid-a", attempt=2)
    await world.stopped(*world.state.loaded_fabric.hosts, key=second_key)
    for host in world.hosts():
        world.refuse(host, "no program train")
    await world.settle()
    ended = world.of(JobEnded)[-1]
    assert ended.outcome is JobState.FAILED
    assert ended.reason.endswith("no program train")


async def test_a_host_without_an_agent_is_lost_after_a_lease_and_the_spare_steps_in(
    world: World,
) -> None:
    first, second = world.hosts()
    (spare,) = world.state.loaded_fabric.names(world.state.jobs["a"].spares)
    world.breaks(second)
    world.say(first, prepared=agent_pb2.Prepared(key=world.key(), address="x", port=1))
    await world.after(LEASE_S - 0.1)
    assert world.state.jobs["a"].attempt == 1
    await world.after(0.2)
    assert world.state.jobs["a"].attempt == 2
    assert world.hosts() == (first, spare)
    await world.stopped(first, key=agent_pb2.AttemptKey(job_uid="uid-a", attempt=1))
    await world.launched()
    assert world.host(second).signal == "agent-lost"
    world.join(second)
    await world.settle()
    assert world.host(second).signal == ""


async def test_a_leader_that_no_agent_reaches_lets_the_lead_go_ever_more_seldom(
    world: World,
) -> None:
    reasons: list[str] = []
    world.launcher._offer_lead = reasons.append
    await world.launched()
    await world.after(10 * LEASE_S)
    assert reasons == []
    for host in list(world.sessions.connected):
        world.breaks(host)
    times = []
    for _ in range(50):
        await world.after(LEASE_S)
        times.append(len(reasons))
    assert times.index(1) in (3, 4)
    assert reasons[0] == "no agent has reached this server for 40 s: others may"
    assert len(reasons) == 5  # after 3, 6, 12, 24 and 48 leases
    world.join(world.hosts()[0])
    await world.after(2.0)
    world.breaks(world.hosts()[0])
    before = len(reasons)
    for _ in range(6):
        await world.after(LEASE_S)
    assert len(reasons) == before + 1


async def test_a_new_host_is_out_until_its_agent_says_hello() -> None:
    new = World(2)
    new.join("z0-r0-h0")
    await new.after(2.0)
    states = [new.state.host(index).state for index in range(2)]
    assert states == [HostState.HEALTHY, HostState.FAILED]
    assert new.state.host(1).signal == "agent-awaited"
    assert new.state.shown(1).state is HostState.UNKNOWN
    assert list(filter(None, (incident_of(1, event) for event in new.events))) == []
    await new.give(gang(hosts=2))
    assert new.hosts() == ()
    new.join("z0-r0-h1")
    await new.after(2.0)
    assert new.state.host(1).state is HostState.HEALTHY
    assert len(new.hosts()) == 2
    assert new.state.record(1).failures == 0  # it does not count against the host
    assert new.state.faults.failures == 0
    new.launcher._known_hosts.clear()  # as of another leader, who reaches no agent yet
    new.sessions.connected.clear()
    await new.after(2.0)
    assert new.state.host(1).state is HostState.HEALTHY


async def test_a_failure_beside_an_agent_that_is_gone_is_laid_to_its_host(world: World) -> None:
    await world.launched()
    first, second = world.hosts()
    world.breaks(second)
    await world.exited(first, 0, 1, log_tail="a peer has gone")
    await world.stopped(first)
    assert world.of(RankFailed) == []
    assert second not in world.hosts()


async def test_a_new_leader_goes_on_from_what_agents_say_and_stops_what_the_log_lacks(
    world: World,
) -> None:
    await world.launched()
    first, second = world.hosts()
    running = world.running()
    stray = agent_pb2.AttemptStatus(
        key=agent_pb2.AttemptKey(job_uid="uid-z", attempt=3), phase=agent_pb2.ATTEMPT_PHASE_STARTED
    )
    before = len(world.events)
    world.lead_anew().take_over(world.state)
    world.words()
    world.join(first, attempts=(running, stray))
    world.join(second, attempts=(running,))
    await world.settle()
    ((host, stop),) = world.words("stop")
    assert (host, stop.key.job_uid, stop.grace.ToNanoseconds()) == (first, "uid-z", 0)
    assert len(world.events) == before
    await world.exited(first, 0)
    await world.exited(second, 8)
    assert job(world.state, "a").state is JobState.COMPLETED


@pytest.fixture
async def wide() -> World:
    """Two zones of four hosts, and a gang that runs on two hosts of one zone."""
    made = await given(World(4, zones=2), gang())
    await made.launched()
    return made


def zone(world: World, host: str) -> list[str]:
    return [other for other in world.state.loaded_fabric.hosts if other[:2] == host[:2]]


async def test_a_gang_is_left_alone_where_a_zone_is_silent_together_unless_it_has_no_power(
    wide: World,
) -> None:
    first, second = wide.hosts()
    running, hosts, beats = wide.running(), zone(wide, first), wide.instruments.beats
    domain = first[:2]
    hint = f"if they are down: muster report {domain} --signal power-lost"
    await wide.lose(*hosts)
    await wide.after(1_000 * LEASE_S)
    assert job(wide.state, "a").attempt == 1  # it may run there, for all that is known
    assert [(e.host, e.signal, e.detail) for e in wide.of(HostSignalled)] == [
        (domain, "agents-cut-off", f"4 hosts silent; gangs there are left alone; {hint}")
    ]
    idle = next(host for host in hosts if host not in (first, second))
    signals = [wide.host(first).signal, wide.host(idle).signal]
    assert signals == ["", "agent-lost"]  # no gang starts there
    assert beats.cut_off == {(domain,): 4}
    beats.beat("agents", 60)
    assert beats.states()["agents"].startswith(f"control plane cut off from {domain}: 4 hosts")
    for host in hosts:
        wide.join(host, attempts=(running,) if host in (first, second) else ())
    await wide.after(1.1)
    assert (job(wide.state, "a").attempt, wide.hosts()) == (1, (first, second))
    assert wide.of(HostSignalled)[-1].signal == "agents-reached"
    assert wide.state.hosts == {}
    assert (beats.cut_off, beats.states()["agents"]) == ({}, "")
    await wide.lose(*hosts)
    await wide.give(ReportHost(domain, "power-lost"))
    await wide.after(1.1)
    assert job(wide.state, "a").attempt == 2
    assert not set(hosts) & set(wide.hosts())
    assert beats.cut_off == {}
    wide.join(*hosts)
    await wide.after(1.1)
    assert wide.state.hosts == {}


async def test_of_idle_hosts_no_report_of_power_is_asked_for_and_of_those_given_back_none(
    wide: World,
) -> None:
    used = zone(wide, wide.hosts()[0])
    idle = [host for host in wide.state.loaded_fabric.hosts if host not in used]
    substrate: Any = SimpleNamespace(is_dismissed=idle.__contains__)
    kept, wide.launcher._substrate = wide.launcher._substrate, substrate
    await wide.lose(*idle)
    assert wide.of(HostSignalled) == []
    assert wide.state.hosts == {}
    wide.launcher._substrate = kept
    wide.join(*idle)
    await wide.lose(*idle)
    words = "no gang runs there; idle hosts are out until their agents answer"
    assert [e.detail for e in wide.of(HostSignalled)] == [f"4 hosts silent; {words}"]


async def test_two_silent_hosts_of_many_are_lost(wide: World) -> None:
    first, second = wide.hosts()
    await wide.lose(first, second)
    assert job(wide.state, "a").attempt == 2


async def test_a_host_that_stays_silent_after_a_cut_is_lost_a_lease_later(wide: World) -> None:
    first, second = wide.hosts()
    running = wide.running()
    await wide.lose(*zone(wide, first))
    for host in set(zone(wide, first)) - {second}:
        wide.join(host, attempts=(running,) if host == first else ())
    await wide.after(LEASE_S - 0.1)
    assert job(wide.state, "a").state is JobState.RUNNING
    await wide.after(1.2)
    assert job(wide.state, "a").attempt == 2
    assert second not in wide.hosts()


async def test_a_gang_that_fails_in_a_cut_is_replaced(wide: World) -> None:
    first, _ = wide.hosts()
    failed = wide.running()
    failed.exits.add(key=wide.key(), code=1)
    await wide.lose(*zone(wide, first))
    wide.join(first, attempts=(failed,))
    await wide.after(2.1)
    assert job(wide.state, "a").attempt == 2


async def test_a_new_leader_that_reaches_no_agent_leaves_gangs_alone(wide: World) -> None:
    running = wide.running()
    wide.lead_anew().begin_to_lead(2)
    wide.launcher.take_over(wide.state)
    for _ in range(5):
        await wide.after(LEASE_S + 1)
    assert job(wide.state, "a").state is JobState.RUNNING
    wide.join(*wide.hosts(), attempts=(running,))
    await wide.after(1)
    assert (job(wide.state, "a").state, job(wide.state, "a").attempt) == (JobState.RUNNING, 1)


async def test_a_host_that_was_cut_off_alone_is_not_avoided_once_it_is_back(world: World) -> None:
    await world.launched()
    first, second = world.hosts()
    running = world.running()
    await world.lose(second)
    index = world.state.loaded_fabric.index_by_name[second]
    assert [strike.host for strike in job(world.state, "a").strikes] == [index]
    world.join(second, attempts=(running,))
    await world.settle()
    assert job(world.state, "a").strikes == ()
    await world.lose(first)
    world.join(first)  # it knows nothing of what it ran: it has crashed
    await world.settle()
    assert len(job(world.state, "a").strikes) == 1


async def test_ranks_save_before_a_planned_move_and_successors_wait_for_it(world: World) -> None:
    await world.launched()
    first, second = world.hosts()
    old = world.key()
    await world.saved(first, 10)
    world.words()
    await world.give(drain(second))
    assert world.state.jobs["a"].attempt == 2
    assert world.words() == [(first, "save_checkpoint"), (second, "save_checkpoint")]
    await world.saved(first, 11, key=old)
    stops = [(host, word.key.attempt, word.grace.seconds) for host, word in world.words("stop")]
    assert stops == [(first, 1, 20), (second, 1, 20)]
    assert world.of(CheckpointSaved)[-1].step == 11
    await world.stopped(first, key=old)
    assert world.words("prepare") == []
    await world.stopped(second, key=old)
    assert [h for h, _ in world.words("prepare")] == list(world.hosts())
    await world.prepared()
    assert {w.checkpoint_step for _, w in world.words("launch")} == {11}


async def test_ranks_that_do_not_save_in_time_are_stopped_all_the_same(world: World) -> None:
    await world.launched()
    first, second = world.hosts()
    await world.saved(first, 10)
    await world.give(drain(second))
    world.words()
    await world.after(MOST_SAVE_S - 0.1)
    assert {kind for _, kind in world.words()} == {"probe_host"}  # as agents are told once
    await world.after(0.2)
    assert [kind for _, kind in world.words()] == ["stop", "stop"]


async def test_a_cancelled_job_has_its_grace_and_is_forgotten_in_the_end(world: World) -> None:
    await world.launched()
    first, second = world.hosts()
    key = world.key()
    await world.give(cancel("a"))
    assert [(h, w.grace.seconds) for h, w in world.words("stop")] == [(first, 20), (second, 20)]
    await world.stopped(first, second, key=key)
    assert world.words() == [(first, "forget"), (second, "forget")]
    assert world.launcher.busy_hosts() == set()


async def test_the_next_job_of_a_run_waits_for_the_last_checkpoint_and_goes_on_there(
    world: World,
) -> None:
    await world.launched()
    first, second = world.hosts()
    old, before = world.key(), world.state.jobs["a"]
    await world.give(cancel("a"), SubmitJob(before.spec, "uid-2"))
    world.words()
    await world.saved(first, 40, key=old)  # in its grace
    assert world.words("prepare") == []
    await world.stopped(first, second, key=old)
    assert world.of(CheckpointSaved)[-1].uid == before.uid
    assert len(world.words("prepare")) == 2
    await world.prepared()
    launches = [word for _, word in world.words("launch")]
    assert {(w.checkpoint_step, w.predecessor) for w in launches} == {(40, before.uid)}


def stepped(world: World, host: str, step: int, *rank_steps: int, busy: str = "") -> None:
    word = agent_pb2.Progress(key=world.key(), step=step, rank_steps=rank_steps, busy=busy)
    world.say(host, progress=word)


async def test_an_ended_job_still_says_how_long_its_steps_took(world: World) -> None:
    await world.launched()
    first, second = world.hosts()
    key = world.key()
    for step in (1, 2, 3):
        stepped(world, first, step)
        await world.after(2)
    await world.exited(first, 0)
    await world.exited(second, 8)
    assert job(world.state, "a").state is JobState.COMPLETED
    known = world.launcher.progress(key.job_uid, key.attempt)
    assert known is not None
    assert (known[0].step, known[0].step_s) == (3, 2)
    assert world.launcher.progress(key.job_uid, key.attempt + 1) is None


@pytest.mark.parametrize("action", list(HangAction))
async def test_a_gang_whose_steps_stop_is_said_to_hang_and_treated_as_its_file_says(
    action: HangAction,
) -> None:
    world = await given(World(3), gang(per_host=0, hang=HangTerms(60, action)))
    await world.launched()
    first, second = world.hosts()
    for step in (1, 2, 3):
        stepped(world, first, step, *[step] * 8)
        stepped(world, second, 2, *[2] * 8)
        await world.after(1)
    await world.after(60)
    if action is HangAction.IGNORE:
        assert world.of(GangHung) == []
        return
    assert [host for host, _ in world.words("dump_stacks")] == [first, second]
    assert world.of(GangHung) == []  # agents have yet to say how far their ranks are
    await world.after(1)
    (hung,) = world.of(GangHung)
    assert hung.reason.startswith("no step for 1 min after step 3, where one took 1 s; at step 2")
    assert f"rank 8 on {second}" in hung.reason
    await world.after(10)
    if action is HangAction.WARN:
        assert world.words() == []
        stepped(world, first, 4)
        await world.settle()
        assert [event.reason for event in world.of(GangHung)] == [hung.reason, ""]
        return
    if action is HangAction.ASK:
        (asked,) = world.of(JobRequeued)
        assert "`muster release a` starts it again" in asked.reason
        assert world.state.jobs["a"].hold is Hold.OWNER
        return
    assert [kind for _, kind in world.words()] == ["stop", "stop"]
    await world.stopped(first, second)
    (failed,) = world.of(RankFailed)
    assert (failed.cause, failed.rank, failed.host) == (StopCause.HANG, 8, second)
    assert world.state.jobs["a"].attempt == 2


async def test_the_ranks_that_others_wait_for_are_named_and_what_they_have_in_common() -> None:
    world = await given(World(3, zones=2), gang(hosts=6, per_host=0, hang=HangTerms(60)))
    await world.launched()
    hosts = world.hosts()
    for step in (1, 2, 3):
        stepped(world, hosts[0], step)
        await world.after(1)
    await world.after(60)
    rack = hosts[-1].rpartition("-")[0]
    late = [host for host in hosts if host.startswith(rack)]
    assert 1 < len(late) < len(hosts), hosts
    for host, _ in world.words("dump_stacks"):
        word = agent_pb2.Progress(key=world.key(), step=3)
        word.computed_steps.extend([3 if host in late else 4] * 8)
        world.say(host, progress=word)
    await world.after(1)
    (hung,) = world.of(GangHung)
    assert f"in step 4 others wait for rank {8 * hosts.index(late[0])} on {late[0]}" in hung.reason
    assert f"that is all it has in rack {rack}, whose uplink may be" in hung.reason


async def test_a_gang_that_never_makes_a_first_step_hangs_where_its_file_sets_a_limit() -> None:
    """Ranks that say what they are at have four times as long."""
    world = await given(World(3), gang(hang=HangTerms(60, first_step_s=300)))
    await world.launched()
    stepped(world, world.hosts()[0], 0, busy="compiling")
    await world.after(1_195)
    assert world.of(GangHung) == []
    await world.after(10)
    await world.after(1)
    (hung,) = world.of(GangHung)
    assert hung.reason.startswith("no step for 20 min after its ranks started")
    stepped(world, world.hosts()[0], 1)
    await world.settle()
    assert world.of(GangHung)[-1].reason == ""


async def test_a_host_that_does_not_answer_costs_an_attempt(world: World) -> None:
    first, _ = world.hosts()
    await world.prepared()
    world.say(first, started=agent_pb2.Started(key=world.key()))
    await world.after(LEASE_S + 0.1)
    (event,) = world.of(LaunchFailed)
    assert event.reason == "did not answer for 10 s"
    assert world.state.jobs["a"].attempt == 2


async def test_unknown_hosts_are_turned_away_and_jobs_that_run_nothing_are_left_to_others(
    world: World,
) -> None:
    world.join("elsewhere")
    (reason,) = world.sessions.dropped
    assert reason.startswith("elsewhere: the fabric has no host elsewhere")
    world.words()
    await world.give(submit("b", 1))
    assert job(world.state, "b").state is JobState.RUNNING
    assert world.words() == []


async def test_jobs_on_one_host_are_told_their_gpus_and_wait_for_no_other_part() -> None:
    sizes = {"a": 2, "b": 4, "c": 2}
    world = await given(World(1), *(gang(name, 1, gpus=gpus) for name, gpus in sizes.items()))
    wanted = {word.job: word for _, word in world.words("prepare")}
    gpus = {name: list(word.gpus) for name, word in wanted.items()}
    assert gpus == {"a": [0, 1], "b": [4, 5, 6, 7], "c": [2, 3]}
    sizes_told = {(w.node, w.nodes, w.ranks, w.world_size) for w in wanted.values()}
    assert sizes_told == {(0, 1, 2, 2), (0, 1, 4, 4)}
    for name in "abc":
        await world.launched(name)
    key = world.key("a")
    await world.give(cancel("a"))
    await world.give(gang("d", 1, gpus=2))
    assert [kind for _, kind in world.words()] == ["stop"]  # d waits until a has left its GPUs
    await world.stopped(*world.state.loaded_fabric.hosts, key=key)
    assert [list(word.gpus) for _, word in world.words("prepare")] == [[0, 1]]


async def test_an_agent_tells_of_attempts_on_its_own_host_alone(world: World) -> None:
    """Also of one that is leaving, whose checkpoint is where the next one begins."""
    await world.launched()
    first, second = world.hosts()
    third = next(host for host in world.state.loaded_fabric.hosts if host not in world.hosts())
    old = world.key()
    await world.saved(first, 10)
    await world.give(drain(second))
    world.words()
    await world.saved(third, 99, key=old)
    assert world.words() == []  # it is no word of the gang, which is still to save
    await world.saved(first, 11, key=old)
    assert [event.step for event in world.of(CheckpointSaved)] == [10, 11]


async def test_a_log_comes_from_the_host_that_was_asked_for_it() -> None:
    sessions: Any = Sessions()
    sessions.connected = {"h0", "h1"}
    channels = AgentChannels(sessions)
    pieces = channels.connect("h0", agent_pb2.OpenChannel(log=agent_pb2.ReadLog(lines=10)))
    first = asyncio.ensure_future(anext(aiter(pieces)))
    await asyncio.sleep(0)
    ((host, message),) = sessions.sent
    channel_id = message.open_channel.channel_id
    channels.on_data("h1", agent_pb2.ChannelData(channel_id=channel_id, data=b"forged"))
    channels.on_data(host, agent_pb2.ChannelData(channel_id=channel_id, data=b"its own"))
    assert (await first).data == b"its own"
    await pieces.aclose()


async def test_an_error_in_one_gang_keeps_the_deadlines_of_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The hosts of b never answer; looking after a raises each time."""
    world = await given(World(4), gang("a"), gang("b"))
    overdue = AgentLauncher._overdue

    def broken(self: AgentLauncher, gang: Any, now_s: float) -> None:
        if gang.name == "a":
            raise ZeroDivisionError
        overdue(self, gang, now_s)

    monkeypatch.setattr(AgentLauncher, "_overdue", broken)
    await world.after(131.0)
    await world.after(131.0)
    failed = {event.name for event in world.events if isinstance(event, LaunchFailed)}
    assert failed == {"b"}
    assert caplog.text.count("attempt 1 of a is not looked after") == 1


async def test_a_host_that_fails_the_gate_of_the_site_is_out_and_the_gang_elsewhere(
    world: World,
) -> None:
    first, second = world.hosts()
    (wanted,) = orders.SiteTerms(("nhc", "-t"), 60).all_of(RunSpec(("train",)))
    assert (list(wanted.command), wanted.limit.seconds) == (["nhc", "-t"], 60)
    assert wanted.is_of_site
    reason = "gate nhc exited with code 1: no NVLink"
    world.refuse(first, reason, is_unfit=True)
    world.say(second, prepared=agent_pb2.Prepared(key=world.key(), address="y"))
    await world.settle()
    assert (world.host(first).state, world.host(first).signal) == (HostState.FAILED, "gate-failed")
    assert reason in world.host(first).reason
    assert first not in world.hosts()
    assert job(world.state, "a").attempt == 2


async def test_a_gate_that_fails_on_all_hosts_fails_the_job_and_no_host(world: World) -> None:
    world.launcher._unfit |= {"x", "y"}
    for host in world.hosts():
        world.refuse(host, "gate nhc exited with code 2", is_unfit=True)
    await world.settle()
    assert [event.outcome for event in world.of(JobEnded)] == [JobState.FAILED]
    assert not world.of(HostSignalled)


def test_variables_of_a_host_follow_its_labels() -> None:
    made = from_spec({**fabric(1, 1, 2, gpus=GPUS).spec, "labels": {"z0-r0-h0": {"nic": "cx7"}}})
    nics = (("nic", "cx7", {"HCA": "a", "OTHER": "b"}), ("nic", "cx6", {"HCA": "c"}))
    site = orders.SiteTerms(env_by_label=nics)
    assert site.env_of(made, "z0-r0-h0") == {"HCA": "a", "OTHER": "b"}
    assert site.env_of(made, "z0-r0-h1") == {}
    assert site.unknown_labels(made) == ["nic=cx6"]
