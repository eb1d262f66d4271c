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
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from muster.structs import replace
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from scheduler.core import Job, Rejected, State
from scheduler.core.admission import launch
from scheduler.core.fold.attempts import (
    AttemptLeft,
    GangTracker,
    Launcher,
    PlacedGang,
    carry_out,
)
from scheduler.core.fold.effects import JobChange
from scheduler.core.model.commands import EndJob, ReportHost, RequeueJob
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.job_array import JobArray
from scheduler.core.model.lifecycle import LIVE, HostState, JobState
from scheduler.core.model.run_lineage import lineage_key, resume_point
from scheduler.core.model.scheduling_options import Overrun
from scheduler.core.names import short_name
from scheduler.core.policies.hang import HangAction
from scheduler.core.policies.restart_rule import StopCause
from scheduler.core.policies.run import RunSpec
from scheduler.engine.feed import Closed, FellBehind
from scheduler.engine.proposal import NotLeading, WriterStopped
from scheduler.engine.writer import Writer
from scheduler.eventlog.store import Compacted, NotWritten, StoreError
from scheduler.identity import SERVER, Caller, Role, act_for
from scheduler.launch.cut_off import cut_domains
from scheduler.launch.gang import FOLLOWERS_S, GangPhase, HostPhase, LaunchedGang, RankFailure
from scheduler.launch.joining import HostJoins
from scheduler.launch.sessions import AgentSessions
from scheduler.launch.step_watch import StepWatch
from scheduler.launch.substrate import Substrate
from scheduler.launch.tails import LogTails
from scheduler.observe.supervision import Tasks
from scheduler.v1 import agent_pb2

AGENT_LOST, AGENT_BACK, AGENT_REACHED = "agent-lost", "agent-back", "agent-reached"
CUT_OFF, REACHED = "agents-cut-off", "agents-reached"  # of domains
LOG_EVERY_S = 60.0  # checkpoints of one job that are written down, besides an attempt's last
STACKS_S = 5.0  # for which agents may take stacks before a gang that hangs is stopped
MOST_SAVE_S = 30.0  # for which ranks that are to leave may save first
MOST_ENDED = 200  # jobs that have ended and whose steps are remembered
_TICK_S = 0.1
_SILENT_S = 10.0  # without a tick, after which the launcher does not work
_AGAIN_S = 0.5  # after the store could not be written
_READY_S = 130.0  # for which a host may take to be clear

log = logging.getLogger("muster.launch")

Response = agent_pb2.SessionResponse


@dataclass(slots=True, eq=False)
class Leaving:
    """An attempt that is over in the log while its ranks may still save and end. `hosts`: those
    on which some may be left."""

    gang: LaunchedGang
    hosts: set[str]
    grace_s: float
    until_s: float  # by when they are told to stop, while they save
    saved_before: tuple[int, str] | None = None
    is_saving: bool = False
    waiting: list[str] = field(default_factory=list)


class AgentLauncher(Launcher):
    """`lease_s`: after which an agent that is silent is lost. `clock`: seconds. `tails`: takes
    pieces of logs. `substrate`: what brings agents up, if the server does. `may_join`: hosts that
    the fabric lacks join it. `keeps_ranks`: those of an agent that hears nothing run on."""

    def __init__(
        self,
        writer: Writer,
        sessions: AgentSessions,
        lease_s: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        tails: LogTails | None = None,
        substrate: Substrate | None = None,
        may_join: bool = True,
        keeps_ranks: bool = True,
    ) -> None:
        self._writer = writer
        self._sessions = sessions
        self._lease_s = lease_s
        self._clock = clock
        self._gangs: dict[str, LaunchedGang] = {}  # by job uid, of attempts that run or should
        self._leaving: list[Leaving] = []
        self._ended: dict[str, LaunchedGang] = {}  # by job uid, the newest last
        self._jobs: dict[str, Job] = {}  # with something to run, as the last change left them
        self._saved: dict[str, tuple[int, str]] = {}  # by job uid: step, where
        self._logged_s: dict[str, float] = {}  # by job uid: when the log had one last
        self._tracker = GangTracker()
        self._tasks = Tasks(writer.instruments.beats)
        self._led_s = self._looked_s = 0.0
        self._seen: set[str] = set()  # hosts whose agents have been there since it leads
        self._ran_on: set[str] = set()  # hosts on which ranks ran when their agents came last
        self._cut_off: dict[str, str] = {}  # hosts that the server is cut off from; their domains
        self._cut_domains: dict[str, int] = {}
        self._launched: HostSet = 0  # hosts of gangs that ran when agents were silent last
        self._judged_s = 0.0
        self._failing: set[str] = set()  # uids of jobs whose last tick failed
        self._joins = HostJoins(writer, self._has_joined, self._has_not_joined)
        self._greetings: dict[str, agent_pb2.Hello] = {}  # of hosts that are about to join
        self._may_join, self._keeps_ranks = may_join, keeps_ranks
        self._tails = tails
        self._substrate = substrate

    def busy_hosts(self) -> set[str]:
        """Hosts on which something runs, should run, or is being left."""
        hosts = {host for gang in self._gangs.values() for host in gang.hosts}
        return hosts.union(*(leaving.hosts for leaving in self._leaving))

    def step_times(self, uid: str, attempt: int) -> Mapping[int, Sequence[float]]:
        """How long the ranks of an attempt computed, by step; nothing where nobody has said."""
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
                await self._writer.lead_change(term)

    def begin_to_lead(self, term: int) -> None:
        """Serve agents in this term; who of them is there is not known yet."""
        self._led_s = self._clock()
        self._seen.clear()
        self._ran_on.clear()
        self._forget_cuts()
        self._sessions.lead(term, self._lease_s, self, keeps_ranks=self._keeps_ranks)

    async def _lead(self, term: int) -> None:
        self.begin_to_lead(term)
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
        self._tracker = GangTracker()
        before, self._gangs = self._gangs, {}
        self._jobs = {}
        for job in state.holding:
            if job.spec.run is None:
                continue
            self._jobs[job.name] = job
            run = PlacedGang.of(job, state.loaded_fabric)
            self._tracker.adopt(run)
            self._recall(job)
            known = before.get(job.uid)
            if known is not None and known.attempt == job.attempt:
                self._gangs[job.uid] = known
            elif job.state is JobState.RUNNING:
                self.begin(run)
        for gang in before.values():
            if self._gangs.get(gang.uid) is not gang:
                self._leave(gang, 0)

    def feed(self, change: JobChange) -> None:
        """One change of one job."""
        job = change.job
        if job.spec.run is None:
            return
        self._jobs[job.name] = job
        for each in self._tracker.feed([change]):
            carry_out(self, each)
        if job.uid in self._gangs and job.state is JobState.RUNNING:
            self._have_warm(job, change.fabric.names(job.spares))
        if job.hosts == () or job.name not in self._tracker.names:
            self._jobs.pop(job.name, None)

    def _recall(self, job: Job) -> None:
        """What the log has of its newest checkpoint, unless more is known."""
        if job.saved is not None and job.uid not in self._saved:
            self._saved[job.uid] = (job.saved.step, job.saved.where)
            age_s = max(0, self._writer.now_ns() - job.saved.at_ns) / 1e9
            self._logged_s.setdefault(job.uid, self._clock() - age_s)

    # --- what a launcher does ------------------------------------------------------------------

    def begin(self, run: PlacedGang) -> None:
        """Start all ranks, once their hosts are clear."""
        job, fabric = self._jobs[run.name], self._writer.state.loaded_fabric
        spec = job.spec.run
        assert spec is not None
        gang = LaunchedGang(
            job.name,
            job.uid,
            run.attempt,
            run.hosts,
            _of_task(spec, job.spec.array),
            job.request.parallelism.world_size,
            fabric.gpus_per_host,
            self._clock(),
            gpus=frozenset(run.gpus),
            lineage=lineage_key(job),
        )
        self._recall(job)
        self._gangs[job.uid] = gang
        self._advance(gang)

    def stop(self, run: PlacedGang) -> None:
        """A failure stopped the attempt: what is left of it cannot go on."""
        gang = self._gangs.pop(self._jobs[run.name].uid, None)
        if gang is not None:
            self._leave(gang, 0)

    def leave(self, left: AttemptLeft) -> None:
        """The attempt has left its hosts: it ended, or leaves them as planned."""
        job = self._jobs[left.run.name]
        gang = self._gangs.pop(job.uid, None)
        if gang is None:
            return
        is_planned = job.state in (JobState.RUNNING, JobState.QUEUED)
        grace_s = 0.0 if gang.is_complete else float(gang.run.grace_s)
        self._leave(gang, grace_s, saves=is_planned and gang.phase is GangPhase.RUNNING)

    def _leave(self, gang: LaunchedGang, grace_s: float, *, saves: bool = False) -> None:
        """Stop what may still run of an attempt; with `saves` it may save before."""
        self._write_down(gang)
        self._remember_ended(gang)
        gang.enter(GangPhase.OVER, self._clock())
        hosts = set(gang.left)
        for host in gang.hosts:
            if host not in hosts:
                self._sessions.send(host, _forget(_key(gang)))
        leaving = Leaving(gang, hosts, grace_s, self._clock(), gang.saved)
        self._leaving.append(leaving)
        if saves and gang.can_save:
            leaving.is_saving = True
            leaving.until_s += MOST_SAVE_S
            self._to_all(gang, _save(gang, MOST_SAVE_S))
        else:
            self._stop_all(leaving)

    def _remember_ended(self, gang: LaunchedGang) -> None:
        """Keep how long its steps took, for who asks later."""
        gang.watch.steps.clear()
        gang.watch.busy.clear()
        gang.times.clear()
        self._ended.pop(gang.uid, None)
        self._ended[gang.uid] = gang
        if len(self._ended) > MOST_ENDED:
            del self._ended[next(iter(self._ended))]

    def _stop_all(self, leaving: Leaving) -> None:
        leaving.is_saving = False
        leaving.until_s = self._clock() + leaving.grace_s + self._lease_s
        for host in sorted(leaving.hosts):
            self._sessions.send(host, _stop(leaving.gang, leaving.grace_s))
        self._settle(leaving)

    def _settle(self, leaving: Leaving) -> None:
        """Whether it has left: nothing runs where anybody can say so."""
        if leaving.is_saving or any(host in self._sessions.connected for host in leaving.hosts):
            return
        if leaving in self._leaving:
            if leaving.gang.saved != leaving.gang.logged:
                # The next job of its run goes on from there: it waits until the log has it.
                self._write_down(leaving.gang, lambda: self._settle(leaving))
                return
            self._leaving.remove(leaving)
            if _job_is_over(self._writer.state, leaving.gang):
                self._saved.pop(leaving.gang.uid, None)
                self._logged_s.pop(leaving.gang.uid, None)
        for gang in list(self._gangs.values()):
            if gang.phase in (GangPhase.WAITING, GangPhase.PREPARING):
                self._advance(gang)

    def _is_waiting(self, gang: LaunchedGang) -> bool:
        """Whether others have yet to leave hosts of this gang, or its own last attempt or the last
        job of its run have yet to end."""
        hosts = set(gang.hosts)
        return any(
            each.gang.uid == gang.uid
            or (gang.lineage and each.gang.lineage == gang.lineage)
            or (not hosts.isdisjoint(each.hosts) and gang.meets(each.gang.gpus))
            for each in self._leaving
        )

    # --- how a gang goes on -------------------------------------------------------------------

    def _advance(self, gang: LaunchedGang) -> None:
        """Take the next step that is possible now."""
        now_s = self._clock()
        if gang.phase is GangPhase.WAITING and not self._is_waiting(gang):
            gang.enter(GangPhase.PREPARING, now_s)
            for host in gang.not_yet(*_BEYOND_PREPARE):
                self._sessions.send(host, _prepare(gang, host))
        if gang.phase is GangPhase.PREPARING and gang.refusals:
            if gang.all_are(HostPhase.REFUSED, *_BEYOND_PREPARE):
                self._refused(gang)
        elif (
            gang.phase is GangPhase.PREPARING
            and gang.all_are(*_BEYOND_PREPARE)
            and not self._is_waiting(gang)
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
            self._report(launch.launched, gang)
        if gang.failures and gang.phase in (GangPhase.STARTING, GangPhase.RUNNING):
            gang.enter(GangPhase.FAILING, now_s)
            self._to_all(gang, _stop(gang, 0))
        if gang.phase is GangPhase.FAILING:
            self._conclude(gang)
        if gang.phase is GangPhase.RUNNING and gang.is_complete:
            self._completed(gang)

    def _launch(self, gang: LaunchedGang, hosts: Sequence[str]) -> None:
        """Start the ranks there, from the newest checkpoint."""
        assert gang.master is not None
        address, port = gang.master
        step, where, predecessor = self._resume_point(gang)
        word = agent_pb2.Launch(
            key=_key(gang),
            master_address=address,
            master_port=port,
            checkpoint=where,
            checkpoint_step=step,
            predecessor=predecessor,
        )
        for host in hosts:
            gang.mark(host, HostPhase.LAUNCHED)
            self._sessions.send(host, Response(launch=word))

    def _resume_point(self, gang: LaunchedGang) -> tuple[int, str, str]:
        """The step and the place of the checkpoint that the gang goes on from, and the uid of the
        ended job that saved it, where its own has saved nothing."""
        if (own := self._saved.get(gang.uid)) is not None:
            return (*own, "")
        state, job = self._writer.state, self._jobs.get(gang.name)
        point = resume_point(state.lineages, job) if job is not None else None
        if point is None:
            return (0, "", "")
        return (point.step, point.where, point.uid if point.uid in state.ended else "")

    def _refused(self, gang: LaunchedGang) -> None:
        """Some hosts cannot start it; where none can, nothing is gained by trying again."""
        is_final = len(gang.refusals) == len(gang.hosts)
        host = next(host for host in gang.hosts if host in gang.refusals)
        self._over(gang)
        self._carry_out(
            lambda state, now_ns: launch.launch_failed(
                state,
                gang.name,
                gang.uid,
                gang.attempt,
                host,
                gang.refusals[host],
                now_ns,
                is_final=is_final,
            )
        )

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
                self._report_lost(host, f"its agent was gone when {first.host} failed")
            return
        failed = (first.rank, first.host, first.reason)
        self._carry_out(
            lambda state, now_ns: launch.rank_failed(
                state,
                gang.name,
                gang.uid,
                gang.attempt,
                *failed,
                now_ns,
                first.cause,
                first.code,
                gang.step,
            )
        )

    def _completed(self, gang: LaunchedGang) -> None:
        self._over(gang)
        self._submit(EndJob(gang.name, JobState.COMPLETED, gang.attempt, uid=gang.uid))

    def _over(self, gang: LaunchedGang) -> None:
        """Note that an attempt has ended; the log is about to say so."""
        self._write_down(gang)
        gang.enter(GangPhase.OVER, self._clock())

    # --- words of agents -----------------------------------------------------------------------

    def on_hello(self, host: str, hello: agent_pb2.Hello) -> None:
        """A host introduces itself: do there what the log says, and nothing else."""
        state = self._writer.state
        if host not in state.loaded_fabric.index_by_name:
            if hello.place and self._may_join:
                self._greetings[host] = hello
                self._joins.offer(host, hello.place)
            else:
                reason = f"the fabric has no host {host}, and "
                place = "its agent does not say where it is"
                reason += place if self._may_join else "none joins by itself (agents.join is off)"
                self._sessions.drop(host, reason)
            return
        self._seen.add(host)
        runs = any(a.phase == agent_pb2.ATTEMPT_PHASE_STARTED for a in hello.attempts)
        (self._ran_on.add if runs else self._ran_on.discard)(host)
        self._return_host(state, host)
        seen: set[tuple[str, int]] = set()
        for status in hello.attempts:
            key = (status.key.job_uid, status.key.attempt)
            seen.add(key)
            self._found(host, key, status)
        self._reached(host)
        for gang in list(self._gangs.values()):
            if host in gang.by_host and (gang.uid, gang.attempt) not in seen:
                self._unknown_there(gang, host)
        for leaving in list(self._leaving):
            gang = leaving.gang
            if host in leaving.hosts and (gang.uid, gang.attempt) not in seen:
                leaving.hosts.discard(host)
                self._settle(leaving)

    def _has_joined(self, host: str) -> None:
        hello = self._greetings.pop(host, None)
        if hello is not None and host in self._sessions.connected:
            self.on_hello(host, hello)

    def _has_not_joined(self, host: str, reason: str) -> None:
        self._greetings.pop(host, None)
        self._sessions.drop(host, reason)

    def _found(self, host: str, key: tuple[str, int], status: agent_pb2.AttemptStatus) -> None:
        gang = self._gang(key, host)
        if gang is None:  # the log knows nothing of it, or not here, or not any more
            is_stopped = status.phase == agent_pb2.ATTEMPT_PHASE_STOPPED
            word = _forget(status.key) if is_stopped else _stop_key(status.key, 0)
            self._sessions.send(host, word)
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
            case agent_pb2.ATTEMPT_PHASE_STOPPED:
                self._stopped_there(gang, host)
        if gang.failures and gang.phase is GangPhase.PREPARING and self._was_launched(gang):
            gang.enter(GangPhase.RUNNING, self._clock())  # it fails, whoever else is out of reach
        if gang.phase is GangPhase.FAILING:
            self._sessions.send(host, _stop(gang, 0))
        self._advance(gang)

    def _was_launched(self, gang: LaunchedGang) -> bool:
        """Whether the log says that all ranks of this attempt had started."""
        job = self._jobs.get(gang.name)
        return job is not None and job.present.launched_ns is not None

    def _wait_for_end(self, host: str, key: tuple[str, int]) -> None:
        """An attempt that is over runs on a host that has come back: the next one of its job,
        unless it has been started by now, is started once that has ended."""
        uid, attempt = key
        gang, jobs = self._gangs.get(uid), self._writer.state.jobs.values()
        if gang is not None and gang.phase not in (GangPhase.WAITING, GangPhase.PREPARING):
            return
        if any((e.gang.uid, e.gang.attempt) == key and host in e.hosts for e in self._leaving):
            return
        job = next((job for job in jobs if job.uid == uid), None)
        if job is None or job.spec.run is None:
            return
        now_s = self._clock()
        old = LaunchedGang(
            job.name, uid, attempt, (host,), job.spec.run, 1, 1, now_s, GangPhase.OVER
        )
        self._leaving.append(Leaving(old, {host}, 0.0, now_s + self._lease_s))

    def _unknown_there(self, gang: LaunchedGang, host: str) -> None:
        """The host does not have what it should: it has been started anew, or was never told."""
        if gang.phase is GangPhase.RUNNING or self._was_launched(gang):
            first = gang.ranks_of(host).first_rank
            gang.exited(host, first, 0, 9, self._clock(), "its host was started anew")
            gang.mark(host, HostPhase.STOPPED)
            if gang.phase in (GangPhase.WAITING, GangPhase.PREPARING):
                gang.enter(GangPhase.RUNNING, self._clock())
        elif gang.phase in (GangPhase.PREPARING, GangPhase.STARTING):
            gang.mark(host, HostPhase.UNKNOWN)
            self._sessions.send(host, _prepare(gang, host))
        self._advance(gang)

    def on_word(self, host: str, message: agent_pb2.SessionRequest) -> None:
        kind = message.WhichOneof("message")
        if kind == "log_chunk":
            if self._tails is not None:
                self._tails.heard(host, message.log_chunk)
            return
        if kind in (None, "hello", "beat"):
            return
        word: Any = getattr(message, kind or "")
        key = (word.key.job_uid, word.key.attempt)
        if kind == "stopped" and self._left(host, key):
            self._sessions.send(host, _forget(word.key))
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
                self._prepared(gang, host, word)
                if gang.phase is GangPhase.STARTING:
                    self._launch(gang, [host])
            case "refused":
                gang.mark(host, HostPhase.REFUSED)
                gang.refusals[host] = word.reason
            case "started":
                gang.mark(host, HostPhase.STARTED)
            case "exited":
                self._exited(gang, host, word)
            case "stopped":
                self._stopped_there(gang, host)
            case "progress":
                self._progressed(gang, word, host)
        self._advance(gang)

    def _late(self, host: str, key: tuple[str, int], kind: str, word: Any) -> None:
        """A word about an attempt that is over."""
        ended = (e for e in self._leaving if (e.gang.uid, e.gang.attempt) == key)
        leaving = next((e for e in ended if host in e.gang.by_host), None)
        if leaving is not None and kind == "progress":
            self._progressed(leaving.gang, word)
            if leaving.is_saving and leaving.gang.saved != leaving.saved_before:
                self._write_down(leaving.gang)
                self._stop_all(leaving)
        elif leaving is not None and host in leaving.hosts:
            return  # it has been told
        elif kind in ("prepared", "started"):
            self._sessions.send(host, _stop_key(word.key, 0))
        elif kind == "stopped":
            self._sessions.send(host, _forget(word.key))

    def _left(self, host: str, key: tuple[str, int]) -> bool:
        """Whether an attempt that is leaving has left this host."""
        for leaving in list(self._leaving):
            if (leaving.gang.uid, leaving.gang.attempt) == key and host in leaving.hosts:
                leaving.hosts.discard(host)
                self._settle(leaving)
                return True
        return False

    def _prepared(self, gang: LaunchedGang, host: str, word: agent_pb2.Prepared) -> None:
        if gang.by_host[host] is HostPhase.UNKNOWN:
            gang.mark(host, HostPhase.PREPARED)
        if word.port and host == gang.hosts[0]:
            gang.master = (word.address, word.port)

    def _exited(self, gang: LaunchedGang, host: str, word: agent_pb2.Exited) -> None:
        at_s = self._clock() - word.age.ToNanoseconds() / 1e9
        if gang.phase is GangPhase.FAILING and at_s > gang.since_s:
            return  # this is what it was told
        gang.exited(
            host, word.rank, word.code, word.signal, at_s, word.log_tail, is_oom=word.out_of_memory
        )

    def _stopped_there(self, gang: LaunchedGang, host: str) -> None:
        """Nothing is left of it on that host; its ranks have all been heard of before."""
        gang.mark(host, HostPhase.STOPPED)
        unknown = (rank for rank in gang.numbers_of(host) if not gang.is_known(rank))
        if gang.phase is not GangPhase.FAILING and (rank := next(unknown, None)) is not None:
            gang.exited(host, rank, 0, 9, self._clock(), "")

    def _progressed(self, gang: LaunchedGang, word: agent_pb2.Progress, host: str = "") -> None:
        gang.step = max(gang.step, word.step)
        self._watched(gang, word, host)
        gang.can_save |= word.can_save
        if not word.checkpoint or (gang.saved and gang.saved[0] >= word.checkpoint_step):
            return
        gang.saved = self._saved[gang.uid] = (word.checkpoint_step, word.checkpoint)
        if gang.is_warned and gang.phase is GangPhase.RUNNING:
            self._to_all(gang, _has_saved(gang))
        self._write_down_if_due(gang)

    def _watched(self, gang: LaunchedGang, word: agent_pb2.Progress, host: str) -> None:
        """Note how far the ranks of a host are, for whoever asks and for `_look_for_hang`."""
        watch, now_s = gang.watch, self._clock()
        before = watch.step
        watch.take(word.step, now_s)
        if host in gang.by_host:
            watch.take_ranks(gang.ranks_of(host).first_rank, word.rank_steps)
            watch.take_busy(host, word.busy, now_s)
        if word.step >= watch.step:
            watch.total = word.total_steps or watch.total
            watch.loss = word.loss if word.HasField("loss") else watch.loss
        if watch.step > before and gang.hung_s is not None:
            gang.hung_s = None
            self._say_hung(gang, "")

    def _warn_of_limit(self, gang: LaunchedGang) -> None:
        """Ask ranks to save shortly before their time limit, where it ends them; once they have
        saved, no more."""
        job = self._jobs.get(gang.name)
        if job is None or job.limit_ns is None or gang.phase is not GangPhase.RUNNING:
            return
        if self._writer.limits.overrun is Overrun.EXTEND:
            return
        left_ns = job.present.start_ns + job.limit_ns - self._writer.now_ns()
        is_near = left_ns <= min(gang.run.warn_s * SECOND_NS, job.limit_ns // 4)
        if is_near is not gang.is_warned:  # it may be given more time
            gang.is_warned = is_near
            word = _save(gang, left_ns / SECOND_NS) if is_near else _has_saved(gang)
            self._to_all(gang, word)

    def _look_for_hang(self, gang: LaunchedGang, now_s: float) -> None:
        """Say it of a gang whose steps have stopped coming, take the stacks of its ranks, and do
        what its owner wants. Nothing is known of one whose hosts are out of reach."""
        job = self._jobs.get(gang.name)
        if job is None or gang.phase is not GangPhase.RUNNING:
            return
        terms = job.spec.hang
        is_deaf = any(host not in self._sessions.connected for host in gang.hosts)
        if terms.action is HangAction.IGNORE or is_deaf:
            return
        if gang.hung_s is None:
            first_s, start_s = terms.first_step_s, gang.since_s
            if gang.watch.is_overdue(terms.after_s, now_s, first_s=first_s, start_s=start_s):
                gang.hung_s = now_s
                self._to_all(gang, Response(dump_stacks=agent_pb2.DumpStacks(key=_key(gang))))
                self._say_hung(gang, gang.hang_text(now_s))
        elif now_s - gang.hung_s < STACKS_S:
            return
        elif terms.action is HangAction.ASK:
            gang.hung_s, name = math.inf, short_name(gang.name)  # it is asked once
            text = (
                f"hangs: {gang.hang_text(now_s)}; `muster release {name}` starts it again,"
                f" `muster cancel {name}` ends it, `muster logs {name} --attempt"
                f" {gang.attempt} --stacks` says where it stood"
            )
            self._submit(RequeueJob(gang.name, text, hold=True, uid=gang.uid))
        elif terms.action is HangAction.RESTART:
            known = gang.watch.steps
            rank = next((r for r in gang.watch.lagging() if r not in gang.done), None)
            rank = min(set(known) - gang.done, default=0) if rank is None else rank
            host = gang.hosts[min(rank // gang.gpus_per_host, len(gang.hosts) - 1)]
            text = f"made no step: {gang.hang_text(now_s)}"
            gang.failures[rank] = RankFailure(now_s, rank, host, text, StopCause.HANG)
            self._advance(gang)

    def _say_hung(self, gang: LaunchedGang, text: str) -> None:
        self._carry_out(
            lambda state, now_ns: launch.hung(
                state, gang.name, gang.uid, gang.attempt, text, now_ns
            )
        )

    def progress(self, uid: str, attempt: int) -> tuple[StepWatch, float] | None:
        """How far the ranks of an attempt are or came, and how long ago their newest step was
        complete, in seconds; None: they have not said, or it ended long ago."""
        gang = self._gangs.get(uid) or self._ended.get(uid)
        if gang is None or gang.attempt != attempt or gang.watch.since_s is None:
            return None
        return gang.watch, self._clock() - gang.watch.since_s

    def _write_down_if_due(self, gang: LaunchedGang) -> None:
        since_s = self._clock() - self._logged_s.get(gang.uid, float("-inf"))
        if gang.saved != gang.logged and since_s >= LOG_EVERY_S:
            self._write_down(gang)

    def _write_down(self, gang: LaunchedGang, then: Callable[[], None] | None = None) -> None:
        """Have the log know the newest checkpoint of this attempt; `then` is called once it has."""
        saved = gang.saved
        if saved is None or saved == gang.logged:
            return
        gang.logged, self._logged_s[gang.uid] = saved, self._clock()
        self._carry_out(
            lambda state, now_ns: launch.checkpoint_saved(
                state, gang.name, gang.uid, gang.attempt, *saved, now_ns
            ),
            then,
        )

    # --- hosts --------------------------------------------------------------------------------

    def on_broken(self, host: str) -> None:
        """The stream of a host has ended; its lease has not."""
        for gang in list(self._gangs.values()):
            if host in gang.by_host:
                self._advance(gang)
        for leaving in list(self._leaving):
            self._settle(leaving)

    def on_lost(self, host: str) -> None:
        is_known = host in self._writer.state.loaded_fabric.index_by_name
        is_dismissed = self._substrate is not None and self._substrate.is_dismissed(host)
        if is_known and not is_dismissed and not self._is_left_alone(host):
            self._report_lost(host, f"silent for {self._lease_s:g} s")
        self.on_broken(host)

    # --- hosts that are silent together -----------------------------------------------------------

    def on_silent(self, hosts: Collection[str]) -> None:
        """Judge whether these hosts have failed, or the server is cut off from them."""
        state, self._judged_s = self._writer.state, self._clock()
        known = state.loaded_fabric.index_by_name
        silent = {host for host in hosts if host in known} | self._cut_off.keys()
        silent |= self._unheard_hosts() - self._seen
        agents = silent.union(host for host in self._sessions.connected if host in known)
        self._launched = 0
        for job in state.in_state(JobState.RUNNING):
            self._launched |= job.held if job.present.launched_ns is not None else 0
        before = self._cut_domains
        self._cut_domains = cut_domains(silent, agents, self._domain_of)
        by_host = {host: self._domain_of(host) for host in silent}
        self._cut_off = {h: domain for h, domain in by_host.items() if domain in self._cut_domains}
        for domain, count in self._cut_domains.items():
            if domain not in before:
                words = f"{count:,} hosts silent; gangs there are left alone"
                self._submit(ReportHost(domain, CUT_OFF, words))
                log.error("control plane cut off from %s: %s", domain, words)
        for domain in before.keys() - self._cut_domains.keys():
            self._submit(ReportHost(domain, REACHED))
        self._tell_cuts()

    def _reached(self, host: str) -> None:
        """A host has its agent again; the domain is reached once all of its hosts are."""
        domain = self._cut_off.pop(host, None)
        if domain is None:
            return
        self._judged_s = self._clock()
        self._cut_domains[domain] -= 1
        if not self._cut_domains[domain]:
            del self._cut_domains[domain]
            self._submit(ReportHost(domain, REACHED))
        self._tell_cuts()

    def _judge_again(self, now_s: float) -> None:
        """Take hosts for lost that are still silent a lease after most others have come back."""
        if not self._cut_off or now_s - self._judged_s <= self._lease_s:
            return
        before = set(self._cut_off)
        self.on_silent(())
        for host in sorted(before - self._cut_off.keys()):
            self.on_lost(host)

    def _is_left_alone(self, host: str) -> bool:
        """Whether a gang runs on this host as far as is known, which the server is cut off from."""
        index = self._writer.state.loaded_fabric.index_by_name[host]
        return host in self._cut_off and hostset.has(self._launched, index)

    def _domain_of(self, host: str) -> str:
        """Return the outermost domain of a host; in a fabric of one switch its first host."""
        fabric = self._writer.state.loaded_fabric
        if not fabric.tiers:
            return fabric.hosts[0]
        return fabric.tiers[0].domains[fabric.zone_of(fabric.index_by_name[host])]

    def _forget_cuts(self) -> None:
        self._cut_off, self._cut_domains = {}, {}
        self._tell_cuts()

    def _tell_cuts(self) -> None:
        """Keep health and metrics in step."""
        beats = self._writer.instruments.beats
        beats.cut_off.clear()
        beats.cut_off.update({(domain,): n for domain, n in self._cut_domains.items()})
        silent = [f"{domain}: {n:,} hosts silent" for domain, n in self._cut_domains.items()]
        words = f"control plane cut off from {'; '.join(silent)}; gangs there are left alone"
        beats.tell("agents", words if silent else "")

    def _report_lost(self, host: str, detail: str) -> None:
        self._submit(ReportHost(host, AGENT_LOST, detail))

    def _return_hosts(self, state: State) -> None:
        """Report hosts that were given up in the moment in which they came back."""
        for index, record in state.hosts.items():
            host = state.loaded_fabric.hosts[index]
            if record.signal == AGENT_LOST and host in self._sessions.connected:
                self._return_host(state, host)

    def _return_host(self, state: State, host: str) -> None:
        """Return a host that is out for the sake of its agent alone, which is back."""
        host_state = state.host(state.loaded_fabric.index_by_name[host])
        if host_state.state is HostState.FAILED and host_state.signal == AGENT_LOST:
            was_cut_off = host in self._ran_on or host in self._cut_off
            self._submit(ReportHost(host, AGENT_REACHED if was_cut_off else AGENT_BACK))

    async def _tick_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self.tick()
            self._writer.instruments.beats.beat("launcher", _SILENT_S)

    def tick(self) -> None:
        """What is due by the clock."""
        now_s = self._clock()
        if now_s - self._looked_s > 1.0:
            self._looked_s = now_s
            self._return_hosts(self._writer.state)
            self._judge_again(now_s)
        for leaving in list(self._leaving):
            if now_s >= leaving.until_s:
                if leaving.is_saving:
                    self._stop_all(leaving)
                else:  # an agent that does not end what it should is stopped by its next Prepare
                    leaving.hosts.clear()
                    self._settle(leaving)
        for gang in list(self._gangs.values()):
            self._look_after(gang, now_s)

    def _look_after(self, gang: LaunchedGang, now_s: float) -> None:
        """Do what is due for one gang; an error concerns no other gang, and is logged once."""
        try:
            self._overdue(gang, now_s)
            self._look_for_hang(gang, now_s)
            self._warn_of_limit(gang)
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
        absent = [h for h in gang.hosts if h not in self._sessions.connected]
        if gang.phase is GangPhase.FAILING or gang.refusals:
            self._advance(gang)
        elif absent and gang.phase in (GangPhase.PREPARING, GangPhase.STARTING):
            starting = self._substrate.starting() if self._substrate is not None else frozenset()
            lost = [host for host in absent if host not in starting]
            if lost and waited_s > self._lease_s and now_s - self._led_s > self._lease_s:
                gang.since_s = now_s  # the log is about to stop it
                if self._was_launched(gang):
                    self.on_silent(self._unheard_hosts())
                for host in lost:
                    if not self._is_left_alone(host):
                        self._report_lost(host, f"no agent for {self._lease_s:g} s")
        elif (gang.phase is GangPhase.STARTING and waited_s > self._lease_s) or (
            gang.phase is GangPhase.PREPARING and waited_s > _READY_S
        ):
            late = gang.not_yet(HostPhase.STARTED, HostPhase.STOPPED)
            if gang.phase is GangPhase.PREPARING:
                late = gang.not_yet(*_BEYOND_PREPARE)
            gang.refusals |= {late[0]: f"did not answer for {waited_s:.0f} s"}
            self._refused(gang)

    def _unheard_hosts(self) -> set[str]:
        """Return hosts of gangs that had started whose agents are not there."""
        gangs = (gang for gang in self._gangs.values() if self._was_launched(gang))
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
        word = agent_pb2.Warm(interpreter=run.command[0], modules=run.warm, user=run.user)
        for host in spares:
            self._sessions.send(host, Response(warm=word))

    def _to_all(self, gang: LaunchedGang, message: agent_pb2.SessionResponse) -> None:
        for host in gang.hosts:
            self._sessions.send(host, message)

    def _report(self, rule: Callable[..., launch.Answer], gang: LaunchedGang) -> None:
        self._carry_out(
            lambda state, now_ns: rule(state, gang.name, gang.uid, gang.attempt, now_ns)
        )

    def _carry_out(
        self,
        check: Callable[[State, int], launch.Answer],
        then: Callable[[], None] | None = None,
    ) -> None:
        self._tasks.start(self._written(partial(self._writer.carry_out, check), then))

    def _submit(self, command: EndJob | ReportHost | RequeueJob) -> None:
        self._tasks.start(self._written(partial(self._writer.submit, command)))

    async def _written(
        self, write: Callable[[], Coroutine[Any, Any, Any]], then: Callable[[], None] | None = None
    ) -> None:
        while True:
            try:
                answer = await write()
            except NotWritten:
                await asyncio.sleep(_AGAIN_S)
                continue
            except (NotLeading, WriterStopped, StoreError):
                break  # the next leader finds it out by itself
            if isinstance(answer, Rejected):
                log.info("not written: %s", answer.message)
            break
        if then is not None:
            then()


_BEYOND_PREPARE = (
    HostPhase.PREPARED,
    HostPhase.LAUNCHED,
    HostPhase.STARTED,
    HostPhase.STOPPED,
)
_ANSWERED = (HostPhase.REFUSED, HostPhase.STARTED, HostPhase.STOPPED)


def _of_task(run: RunSpec, array: JobArray | None) -> RunSpec:
    """What is run, with the number of the task where the job is one of an array."""
    if array is None:
        return run
    return replace(run, env=tuple(sorted({**dict(run.env), **array.variables}.items())))


def _job_is_over(state: State, gang: LaunchedGang) -> bool:
    job = state.jobs.get(gang.name)
    return job is None or job.uid != gang.uid or job.state not in LIVE


def _key(gang: LaunchedGang) -> agent_pb2.AttemptKey:
    return agent_pb2.AttemptKey(job_uid=gang.uid, attempt=gang.attempt)


def _prepare(gang: LaunchedGang, host: str) -> agent_pb2.SessionResponse:
    run, ranks = gang.run, gang.ranks_of(host)
    return Response(
        prepare=agent_pb2.Prepare(
            key=_key(gang),
            job=gang.name,
            command=run.command,
            env=dict(run.env),
            workdir=run.workdir,
            user=run.user,
            node=ranks.node,
            nodes=len(gang.hosts),
            first_rank=ranks.first_rank,
            ranks=ranks.ranks,
            world_size=gang.world_size,
            one_process=run.per_host == 1,
            warm=run.warm,
            gpus=sorted(gang.gpus),
        )
    )


def _save(gang: LaunchedGang, left_s: float) -> agent_pb2.SessionResponse:
    word = agent_pb2.SaveCheckpoint(key=_key(gang))
    word.left.FromMilliseconds(max(0, round(left_s * 1_000)))
    return Response(save_checkpoint=word)


def _has_saved(gang: LaunchedGang) -> agent_pb2.SessionResponse:
    return Response(save_checkpoint=agent_pb2.SaveCheckpoint(key=_key(gang), done=True))


def _stop(gang: LaunchedGang, grace_s: float) -> agent_pb2.SessionResponse:
    return _stop_key(_key(gang), grace_s)


def _stop_key(key: agent_pb2.AttemptKey, grace_s: float) -> agent_pb2.SessionResponse:
    word = agent_pb2.Stop(key=key)
    word.grace.FromMilliseconds(round(grace_s * 1_000))
    return Response(stop=word)


def _forget(key: agent_pb2.AttemptKey) -> agent_pb2.SessionResponse:
    return Response(forget=agent_pb2.Forget(key=key))
