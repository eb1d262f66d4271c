"""Has the agents do what the log says, and tells the log what became of it.

The log says which attempt of which job runs where (core.fold.attempts); this follows it through
the feed of changes, and through the state when it begins to lead. It holds nothing that a
successor could not find again: what runs is in the words with which agents introduce themselves,
what should run is in the state, and the difference of the two is what is sent.

A restart, second by second: the first exit that is not well -> Stop to all hosts, at once -> all
have stopped, or their agents are gone -> the first of the failures is reported, or the host whose
agent is gone -> the log has the next attempt -> Prepare -> Launch with the newest checkpoint.

Everything runs on the writer's loop; beats of agents do not get here (gateway).
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from muster.structs import replace, struct
from scheduler.core import Job, State
from scheduler.core.admission import launch
from scheduler.core.fold.attempts import (
    AttemptLeft,
    Launcher,
    PlacedGang,
    attempt_changes,
    carry_out,
)
from scheduler.core.fold.effects import JobChange
from scheduler.core.model.commands import ReportHost
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.job_array import JobArray
from scheduler.core.model.lifecycle import HOLDING, LIVE, JobState
from scheduler.core.model.run_lineage import lineage_key
from scheduler.core.model.scheduling_options import Overrun
from scheduler.core.policies.health_signals import AGENT_AWAITED
from scheduler.core.policies.job_terms import ContainerSpec, HangAction, RunSpec
from scheduler.engine.feed import Closed, FellBehind
from scheduler.engine.writer import Writer
from scheduler.eventlog.store import Compacted
from scheduler.identity import SERVER, Caller, Role, act_for
from scheduler.launch.burn_in import BurnIns
from scheduler.launch.channels import AgentChannels
from scheduler.launch.cut_off import CutOffHosts
from scheduler.launch.gangs import hang, orders, role_restart
from scheduler.launch.gangs.checkpoints import LOG_EVERY_S, Checkpoints
from scheduler.launch.gangs.ending import EndingAttempts
from scheduler.launch.gangs.gang import (
    FOLLOWERS_S,
    GangPhase,
    HostPhase,
    LaunchedGang,
    RoleStage,
)
from scheduler.launch.gangs.memory_copies import MemoryCopies
from scheduler.launch.gangs.orders import NO_TERMS, SiteTerms
from scheduler.launch.gangs.reports import AGENT_BACK, AGENT_REACHED, LaunchReports, lacks_agent
from scheduler.launch.gangs.step_watch import StepWatch
from scheduler.launch.joining import HostJoins
from scheduler.launch.probes import HostProbes
from scheduler.launch.streams.gateway import GatewayOptions
from scheduler.launch.streams.sessions import AgentSessions
from scheduler.launch.substrate import Substrate
from scheduler.observe.supervision import Heartbeats, Tasks
from scheduler.service.backend import HostReading
from scheduler.v1 import agent_pb2

MOST_ENDED = 200  # jobs that have ended and whose steps are remembered
_TICK_S = 0.1
_OFFER_LEASES = 3  # without any agent, after which another server may lead
_SILENT_S = 10.0  # without a tick, after which the launcher does not work
MOST_UNFIT = 3  # hosts that fail the site's gate in a row, after which it is the gate that is wrong
_READY_S = 130.0  # for which a host may take to be clear

log = logging.getLogger("muster.launch")


@struct(frozen=True, slots=True)
class AgentSettings:
    """How agents are served and started. `lease_s`: a silent agent is lost after it. `substrate`:
    makes what brings agents up, None: they are started by others. `may_join`: hosts that the fabric
    lacks join it. `stragglers_s`: between looks for hosts that slow gangs, which are reported;
    None: never. `keeps_ranks`: those of an agent that hears nothing run on. `site`: its terms."""

    gateway: GatewayOptions
    lease_s: float = 30.0
    substrate: Callable[[Heartbeats], Substrate] | None = None
    may_join: bool = False
    stragglers_s: float | None = None
    keeps_ranks: bool = True
    site: SiteTerms = NO_TERMS


class AgentLauncher(Launcher):
    """Starts and stops ranks through agents as the log says, and reports what became of them.
    `clock`: seconds. `substrate`: what brings agents up, if the server does. `offer_lead`: has
    another server lead, where there are several."""

    def __init__(
        self,
        writer: Writer,
        sessions: AgentSessions,
        settings: AgentSettings,
        clock: Callable[[], float] = time.monotonic,
        *,
        substrate: Substrate | None = None,
        offer_lead: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._writer, self._sessions, self._clock = writer, sessions, clock
        lease_s, site = settings.lease_s, settings.site
        self._lease_s, self._site = lease_s, site
        self._gangs: dict[str, LaunchedGang] = {}  # by job uid, of attempts that run or should
        self._ended: dict[str, LaunchedGang] = {}  # by job uid, the newest last
        self._ending = EndingAttempts(sessions, clock, lease_s, self._write_down, self._has_left)
        self._checkpoints = Checkpoints()
        self._copies = MemoryCopies(site.copies_gb * 10**9)
        self._reports = LaunchReports(writer)
        self._led_s = self._looked_s = 0.0
        self._unheard_s: float | None = None  # since when no agent is there
        self._next_offer_s = _OFFER_LEASES * lease_s  # without agents, before the lead is offered
        self._offer_lead = offer_lead
        self._known_hosts: set[str] = set()  # of the fabric as it was looked at last
        self._seen: set[str] = set()  # hosts whose agents have been there since it leads
        self._with_containers: set[str] = set()  # hosts whose agents can run them
        self._ran_on: set[str] = set()  # hosts on which ranks ran when their agents came last
        self._cut_off = CutOffHosts()
        self._failing: set[str] = set()  # uids of jobs whose last tick failed
        self._joins = HostJoins(writer, self._has_joined, sessions.drop)
        self._may_join, self._keeps_ranks = settings.may_join, settings.keeps_ranks
        self._burn_ins = BurnIns(
            writer, sessions, self.busy_hosts, self._reports.write, site.burn_in, site.limit_s
        )
        self._probes = HostProbes(sessions, self._reports.submit)
        self.channels = AgentChannels(sessions)
        self._unfit: set[str] = set()  # hosts that have failed it since one has passed it
        self._substrate = substrate

    def busy_hosts(self) -> set[str]:
        """Hosts on which ranks run, should run, or are being stopped."""
        hosts = {host for gang in self._gangs.values() for host in gang.hosts}
        return hosts | self._ending.hosts

    def container_refusal(self, container: ContainerSpec) -> str:
        """Return why no host can run this container, "" where one may."""
        refusal = self._substrate.container_refusal(container) if self._substrate else None
        if refusal is None and self._sessions.connected and not self._with_containers:
            refusal = "no host has apptainer, singularity or podman to run it"
        return refusal or ""

    def host_reading(self, host: str) -> HostReading | None:
        """Return what the agent of a host has read of its health last, None where it has not."""
        return self._probes.reading(host)

    def step_times(self, uid: str, attempt: int) -> Mapping[int, Sequence[float]]:
        """Return how long the ranks of an attempt computed, by step; empty where none reports
        it."""
        gang = self._gangs.get(uid)
        return gang.times if gang is not None and gang.attempt == attempt else {}

    # --- following the log -----------------------------------------------------------------

    async def run(self) -> None:
        """Launch whenever the writer leads, until cancelled."""
        act_for(Caller(SERVER, Role.ADMIN))
        beats = self._writer.instruments.beats
        term: int | None = None
        while True:
            if (term := self._writer.term) is None:
                beats.rest("launcher")
                self._forget_cuts()
                self._sessions.follow(self._writer.leader)
                await self._writer.lead_change(None)
                continue
            async with Tasks(beats) as tasks:
                tasks.keep("ticks", self._tick_for_ever)
                tasks.keep("gangs", partial(self._lead, term))
                tasks.keep("burn-ins", self._burn_ins.run)
                await self._writer.lead_change(term)

    def begin_to_lead(self, term: int) -> None:
        """Serve agents in this term. It is not known yet which agents are there."""
        self._led_s = self._clock()
        self._seen.clear()
        self._ran_on.clear()
        self._probes.forget()
        self._forget_cuts()
        self._sessions.lead(term, self._lease_s, self, keeps_ranks=self._keeps_ranks)

    async def _lead(self, term: int) -> None:
        self.begin_to_lead(term)
        self._known_hosts.clear()
        while True:
            state = self._writer.state
            self.take_over(state)
            try:
                async for change in self._writer.watch(JobChange, state.version):
                    if isinstance(change, JobChange):
                        self.feed(change)
            except (FellBehind, Compacted):
                continue
            except Closed:
                await asyncio.Event().wait()

    def take_over(self, state: State) -> None:
        """Begin from what a state says, keeping what is known of attempts that still run."""
        before, self._gangs = self._gangs, {}
        for job in state.holding:
            if job.spec.run is None:
                continue
            run = PlacedGang.of(job, state.loaded_fabric)
            self._recall(job)
            known = before.get(job.uid)
            if known is not None and known.attempt == job.attempt:
                self._gangs[job.uid] = known
                if known.hosts == run.hosts:
                    known.placed = run
                else:
                    self._resize(known, run)
            elif job.state is JobState.RUNNING:
                self.begin(run)
        for gang in before.values():
            if self._gangs.get(gang.uid) is not gang:
                self._leave(gang, 0)

    def feed(self, change: JobChange) -> None:
        """Take one change of one job."""
        job = change.job
        if job.spec.run is None:
            return
        gang = self._gangs.get(job.uid)
        if gang is not None and job.state in HOLDING and gang.attempt == job.attempt:
            placed = PlacedGang.of(job, change.fabric)
            if gang.hosts != placed.hosts:
                self._resize(gang, placed)
                return
            gang.placed = placed
        for each in attempt_changes([change]):
            carry_out(self, each)
        if job.uid in self._gangs and job.state is JobState.RUNNING:
            self._have_warm(job, change.fabric.names(job.spares))

    def _recall(self, job: Job) -> None:
        self._checkpoints.recall(job, self._clock(), self._writer.now_ns())

    # --- what a launcher does ------------------------------------------------------------------

    def begin(self, run: PlacedGang) -> None:
        """Start all ranks of an attempt, once its hosts are clear."""
        job, fabric = run.job, self._writer.state.loaded_fabric
        spec = job.spec.run
        assert spec is not None
        gang = LaunchedGang(
            run,
            _of_task(spec, job.spec.array),
            job.ranks.world_size,
            job.ranks_per_host(fabric.gpus_per_host),
            self._clock(),
            lineage=lineage_key(job),
        )
        self._recall(job)
        self._gangs[job.uid] = gang
        self._copies.begin(gang)
        self._advance(gang)

    def _resize(self, gang: LaunchedGang, placed: PlacedGang) -> None:
        """Have the last role begin again on the hosts of its other size, in the same attempt."""
        grace_s = float(gang.run.grace_s)
        for host in gang.resize(placed):
            self._ending.end(self._remnant(placed.job, gang.run, host), grace_s, saves=False)
        for host in role_restart.resize(gang, self._clock()).hosts:
            self._sessions.send(host, orders.stop(orders.key_of(gang), grace_s))
        self._advance(gang)

    def _remnant(self, job: Job, run: RunSpec, host: str) -> LaunchedGang:
        """Return what is left of an attempt on a host that it has no more."""
        placed = PlacedGang(replace(job, gang=None), (host,), ())
        return LaunchedGang(placed, run, 1, 1, self._clock(), GangPhase.OVER)

    def stop(self, run: PlacedGang) -> None:
        """Stop what is left of an attempt that a failure stopped."""
        gang = self._gangs.pop(run.job.uid, None)
        if gang is not None:
            self._leave(gang, 0)

    def leave(self, left: AttemptLeft) -> None:
        """Let an attempt leave its hosts: it ended, or leaves them as planned."""
        gang = self._gangs.pop(left.run.job.uid, None)
        if gang is None:
            return
        is_planned = left.next_state in (JobState.RUNNING, JobState.QUEUED)
        grace_s = 0.0 if len(gang.done) == gang.processes else float(gang.run.grace_s)
        self._leave(gang, grace_s, saves=is_planned and gang.phase is GangPhase.RUNNING)

    def _leave(self, gang: LaunchedGang, grace_s: float, *, saves: bool = False) -> None:
        """Stop what may still run of an attempt; with `saves` it may save before."""
        self._write_down(gang)
        self._remember_ended(gang)
        gang.enter(GangPhase.OVER, self._clock())
        self._ending.end(gang, grace_s, saves=saves)

    def _remember_ended(self, gang: LaunchedGang) -> None:
        """Keep how long its steps took, for who asks later."""
        gang.watch.steps.clear()
        gang.watch.busy.clear()
        gang.times.clear()
        self._ended.pop(gang.uid, None)
        self._ended[gang.uid] = gang
        if len(self._ended) > MOST_ENDED:
            del self._ended[next(iter(self._ended))]

    def _has_left(self, gang: LaunchedGang | None) -> None:
        """Nothing runs of this attempt any more: others may start in its place."""
        if gang is not None:
            if is_over := _job_is_over(self._writer.state, gang):
                self._checkpoints.forget(gang.uid)
            for host in self._copies.leave(gang, self._gangs.get(gang.uid), is_over=is_over):
                self._sessions.send(host, orders.drop_copies(gang.uid))
        for each in list(self._gangs.values()):
            if each.phase in (GangPhase.WAITING, GangPhase.PREPARING):
                self._advance(each)

    # --- how a gang goes on -------------------------------------------------------------------

    def _advance(self, gang: LaunchedGang) -> None:
        """Take the next step that is possible now."""
        now_s = self._clock()
        if gang.phase is GangPhase.WAITING and not self._ending.blocks(gang):
            gang.enter(GangPhase.PREPARING, now_s)
            for host in gang.not_yet(*_BEYOND_PREPARE):
                self._sessions.send(host, self._prepare(gang, host))
        if gang.phase is GangPhase.PREPARING and gang.refusals:
            if gang.all_are(HostPhase.REFUSED, *_BEYOND_PREPARE):
                self._refused(gang)
        elif (
            gang.phase is GangPhase.PREPARING
            and gang.all_are(*_BEYOND_PREPARE)
            and not self._ending.blocks(gang)
        ):
            gang.enter(GangPhase.STARTING, now_s)
            if hosts := gang.not_yet(HostPhase.STARTED, HostPhase.STOPPED):
                self._launch(gang, hosts)
        if gang.phase is GangPhase.STARTING and gang.refusals:
            # Whether any host can start it is known when all have answered.
            is_late = now_s - gang.since_s > FOLLOWERS_S
            if is_late or gang.failures or gang.all_are(*_ANSWERED):
                self._refused(gang)
        elif gang.phase is GangPhase.STARTING and gang.all_are(
            HostPhase.STARTED, HostPhase.STOPPED
        ):
            gang.enter(GangPhase.RUNNING, now_s)
            self._reports.report(gang, launch.launched)
        if gang.failures and gang.phase is GangPhase.RUNNING:
            restarts = self._writer.state.tenants.restarts
            for role, failure in role_restart.begin(gang, now_s, restarts):
                facts = (role.name, failure.rank, failure.host, failure.reason)
                check = partial(launch.role_restarted, cause=failure.cause, code=failure.code)
                self._reports.report(gang, check, *facts)
                for host in role.hosts:
                    self._sessions.send(host, orders.stop(orders.key_of(gang), 0))
        if gang.failures and gang.phase in (GangPhase.STARTING, GangPhase.RUNNING):
            gang.enter(GangPhase.FAILING, now_s)
            self._to_all(gang, orders.stop(orders.key_of(gang), 0))
        if gang.phase is GangPhase.FAILING:
            self._conclude(gang)
        if gang.phase is GangPhase.RUNNING and gang.is_complete:
            self._over(gang)
            self._reports.completed(gang)

    def _prepare(
        self, gang: LaunchedGang, host: str, *, anew: bool = False
    ) -> agent_pb2.SessionResponse:
        state = self._writer.state
        saved_step, *_ = self._checkpoints.resume_point(gang, state)
        copies = self._copies.terms(gang, host, saved_step, self._sessions.connected)
        return orders.prepare(gang, host, self._site, state.loaded_fabric, copies, anew=anew)

    def _launch(self, gang: LaunchedGang, hosts: Sequence[str]) -> None:
        """Start the ranks there, from the newest checkpoint."""
        start = self._checkpoints.resume_point(gang, self._writer.state)
        for host in hosts:
            gang.mark(host, HostPhase.LAUNCHED)
            self._sessions.send(host, orders.launch(gang, host, *start, self._copies))

    def _note_copies(self, gang: LaunchedGang, host: str, word: agent_pb2.HeldCopies) -> None:
        """Note which copies a host has; once all hosts have those of a step, older ones may go."""
        if (step := self._copies.note(gang, host, word)) is None:
            return
        gang.watch.copied_step = step
        self._to_all(gang, orders.copies_complete(gang, step))
        if self._clock() - gang.renewal_logged_s >= LOG_EVERY_S:
            gang.renewal_logged_s = self._clock()
            self._reports.report(gang, launch.copies_renewed, step)

    def _refused(self, gang: LaunchedGang) -> None:
        """Some hosts cannot start it; where none can, nothing is gained by trying again."""
        is_final = len(gang.refusals) == len(gang.hosts) and not gang.may_fit_elsewhere
        host = next(host for host in gang.hosts if host in gang.refusals)
        self._over(gang)
        self._unfit |= gang.unfit
        if gang.unfit and (not is_final or len(self._unfit) <= MOST_UNFIT):
            for unfit in sorted(gang.unfit):
                self._reports.submit(ReportHost(unfit, "gate-failed", gang.refusals[unfit]))
            return
        check = partial(launch.launch_failed, is_final=is_final)
        self._reports.report(gang, check, host, gang.refusals[host])

    def _conclude(self, gang: LaunchedGang) -> None:
        """Once all hosts have stopped, or can say nothing, it is known who was first."""
        is_late = self._clock() - gang.since_s > FOLLOWERS_S
        if not is_late and any(host in self._sessions.connected for host in gang.left):
            return
        silent = (gang.left & self._seen) - self._sessions.connected
        seen_gone = [host for host in gang.hosts if host in silent]
        suspects = gang.suspects(seen_gone)
        first = gang.first_failure()
        self._over(gang)
        if suspects:
            for host in suspects:
                self._reports.host_lost(host, f"its agent was gone when {first.host} failed")
            return
        check = partial(launch.rank_failed, cause=first.cause, code=first.code, step=gang.step)
        self._reports.report(gang, check, first.rank, first.host, first.reason)

    def _over(self, gang: LaunchedGang) -> None:
        """Note that an attempt has ended; the log is about to say so."""
        self._write_down(gang)
        gang.enter(GangPhase.OVER, self._clock())

    # --- words of agents -----------------------------------------------------------------------

    def on_hello(self, host: str, hello: agent_pb2.Hello) -> None:
        """Take the introduction of a host, and order what the log says for it, and nothing else."""
        state = self._writer.state
        if host not in state.loaded_fabric.index_by_name:
            if hello.place and self._may_join:
                self._joins.offer(host, hello)
            else:
                reason = f"the fabric has no host {host}, and "
                place = "its agent does not say where it is"
                reason += place if self._may_join else "none joins by itself (agents.join is off)"
                self._sessions.drop(host, reason)
            return
        self._seen.add(host)
        self._probes.on_hello(host)
        (self._with_containers.add if hello.containers else self._with_containers.discard)(host)
        runs = any(a.phase == agent_pb2.ATTEMPT_PHASE_STARTED for a in hello.attempts)
        (self._ran_on.add if runs else self._ran_on.discard)(host)
        self._return_host(state, host)
        seen: set[tuple[str, int]] = set()
        for status in hello.attempts:
            key = (status.key.job_uid, status.key.attempt)
            seen.add(key)
            self._on_attempt_status(host, key, status)
        if host in self._cut_off:
            report = self._cut_off.note_reached(host, self._clock())
            self._show_cuts([] if report is None else [report])
        for gang in list(self._gangs.values()):
            if host in gang.by_host and gang.key not in seen:
                self._unknown_there(gang, host)
        self._ending.keep_known(host, seen)

    def _has_joined(self, host: str, hello: agent_pb2.Hello) -> None:
        if host in self._sessions.connected:
            self.on_hello(host, hello)

    def _on_attempt_status(
        self, host: str, key: tuple[str, int], status: agent_pb2.AttemptStatus
    ) -> None:
        gang = self._gang(key, host)
        if gang is None:  # the log knows nothing of it, or not here, or not any more
            is_stopped = status.phase == agent_pb2.ATTEMPT_PHASE_STOPPED
            word = orders.forget(status.key) if is_stopped else orders.stop(status.key, 0)
            self._sessions.send(host, word)
            if status.prepared.HasField("held") and self._has_no_use_for_copies(key[0], host):
                self._sessions.send(host, orders.drop_copies(key[0]))
            if not is_stopped:
                self._wait_for_end(host, key)
            return
        for done in status.exits:
            self._exited(gang, host, done)
        if host in self._cut_off and gang.watch.since_s is not None:
            gang.watch.since_s = self._clock()  # steps that nobody could hear of are no pause
        self._progressed(gang, status.progress, host)
        match status.phase:
            case agent_pb2.ATTEMPT_PHASE_PREPARED:
                self._prepared(gang, host, status.prepared)
                if gang.phase is GangPhase.STARTING:
                    self._launch(gang, [host])
            case agent_pb2.ATTEMPT_PHASE_STARTED:
                self._prepared(gang, host, status.prepared)
                gang.mark(host, HostPhase.STARTED)
                if status.world_size not in (0, len(gang.role_of(host).ranks)):
                    first = gang.ranks_of(host).first_rank
                    gang.exited(host, first, 0, 9, self._clock(), "its role has been resized")
            case agent_pb2.ATTEMPT_PHASE_STOPPED:
                self._stopped_there(gang, host)
        if gang.failures and gang.phase is GangPhase.PREPARING and gang.has_started:
            gang.enter(GangPhase.RUNNING, self._clock())  # it fails, whoever else is out of reach
        if gang.phase is GangPhase.FAILING:
            self._sessions.send(host, orders.stop(orders.key_of(gang), 0))
        self._advance(gang)

    def _has_no_use_for_copies(self, uid: str, host: str) -> bool:
        """Whether a job has ended, or goes on without a host that has come back."""
        if (gang := self._gangs.get(uid)) is not None:
            return host not in gang.by_host
        return all(job.uid != uid for job in self._writer.state.jobs.values())

    def _wait_for_end(self, host: str, key: tuple[str, int]) -> None:
        """An attempt that is over runs on a host that has come back: the next one of its job,
        unless it has been started by now, is started once that has ended."""
        uid, attempt = key
        gang, jobs = self._gangs.get(uid), self._writer.state.jobs.values()
        if gang is not None and gang.phase not in (GangPhase.WAITING, GangPhase.PREPARING):
            return
        if self._ending.is_ending(host, key):
            return
        job = next((job for job in jobs if job.uid == uid), None)
        if job is None or job.spec.run is None:
            return
        old = replace(job, attempt=attempt)
        self._ending.await_end(self._remnant(old, job.spec.run, host))

    def _unknown_there(self, gang: LaunchedGang, host: str) -> None:
        """The host does not have what it should: it has been started anew, or was never told."""
        if gang.phase is GangPhase.RUNNING and role_restart.awaits(gang, host):
            self._sessions.send(host, orders.stop(orders.key_of(gang), 0))  # it says Stopped
        elif gang.phase is GangPhase.RUNNING or gang.has_started:
            first = gang.ranks_of(host).first_rank
            gang.exited(host, first, 0, 9, self._clock(), "its host was started anew")
            gang.mark(host, HostPhase.STOPPED)
            if gang.phase in (GangPhase.WAITING, GangPhase.PREPARING):
                gang.enter(GangPhase.RUNNING, self._clock())
        elif gang.phase in (GangPhase.PREPARING, GangPhase.STARTING):
            gang.mark(host, HostPhase.UNKNOWN)
            self._sessions.send(host, self._prepare(gang, host))
        self._advance(gang)

    def on_word(self, host: str, message: agent_pb2.SessionRequest) -> None:
        kind = message.WhichOneof("message")
        if kind == "channel_data":
            self.channels.on_data(host, message.channel_data)
            return
        if kind == "host_checked":
            self._burn_ins.on_checked(host, message.host_checked)
            return
        if kind == "host_probed":
            writer = self._writer
            self._probes.on_probed(writer.state, host, message.host_probed, writer.now_ns())
            return
        if kind in (None, "hello", "beat"):
            return
        word: Any = getattr(message, kind or "")
        key = (word.key.job_uid, word.key.attempt)
        if kind == "stopped" and self._ending.leave_host(host, key):
            self._sessions.send(host, orders.forget(word.key))
            return
        gang = self._gang(key, host)
        if gang is None:
            self._late(host, key, kind or "", word)
            return
        match kind:
            case "step_times":
                for each in word.samples:
                    gang.measured(host, each.step, each.seconds)
                return
            case "prepared":
                self._unfit.clear()
                self._prepared(gang, host, word)
                if gang.phase is GangPhase.STARTING:
                    self._launch(gang, [host])
            case "refused":
                gang.mark(host, HostPhase.REFUSED)
                gang.refusals[host] = word.reason
                gang.may_fit_elsewhere |= word.is_passing
                if word.is_unfit:
                    gang.unfit.add(host)
                if gang.phase is GangPhase.RUNNING:
                    role_restart.give_up(gang, host, word.reason, self._clock())
            case "started":
                gang.mark(host, HostPhase.STARTED)
                role_restart.note(gang, host, RoleStage.STARTING, self._clock())
            case "exited":
                self._exited(gang, host, word)
            case "stopped":
                self._stopped_there(gang, host)
            case "progress":
                self._progressed(gang, word, host)
            case "held_copies":
                self._note_copies(gang, host, word)
                return
        self._advance(gang)

    def _late(self, host: str, key: tuple[str, int], kind: str, word: Any) -> None:
        """A word about an attempt that is over."""
        ending = self._ending.find(host, key)
        if ending is not None and kind == "progress":
            self._progressed(ending.gang, word)
            self._ending.note_save(ending)
        elif ending is not None and host in ending.hosts:
            return  # it has been told
        elif kind in ("prepared", "started"):
            self._sessions.send(host, orders.stop(word.key, 0))
        elif kind == "stopped":
            self._sessions.send(host, orders.forget(word.key))

    def _prepared(self, gang: LaunchedGang, host: str, word: agent_pb2.Prepared) -> None:
        if word.HasField("held"):
            self._note_copies(gang, host, word.held)
        if gang.by_host[host] is HostPhase.UNKNOWN:
            gang.mark(host, HostPhase.PREPARED)
        role = gang.role_of(host)
        if word.port and host == role.hosts[0]:
            gang.masters[role.name] = (word.address, word.port)
        if role_restart.note(gang, host, RoleStage.PREPARING, self._clock()):
            self._launch(gang, role.hosts)

    def _exited(self, gang: LaunchedGang, host: str, word: agent_pb2.Exited) -> None:
        at_s = self._clock() - word.age.ToNanoseconds() / 1e9
        if role_restart.is_ending(gang, host):
            return
        if gang.phase is GangPhase.FAILING and at_s > gang.since_s:
            return  # this is what it was told
        gang.exited(
            host, word.rank, word.code, word.signal, at_s, word.log_tail, is_oom=word.out_of_memory
        )

    def _stopped_there(self, gang: LaunchedGang, host: str) -> None:
        """Nothing is left of it on that host; its ranks have all been heard of before."""
        gang.mark(host, HostPhase.STOPPED)
        if role_restart.is_ending(gang, host):
            busy = self._ending.hosts
            self._begin_again(gang, role_restart.to_prepare(gang, host, self._clock(), busy))
            return
        unknown = (rank for rank in gang.numbers_of(host) if not gang.is_known(rank))
        if gang.phase is not GangPhase.FAILING and (rank := next(unknown, None)) is not None:
            gang.exited(host, rank, 0, 9, self._clock(), "")

    def _begin_again(self, gang: LaunchedGang, hosts: Sequence[str]) -> None:
        """Have hosts of roles that begin again make ready."""
        for host in hosts:
            gang.mark(host, HostPhase.UNKNOWN)
            self._sessions.send(host, self._prepare(gang, host, anew=True))

    def _progressed(self, gang: LaunchedGang, word: agent_pb2.Progress, host: str = "") -> None:
        if hang.note_progress(gang, word, host, self._clock()):
            self._reports.report(gang, launch.hung, "")
        gang.can_save |= word.can_save
        if not self._checkpoints.note(gang, word.checkpoint_step, word.checkpoint):
            return
        if gang.is_warned and gang.phase is GangPhase.RUNNING:
            self._to_all(gang, orders.stop_saving(gang))
        self._write_down_if_due(gang)

    def _warn_of_limit(self, gang: LaunchedGang) -> None:
        """Ask ranks to save shortly before their time limit, where it ends them; once they have
        saved, no more."""
        job = gang.placed.job
        if job.limit_ns is None or gang.phase is not GangPhase.RUNNING:
            return
        if self._writer.options.overrun is Overrun.EXTEND:
            return
        left_ns = job.present.start_ns + job.limit_ns - self._writer.now_ns()
        is_near = left_ns <= min(gang.run.warn_s * SECOND_NS, job.limit_ns // 4)
        if is_near is not gang.is_warned:  # it may be given more time
            gang.is_warned = is_near
            order = orders.save(gang, left_ns / SECOND_NS) if is_near else orders.stop_saving(gang)
            self._to_all(gang, order)

    def _look_for_hang(self, gang: LaunchedGang, now_s: float) -> None:
        """Say it of a gang whose steps have stopped coming, take the stacks of its ranks, and do
        what its owner wants. Nothing is known of one whose hosts are out of reach."""
        action = gang.placed.job.spec.hang.action
        if gang.phase is not GangPhase.RUNNING or action is HangAction.IGNORE:
            return
        if not self._sessions.connected.issuperset(gang.hosts):
            return
        fabric = self._writer.state.loaded_fabric
        if gang.hung_s is None:
            if hang.is_overdue(gang, now_s):
                gang.hung_s = now_s
                self._to_all(gang, orders.dump_stacks(gang))
        elif not gang.is_hang_told:
            if now_s - gang.hung_s >= hang.ANSWER_S:
                gang.is_hang_told = True
                self._reports.report(gang, launch.hung, gang.hang_text(now_s, fabric))
        elif now_s - gang.hung_s >= hang.STACKS_S and action is HangAction.ASK:
            self._reports.submit(hang.ask_owner(gang, now_s, fabric))
        elif now_s - gang.hung_s >= hang.STACKS_S and action is HangAction.RESTART:
            failure = hang.hang_failure(gang, now_s, fabric)
            gang.failures[failure.rank] = failure
            self._advance(gang)

    def progress(self, uid: str, attempt: int) -> tuple[StepWatch, float] | None:
        """Return how far the ranks of an attempt are or came, and how many seconds ago their newest
        step was complete; None where they report nothing, or the attempt ended long ago."""
        gang = self._gangs.get(uid) or self._ended.get(uid)
        if gang is None or gang.attempt != attempt or gang.watch.since_s is None:
            return None
        return gang.watch, self._clock() - gang.watch.since_s

    def _write_down_if_due(self, gang: LaunchedGang) -> None:
        if self._checkpoints.is_due(gang, self._clock()):
            self._write_down(gang)

    def _write_down(self, gang: LaunchedGang, then: Callable[[], None] | None = None) -> None:
        """Have the log know the newest checkpoint of this attempt; `then` is called once it has."""
        if (saved := self._checkpoints.write_down(gang, self._clock())) is not None:
            self._reports.report(gang, launch.checkpoint_saved, *saved, then=then)

    # --- hosts --------------------------------------------------------------------------------

    def on_broken(self, host: str) -> None:
        """Note that the stream of a host has ended, although its lease has not."""
        for gang in list(self._gangs.values()):
            if host in gang.by_host:
                self._advance(gang)
        self._ending.settle()

    def on_lost(self, host: str) -> None:
        is_known = host in self._writer.state.loaded_fabric.index_by_name
        is_awaited = is_known and not self._is_dismissed(host)
        if is_awaited and not self._cut_off.has_gang(self._writer.state, host):
            self._reports.host_lost(host, f"silent for {self._lease_s:g} s")
        self.on_broken(host)

    def _is_dismissed(self, host: str) -> bool:
        """Whether it has no agent because nothing runs there."""
        return self._substrate is not None and self._substrate.is_dismissed(host)

    # --- hosts that are silent together -----------------------------------------------------------

    def on_silent(self, hosts: Collection[str]) -> None:
        """Judge whether these hosts have failed, or the server is cut off from them."""
        silent = self._unheard_hosts() - self._seen
        silent |= {host for host in hosts if not self._is_dismissed(host)}
        connected = self._sessions.connected
        self._show_cuts(self._cut_off.judge(self._writer.state, silent, connected, self._clock()))

    def _judge_again(self, now_s: float) -> None:
        """Take hosts for lost that are still silent a lease after most others have come back."""
        if self._cut_off.is_due(now_s, self._lease_s):
            before = self._cut_off.hosts
            self.on_silent(())
            for host in sorted(before - self._cut_off.hosts):
                self.on_lost(host)

    def _forget_cuts(self) -> None:
        self._cut_off.forget()
        self._show_cuts([])

    def _show_cuts(self, reports: list[ReportHost]) -> None:
        for report in reports:
            self._reports.submit(report)
        self._cut_off.show(self._writer.instruments.beats)

    def _offer_lead_if_unreached(self, now_s: float) -> None:
        """Let a server lead that agents may reach, where none has reached this one for long; ever
        more seldom while that does not help."""
        if self._sessions.connected:
            self._next_offer_s = _OFFER_LEASES * self._lease_s
        if self._sessions.connected or not (self._gangs or self._seen):
            self._unheard_s = None
            return
        self._unheard_s = self._unheard_s or now_s
        if (unheard_s := now_s - max(self._unheard_s, self._led_s)) > self._next_offer_s:
            self._next_offer_s *= 2
            self._offer_lead(f"no agent has reached this server for {unheard_s:.0f} s: others may")

    def await_agents(self, state: State) -> None:
        """Start nothing on hosts of a new log, or on hosts that are new in the fabric, before their
        agents have introduced themselves. For all other hosts the log would say if their agents had
        been lost."""
        hosts, before = set(state.loaded_fabric.hosts), self._known_hosts
        has_history = bool(state.hosts or state.jobs or state.ended)
        is_first, self._known_hosts = not before, hosts
        may_wait = self._substrate is None and not state.health.has_burn_in
        if hosts == before or not may_wait or (is_first and has_history):
            return
        for host in sorted(hosts - before - self._sessions.connected):
            self._reports.submit(ReportHost(host, AGENT_AWAITED, "no agent has come in yet"))

    def _return_hosts(self, state: State) -> None:
        """Report hosts that were given up in the moment in which they came back."""
        for index, record in state.hosts.items():
            host = state.loaded_fabric.hosts[index]
            if lacks_agent(record) and host in self._sessions.connected:
                self._return_host(state, host)

    def _return_host(self, state: State, host: str) -> None:
        """Return a host that is out for the sake of its agent alone, which is back."""
        host_state = state.host(state.loaded_fabric.index_by_name[host])
        if lacks_agent(host_state):
            was_cut_off = host in self._ran_on or host in self._cut_off
            self._reports.submit(ReportHost(host, AGENT_REACHED if was_cut_off else AGENT_BACK))

    async def _tick_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self.tick()
            self._writer.instruments.beats.beat("launcher", _SILENT_S)

    def tick(self) -> None:
        """Do what is due by the clock."""
        now_s = self._clock()
        if now_s - self._looked_s > 1.0:
            self._looked_s = now_s
            self.await_agents(self._writer.state)
            self._return_hosts(self._writer.state)
            if self._cut_off.drop_down(self._writer.state):
                self._show_cuts([])
            self._offer_lead_if_unreached(now_s)
            self._judge_again(now_s)
            self._probes.order(self._writer.state)
        self._ending.tick(now_s)
        for gang in list(self._gangs.values()):
            self._look_after(gang, now_s)

    def _end_idle(self, gang: LaunchedGang, now_s: float) -> None:
        """End a job that is there for commands beside its ranks, once nobody runs any."""
        if gang.run.idle_s and gang.phase is GangPhase.RUNNING:
            used_s = self.channels.idle_s(gang.uid)
            idle_s = min(now_s - gang.since_s, math.inf if used_s is None else used_s)
            if idle_s > gang.run.idle_s:
                reason = f"nobody has run a command beside its ranks for {gang.run.idle_s} s"
                self._reports.completed(gang, reason)

    def _look_after(self, gang: LaunchedGang, now_s: float) -> None:
        """Do what is due for one gang; an error concerns no other gang, and is logged once."""
        try:
            self._overdue(gang, now_s)
            self._look_for_hang(gang, now_s)
            self._warn_of_limit(gang)
            self._end_idle(gang, now_s)
            self._write_down_if_due(gang)
        except Exception:
            if gang.uid not in self._failing:
                log.exception("attempt %d of %s is not looked after", gang.attempt, gang.name)
            self._failing.add(gang.uid)
        else:
            self._failing.discard(gang.uid)

    def _overdue(self, gang: LaunchedGang, now_s: float) -> None:
        """Hosts that should have answered."""
        waited_s = now_s - gang.since_s
        if gang.phase is GangPhase.RUNNING:
            self._begin_again(gang, role_restart.end_pauses(gang, now_s, self._ending.hosts))
        most_s = _READY_S + self._site.longest_s(gang.run) + gang.run.grace_s
        if role_restart.has_overdue(gang, now_s, most_s):
            self._advance(gang)
        absent = [h for h in gang.hosts if h not in self._sessions.connected]
        if gang.phase is GangPhase.FAILING or gang.refusals:
            self._advance(gang)
        elif absent and gang.phase in (GangPhase.PREPARING, GangPhase.STARTING):
            starting = self._substrate.starting() if self._substrate is not None else frozenset()
            lost = [host for host in absent if host not in starting]
            if lost and waited_s > self._lease_s and now_s - self._led_s > self._lease_s:
                gang.since_s = now_s  # the log is about to stop it
                if gang.has_started:
                    self.on_silent(self._unheard_hosts())
                for host in lost:
                    if not self._cut_off.has_gang(self._writer.state, host):
                        self._reports.host_lost(host, f"no agent for {self._lease_s:g} s")
        elif (gang.phase is GangPhase.STARTING and waited_s > self._lease_s) or (
            gang.phase is GangPhase.PREPARING
            and waited_s > _READY_S + self._site.longest_s(gang.run)
        ):
            late = gang.not_yet(HostPhase.STARTED, HostPhase.STOPPED)
            if gang.phase is GangPhase.PREPARING:
                late = gang.not_yet(*_BEYOND_PREPARE)
            gang.refusals |= {late[0]: f"did not answer for {waited_s:.0f} s"}
            self._refused(gang)

    def _unheard_hosts(self) -> set[str]:
        """Return hosts of gangs that had started whose agents are not there."""
        gangs = (gang for gang in self._gangs.values() if gang.has_started)
        return {host for gang in gangs for host in gang.hosts} - self._sessions.connected

    # --- helpers ---------------------------------------------------------------------------------

    def _gang(self, key: tuple[str, int], host: str) -> LaunchedGang | None:
        """The attempt that runs, or should, on this host."""
        gang = self._gangs.get(key[0])
        if gang is None or gang.attempt != key[1] or not gang.is_live:
            return None
        return gang if host in gang.by_host else None

    def _have_warm(self, job: Job, spares: tuple[str, ...]) -> None:
        """Spares import what the ranks need before they are needed."""
        run = job.spec.run
        if run is None or not run.warm:
            return
        for host in spares:
            self._sessions.send(host, orders.warm(job, run))

    def _to_all(self, gang: LaunchedGang, message: agent_pb2.SessionResponse) -> None:
        for host in gang.hosts:
            self._sessions.send(host, message)


_BEYOND_PREPARE = (
    HostPhase.PREPARED,
    HostPhase.LAUNCHED,
    HostPhase.STARTED,
    HostPhase.STOPPED,
)
_ANSWERED = (HostPhase.REFUSED, HostPhase.STARTED, HostPhase.STOPPED)


def _of_task(run: RunSpec, array: JobArray | None) -> RunSpec:
    """Return what to run, with the task's number where the job is one of an array."""
    if array is None:
        return run
    return replace(run, env=tuple(sorted({**dict(run.env), **array.variables}.items())))


def _job_is_over(state: State, gang: LaunchedGang) -> bool:
    job = state.jobs.get(gang.name)
    return job is None or job.uid != gang.uid or job.state not in LIVE
