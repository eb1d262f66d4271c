"""The agent of one host: it does what the server says, and says what became of it.

    session.py  words of the server -> Agent.hear -> ranks/attempt.py -> words to the server

One attempt runs on a host at a time, or several whose jobs have other GPUs of it: to prepare one
ends all others first that have any of its GPUs, and older ones of its job, so that no rank of an
old attempt is there when its successor starts. What the agent says again after a broken stream
or its own restart follows from the folders of its attempts, so nothing depends on a word that got
lost. Two clocks: the server takes a host for lost after one lease; the agent, which cannot know
that, follows no further order of the same stream after three without a word (`_check_lease`). Its
ranks run on until the server is back and says otherwise, or end then, as the last lease says. A
lease outlives the agent, as its ranks do.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.duration_pb2 import Duration

from scheduler.agent.checks.burn_in import BurnIn
from scheduler.agent.checks.gate import GateFailed, pass_gates
from scheduler.agent.checks.prober import HostProber
from scheduler.agent.copies.host_copies import HostCopies
from scheduler.agent.ranks import ranklog, stacks
from scheduler.agent.ranks.allow import AllowList, NotAllowed, program
from scheduler.agent.ranks.attempt import SUPERVISOR, HostAttempt, Key, Phase, RankExit
from scheduler.agent.ranks.channels import Channels
from scheduler.agent.ranks.containers import (
    OWN_CONTAINER,
    container_key,
    container_order,
    find_engine,
)
from scheduler.agent.ranks.order import order_of
from scheduler.agent.ranks.processes import CgroupRoot, adopt_orphans, end_strays
from scheduler.agent.ranks.rank_times import ComputedStep
from scheduler.release import release
from scheduler.v1 import agent_pb2

LEASES = 3  # without a word from the server, before its orders do not count any more
UNUSED_S = 60.0  # for which an agent waits for its one attempt, or for its first lease
KEPT_LOGS = 50  # attempts that are over
_TICK_S = 0.25
_MOST_UNTOLD = 1_000  # unreadable reports in one word
_MOST_POKES = 64  # that are taken in together
_PATIENCE_S = 120.0  # for what ran before to end
_KEPT = (
    "gangs of another tenant ran here, and without cgroups nothing guarantees that all their"
    " processes have ended: the host is free for others once it has booted"
)
_SEARCH = "/usr/local/bin:/usr/bin:/bin"
_PHASES = {
    Phase.PREPARED: agent_pb2.ATTEMPT_PHASE_PREPARED,
    Phase.STARTING: agent_pb2.ATTEMPT_PHASE_STARTED,
    Phase.STARTED: agent_pb2.ATTEMPT_PHASE_STARTED,
    Phase.STOPPED: agent_pb2.ATTEMPT_PHASE_STOPPED,
}

log = logging.getLogger("muster.agent")

Request = agent_pb2.SessionRequest


class Preparation(NamedTuple):
    """An attempt that is being prepared on this host. `gpus`: the GPUs that it has; empty for all
    of the host."""

    task: asyncio.Task[None]
    gpus: frozenset[int]


class StaleLeader(Exception):
    """The message came from a leader of a lower term, or from one that has given this host up, and
    is ignored."""


class Agent:
    """Runs the attempts of one host on the orders of the server. `say`: sends messages to the
    server, which may be away. `address`: at which other hosts reach this one. `state`: a folder of
    its own. `may_leave_processes`: of a gang that is over; then one tenant alone is served."""

    may_leave_processes = False

    def __init__(self, host: str, state: Path, address: str, allowed: AllowList) -> None:
        self.host = host
        self.address = address
        self.say: Callable[[agent_pb2.SessionRequest], None] = lambda _: None
        self.beat_s = 1.0
        self.place: Mapping[str, str] = {}
        self._tenant_file = state / "tenant"
        self._allowed = allowed
        self._root = state / "attempts"
        self._root.mkdir(parents=True, exist_ok=True, mode=0o711)
        state.chmod(0o711)
        self._epoch_file = state / "epoch"
        self._epoch = int(self._epoch_file.read_text()) if self._epoch_file.exists() else 0
        self._lease_file = state / "lease"
        self._lease_s = 0.0  # until when orders count; 0: no lease was given, or it has ended
        self._keeps_ranks = False  # once the lease has ended
        self._has_lapsed = False
        self._is_given_up = False  # its lease has ended since it said Hello
        self._cgroups = CgroupRoot(host)
        self._attempts: dict[Key, HostAttempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._preparing: dict[Key, Preparation] = {}
        self._failing: set[Key] = set()  # attempts of which the last look failed
        self._channels = Channels(host, lambda word: self.say(word))
        self._warm: dict[tuple[str, ...], subprocess.Popen[bytes]] = {}
        self._engine = find_engine()
        self._own_container = os.environ.get(OWN_CONTAINER)
        self._socket_path = str(state / "agent.sock")
        self._socket = self._listen()
        self._burn_in = BurnIn(allowed, address, _SEARCH)
        self.prober = HostProber(state / "probe.json")
        self._copies = HostCopies(state, address, lambda word: self.say(word))
        self._over = asyncio.Event()
        self.has_expired = asyncio.Event()  # its lease ran out or never came, and nothing runs
        self.is_for_one = False  # attempt, with which it leaves
        self.has_finished = asyncio.Event()  # that attempt is over, or none has come
        self._only: Key | None = None
        self._begun_s = now_s()
        adopt_orphans()
        for folder in sorted(self._root.iterdir()):
            if not (folder / "forgotten").exists() and (attempt := HostAttempt.from_folder(folder)):
                attempt.end_strays = self._end_strays
                self._attempts[attempt.key] = attempt
                attempt.look_at_progress()  # perhaps nobody has heard of it yet
                self._resume_copies(attempt)
                if attempt.has_processes:
                    log.warning(
                        "%s: its ranks have run on without the agent", attempt.key.folder_name
                    )
                    self._lease_s = self._lease_found()

    @property
    def has_cgroups(self) -> bool:
        return self._cgroups.path is not None

    def _check_tenant(self, tenant: str) -> None:
        """Keep the host to the first tenant since it has booted, where processes may be left, or
        since the step of Slurm has begun with which they end. Raises: NotAllowed."""
        if not self.may_leave_processes:
            return
        step = [os.environ.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID")]
        own, known = [[_boot_id(), *step], tenant], []
        with contextlib.suppress(FileNotFoundError):
            known = json.loads(self._tenant_file.read_text(encoding="utf-8"))
        if known[:1] == own[:1] and known != own:
            raise NotAllowed(_KEPT)
        self._tenant_file.write_text(json.dumps(own), encoding="utf-8")

    def _listen(self) -> socket.socket:
        """Where supervisors and ranks say that there is something to look at; nothing else."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._socket_path)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        listening.bind(self._socket_path)
        os.chmod(self._socket_path, 0o622)
        return listening

    def hello(self) -> agent_pb2.SessionRequest:
        """Look at the host and return the first message of a session."""
        self._is_given_up = False
        self._look()
        hello = agent_pb2.Hello(
            host=self.host,
            boot_id=_boot_id(),
            version=release(),
            has_cgroup=self.has_cgroups,
            may_leave_processes=self.may_leave_processes,
            place=self.place,
            containers=self._own_container or Path(self._engine).name,
        )
        for attempt in self._attempts.values():
            if attempt.phase is Phase.PREPARING:
                continue
            status = hello.attempts.add(key=_key(attempt.key), phase=_PHASES[attempt.phase])
            status.exits.extend(_exited(attempt, done) for done in attempt.exits)
            status.progress.CopyFrom(_progress(attempt))
            status.prepared.CopyFrom(self._prepared(attempt))
            status.world_size = int(attempt.order["env"]["WORLD_SIZE"])
        return Request(hello=hello)

    async def run(self) -> None:
        """Look after the attempts on this host, until cancelled."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket.fileno(), self._poked)
        watching = self._spawn(self._copies.watch())
        try:
            while True:
                self._check_lease()
                self._look()
                self._end_strays()
                is_unheard = not self._lease_s and now_s() - self._begun_s > UNUSED_S
                if (self._has_lapsed or is_unheard) and not self._running():
                    self.has_expired.set()
                for attempt in self._running():
                    if attempt.kill_s is not None and now_s() >= attempt.kill_s:
                        attempt.kill(now_s())
                if self._only is None and now_s() - self._begun_s > UNUSED_S:
                    self.has_finished.set()
                if self.prober.begins(now_s(), is_idle=self._has_no_ranks()):
                    self._spawn(self._probe())
                ended, _ = await asyncio.wait({watching}, timeout=_TICK_S)
                for task in ended:
                    task.result()  # its error ends the agent
        finally:
            watching.cancel()
            loop.remove_reader(self._socket.fileno())
            self._socket.close()
            for process in self._warm.values():
                _dismiss(process)
            for attempt in self._attempts.values():
                attempt.release()
            self._copies.close()
            self._cgroups.close()

    def hear(self, message: agent_pb2.SessionResponse) -> None:
        """Carry out a message of the server. Raises: StaleLeader."""
        self._check_lease()
        if self._is_given_up:  # words that waited while this process stood still, or was cut off
            raise StaleLeader(
                "its lease has ended: orders given before it ended are not carried out"
            )
        match message.WhichOneof("message"):
            case "lease":
                self._renew(message.lease)
            case "prepare":
                self._prepare(message.prepare)
            case "launch":
                self._spawn(self._launch(message.launch))
            case "stop":
                self._stop(message.stop)
            case "save_checkpoint":
                word = message.save_checkpoint
                if (attempt := self._attempts.get(_named(word.key))) and word.done:
                    attempt.ask_no_more()
                elif attempt is not None:
                    has_end = word.HasField("left")
                    left_s = word.left.ToNanoseconds() / 1e9 if has_end else None
                    attempt.ask_to_save(left_s)
            case "dump_stacks":
                if attempt := self._attempts.get(_named(message.dump_stacks.key)):
                    news = _progress(attempt)
                    news.computed_steps.extend(attempt.computed_steps())
                    self.say(Request(progress=news))
                    self._spawn(stacks.dump(attempt))
            case "forget":
                self._forget(_named(message.forget.key))
            case "copies_complete":
                done = message.copies_complete
                self._copies.note_complete(_named(done.key), done.step)
            case "drop_copies":
                self._copies.drop(message.drop_copies.job_uid)
            case "open_channel":
                self._open_channel(message.open_channel)
            case "channel_data":
                self._channels.hear(message.channel_data)
            case "warm":
                wanted = message.warm
                self._import_ahead(wanted.interpreter, tuple(wanted.modules), wanted.user)
            case "check_host":
                self._spawn(self._check_host(message.check_host))
            case "probe_host":
                self.prober.follow(message.probe_host)
            case None:
                log.warning(
                    "an unknown message from the server: is this agent of an older release?"
                )

    async def _check_host(self, order: agent_pb2.CheckHost) -> None:
        if self._has_no_ranks():
            word = await self._burn_in.check(order)
        else:
            word = agent_pb2.HostChecked(request_id=order.request_id, is_busy=True)
        self.say(Request(host_checked=word))

    async def _probe(self) -> None:
        self.say(Request(host_probed=await self.prober.probe()))

    async def end_ranks(self) -> None:
        """Kill what runs, and return when nothing is left, neither processes nor copies."""
        for attempt in self._running():
            attempt.stop(0, now_s())
        while self._running():
            self._look()
            await asyncio.sleep(0.01)
        self._copies.close(keeps=False)

    async def is_idle(self) -> None:
        """Wait until nothing runs."""
        while self._running():
            await asyncio.sleep(_TICK_S)

    def on_disconnect(self) -> None:
        """Note that the stream to the server broke."""
        self._channels.close()

    # --- leases ----------------------------------------------------------------------

    def _renew(self, lease: agent_pb2.Lease) -> None:
        if lease.epoch < self._epoch:
            raise StaleLeader(
                f"this server leads in term {lease.epoch}, and another leads in term {self._epoch}"
            )
        is_new, self._epoch = lease.epoch > self._epoch, lease.epoch
        ttl_s = lease.ttl.ToNanoseconds() / 1e9
        self.beat_s = ttl_s / 3
        self._lease_s = now_s() + LEASES * ttl_s
        self._keeps_ranks, self._has_lapsed = lease.keeps_ranks, False
        new = self._lease_file.with_suffix(".new")
        kept = " keep" if self._keeps_ranks else ""
        try:
            if is_new:
                self._epoch_file.write_text(str(lease.epoch), encoding="ascii")
            new.write_text(f"{self._lease_s:.3f}{kept}", encoding="ascii")
            new.replace(self._lease_file)
        except OSError as error:  # a full disk; the lease is for the next life of the agent
            log.error("the lease cannot be written down: %s", error)

    def _lease_found(self) -> float:
        """Return until when orders count that an earlier life of the agent was given, and take up
        whether its ranks run on after that."""
        try:
            until, *kept = self._lease_file.read_text(encoding="ascii").split()
            self._keeps_ranks = kept == ["keep"]
            return float(until)
        except (OSError, ValueError):
            return now_s()

    def _check_lease(self) -> None:
        """Let the orders of this stream lapse when the server has long given this host up, and end
        the ranks unless they are to run on."""
        if not self._lease_s or now_s() < self._lease_s:
            return
        self._lease_s = 0.0
        self._is_given_up = self._has_lapsed = True
        for attempt in self._running():
            if self._keeps_ranks:
                words = "%s: runs on, though no message came from the server until its lease ended"
                log.warning(words, attempt.key.folder_name)
                continue
            log.warning(
                "%s: ended, for no message came from the server until its lease ended",
                attempt.key.folder_name,
            )
            attempt.stop(0, now_s())
        for preparation in self._preparing.values():
            preparation.task.cancel()

    # --- attempts --------------------------------------------------------------------

    def _has_no_ranks(self) -> bool:
        """Whether none run here, and none are about to."""
        return not (self._running() or self._preparing)

    def _running(self) -> list[HostAttempt]:
        return [attempt for attempt in self._attempts.values() if attempt.has_processes]

    def _prepare(self, wanted: agent_pb2.Prepare) -> None:
        key = _named(wanted.key)
        if self.is_for_one and self._only not in (None, key):
            return  # it is for the agent of the next step, whose Hello asks for it
        if self._own_container not in (None, container_key(wanted.image, wanted.mounts)):
            return  # it is for the agent of the next pod
        self._only = key
        known = self._attempts.get(key)
        if known is not None:
            if known.phase is Phase.STOPPED and wanted.anew:
                del self._attempts[key]
            elif known.phase is Phase.STOPPED:
                self._refuse(key, "this attempt was stopped here")
            elif known.phase is not Phase.PREPARING:
                self.say(Request(prepared=self._prepared(known)))
            if key in self._attempts:
                return
        if key in self._preparing:
            return
        port = known.order["port"] if known is not None else 0
        # Said here too, for ranks may have come and left before the next look at the host.
        self.prober.begins(now_s(), is_idle=False)
        task = self._spawn(self._make_ready(key, wanted, port))
        self._preparing[key] = Preparation(task, frozenset(wanted.gpus))
        task.add_done_callback(lambda _: self._preparing.pop(key, None))

    async def _make_ready(self, key: Key, wanted: agent_pb2.Prepare, port: int) -> None:
        """End what runs, check, promise a port, unless this one was promised before."""
        try:
            self._check_tenant(wanted.tenant)
            await self._clear(key, frozenset(wanted.gpus))
            user = self._allowed.user(wanted.user)
            workdir = self._allowed.workdir(wanted.workdir, user)
            copies = await self._prepare_copies(key, wanted, user)
            container = None
            if wanted.image and self._own_container is None:
                own = [self._root / key.folder_name / "run", Path(self._socket_path)]
                if (folder := self._copies.folder_of(key.job_uid)) is not None:
                    own.append(folder)
                image, mounts = wanted.image, wanted.mounts
                container = container_order(self._engine, image, mounts, workdir, own)
            else:
                program(wanted.command[0], workdir, wanted.env.get("PATH", _SEARCH))
            port = port or (free_port() if wanted.node == 0 else 0)
            group = self._cgroups.make(key.folder_name)
            order = order_of(wanted, user.pw_name, workdir) | {
                "socket": self._socket_path,
                "cgroup": group,
                "port": port,
                "container": container,
                "copies": copies,
            }
            await pass_gates(wanted.gates, order, self._allowed, _SEARCH)
            attempt = HostAttempt.create(key, self._root, order, user, keeps_logs=wanted.anew)
        except (NotAllowed, GateFailed, OSError, ValueError) as error:
            is_unfit = isinstance(error, GateFailed) and error.is_of_site
            self._refuse(key, str(error), is_unfit=is_unfit)
            return
        attempt.end_strays = self._end_strays
        self._attempts[key] = attempt
        self.say(Request(prepared=self._prepared(attempt)))

    async def _prepare_copies(
        self, key: Key, wanted: agent_pb2.Prepare, user: pwd.struct_passwd
    ) -> dict[str, Any] | None:
        """Be ready for copies of the job in memory, and have those that the host lacks. Where that
        cannot be, ranks do without."""
        if not wanted.HasField("copies"):
            return None
        live = {attempt.key.job_uid for attempt in self._attempts.values() if not attempt.is_over}
        live |= {each.job_uid for each in self._preparing}
        try:
            return await self._copies.prepare(key, wanted.copies, user, live)
        except OSError as error:
            log.warning("%s: no copies are kept in memory: %s", key.folder_name, error)
            return None

    def _resume_copies(self, attempt: HostAttempt) -> None:
        """Go on with copies of an attempt that an earlier life of the agent has prepared."""
        if attempt.order.get("copies"):
            try:
                user = self._allowed.user(attempt.order["user"])
            except NotAllowed as error:
                log.warning("%s: no copies are kept: %s", attempt.key.folder_name, error)
                return
            self._copies.resume(attempt.key, attempt.order, user)

    async def _clear(self, key: Key, gpus: frozenset[int]) -> None:
        """Nothing of another attempt runs any more on these GPUs of the host, none for all, and
        nothing of this job. Raises: NotAllowed."""
        self._supersede(key, gpus)
        until_s = now_s() + _PATIENCE_S
        while not self._end_others(key, gpus):
            if now_s() > until_s:
                raise NotAllowed("processes of an earlier attempt on this host do not end")
            self._over.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._over.wait()

    def _supersede(self, key: Key, gpus: frozenset[int]) -> None:
        """Prepare nothing else there any more, but for a later attempt of the same job."""
        for other, preparation in list(self._preparing.items()):
            is_older = other.job_uid == key.job_uid and other.attempt < key.attempt
            is_there = other.job_uid != key.job_uid and _meet(preparation.gpus, gpus)
            if is_older or is_there:
                preparation.task.cancel()

    def _end_others(self, key: Key, gpus: frozenset[int]) -> bool:
        """End what runs there, or of the same job; whether nothing does any more."""
        others = [
            a
            for a in self._attempts.values()
            if not a.is_over and (a.key.job_uid == key.job_uid or _meet(a.gpus, gpus))
        ]
        for attempt in others:
            if attempt.kill_s is None:  # else it is in its grace
                attempt.stop(0, now_s())
            self._take_in(attempt)
        return all(attempt.is_over for attempt in others)

    async def _launch(self, wanted: agent_pb2.Launch) -> None:
        key = _named(wanted.key)
        attempt = self._attempts.get(key)
        if attempt is None or attempt.is_over:
            self._refuse(key, "this attempt is not prepared here")
            return
        if attempt.phase is Phase.PREPARED:
            order = attempt.order
            order["env"] |= {
                "MASTER_ADDR": wanted.master_address,
                "MASTER_PORT": str(wanted.master_port),
                "MUSTER_CHECKPOINT": wanted.checkpoint,
                "MUSTER_CHECKPOINT_STEP": str(wanted.checkpoint_step),
                "MUSTER_PREDECESSOR": wanted.predecessor,
                **({"MUSTER_ROLES": wanted.roles} if wanted.roles else {}),
                **(_copies(wanted) if wanted.copy_to else {}),
                **(self._copies.begin(key, order, wanted) if order.get("copies") else {}),
                "MUSTER_RUN_DIR": str(attempt.folder / "run"),
                "MUSTER_SOCKET": self._socket_path,
            }
            if "PET_NNODES" in order["env"]:
                order["env"]["PET_MASTER_ADDR"] = wanted.master_address
                order["env"]["PET_MASTER_PORT"] = str(wanted.master_port)
            attempt.write_order()
            attempt.launch(self._take_warm(order) if order["warm"] else None)
        elif attempt.phase is Phase.STARTED:
            self.say(Request(started=agent_pb2.Started(key=_key(key))))

    def _stop(self, wanted: agent_pb2.Stop) -> None:
        key = _named(wanted.key)
        if key in self._preparing:
            self._preparing[key].task.cancel()
        attempt = self._attempts.get(key)
        if attempt is None:
            self.say(Request(stopped=agent_pb2.Stopped(key=_key(key))))
            return
        if attempt.is_over:
            self._say_over(attempt)
            return
        attempt.stop(wanted.grace.ToNanoseconds() / 1e9, now_s())
        if attempt.is_over:
            self._say_over(attempt)
            self._over.set()

    def _forget(self, key: Key) -> None:
        attempt = self._attempts.get(key)
        if attempt is None or not attempt.is_over:
            return
        attempt.forget()
        del self._attempts[key]
        if key == self._only:
            self.has_finished.set()
        folders = [f for f in self._root.iterdir() if (f / "forgotten").exists()]
        folders.sort(key=lambda folder: folder.stat().st_mtime)
        for folder in folders[:-KEPT_LOGS]:
            shutil.rmtree(folder, ignore_errors=True)

    def _poked(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(_MOST_POKES):  # ranks may send more than can be read
                self._socket.recv(16)
        self._look()

    def _look(self) -> None:
        """Take in what has become of each attempt; nothing that its ranks do ends the agent."""
        for attempt in self._running():
            try:
                self._take_in(attempt)
            except Exception:
                if attempt.key not in self._failing:
                    log.exception("%s cannot be looked at", attempt.key.folder_name)
                self._failing.add(attempt.key)
            else:
                self._failing.discard(attempt.key)

    def _end_strays(self) -> bool:
        """Kill what ranks left behind whose supervisor is gone; whether any is left."""
        supervisors = {attempt.supervisor_pid for attempt in self._attempts.values()}
        return end_strays(supervisors | {process.pid for process in self._warm.values()})

    def _take_in(self, attempt: HostAttempt) -> None:
        before, had_started = attempt.phase, attempt.has_started
        new = attempt.look()
        if attempt.has_started and not had_started:
            self.say(Request(started=agent_pb2.Started(key=_key(attempt.key))))
        if attempt.look_at_progress():
            self.say(Request(progress=_progress(attempt)))
            attempt.untold = 0
        if attempt.spoiled and attempt.kill_s is None:
            log.warning("%s: ended, for %s", attempt.key.folder_name, attempt.spoiled)
            attempt.stop(0, now_s())
        if times := attempt.look_at_times(now_s()):
            self.say(Request(step_times=_step_times(attempt, times)))
        if attempt.refusal and before is Phase.STARTING and attempt.is_over:
            self._refuse(attempt.key, attempt.refusal)
        for done in new:
            self.say(Request(exited=_exited(attempt, done)))
        if attempt.is_over and before is not Phase.STOPPED:
            self.say(Request(stopped=agent_pb2.Stopped(key=_key(attempt.key))))
            self._channels.close(attempt.key)
            self._over.set()

    def _say_over(self, attempt: HostAttempt) -> None:
        """All of it, as if it had just happened: what was said before may have got lost."""
        for done in attempt.exits:
            self.say(Request(exited=_exited(attempt, done)))
        self.say(Request(stopped=agent_pb2.Stopped(key=_key(attempt.key))))

    def _refuse(self, key: Key, reason: str, *, is_unfit: bool = False) -> None:
        log.warning("%s: refused: %s", key.folder_name, reason)
        is_passing = reason == _KEPT
        word = agent_pb2.Refused(
            key=_key(key), reason=reason, is_passing=is_passing, is_unfit=is_unfit
        )
        self.say(Request(refused=word))

    def _prepared(self, attempt: HostAttempt) -> agent_pb2.Prepared:
        word = agent_pb2.Prepared(key=_key(attempt.key), address=self.address)
        word.port = attempt.order["port"]
        if attempt.order.get("copies") and (held := self._copies.describe(attempt.key)) is not None:
            word.held.CopyFrom(held)
        return word

    # --- warm starts -----------------------------------------------------------------

    def _take_warm(self, order: dict[str, Any]) -> subprocess.Popen[bytes] | None:
        """A process that has imported what this order wants; the next one is begun later."""
        wanted = (order["command"][0], order["user"], *order["warm"])
        asyncio.get_running_loop().call_later(
            2.0, self._import_ahead, order["command"][0], tuple(order["warm"]), order["user"]
        )
        process = self._warm.get(wanted)
        if process is None or process.poll() is not None or process.stdout is None:
            return None
        if not process.stdout.read(6):  # still importing: it will be ready for the next one
            return None
        del self._warm[wanted]
        return process

    def _import_ahead(self, interpreter: str, modules: tuple[str, ...], user: str) -> None:
        """Begin to import the modules of a job's ranks, unless that has been done."""
        try:
            name = self._allowed.user(user).pw_name
        except NotAllowed as error:
            log.warning("no warm process: %s", error)
            return
        wanted = (interpreter, name, *modules)
        known = self._warm.get(wanted)
        if known is not None and known.poll() is None:
            return
        for other in list(self._warm):  # one job runs here at a time
            _dismiss(self._warm.pop(other))
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", SUPERVISOR, "--warm", interpreter, name, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={"PATH": _SEARCH},
            bufsize=0,
        )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._warm[wanted] = process

    # --- commands beside ranks, and logs ------------------------------------------------

    def _open_channel(self, wanted: agent_pb2.OpenChannel) -> None:
        key = _named(wanted.key)
        attempt = self._attempts.get(key)
        if wanted.HasField("log"):
            self._channels.send_log(
                wanted,
                self._root / key.folder_name,
                lambda: (running := self._attempts.get(key)) is None or running.is_over,
            )
            return
        if attempt is None or attempt.phase is not Phase.STARTED or attempt.kill_s is not None:
            self._channels.refuse(wanted.channel_id, f"this attempt does not run on {self.host}")
            return
        try:
            self._allowed.commands_beside(attempt.order["user"])
        except NotAllowed as error:
            self._channels.refuse(wanted.channel_id, str(error))
            return
        self._channels.run_command(wanted, key, attempt.folder)

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _dismiss(process: subprocess.Popen[bytes]) -> None:
    """End a warm process that is not wanted."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.kill()
    process.wait()


def now_s() -> float:
    """Return seconds of a clock that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def free_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _meet(some: frozenset[int], others: frozenset[int]) -> bool:
    """Whether both have a GPU; none means all of the host."""
    return not some or not others or bool(some & others)


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _key(key: Key) -> agent_pb2.AttemptKey:
    return agent_pb2.AttemptKey(job_uid=key.job_uid, attempt=key.attempt)


def _copies(wanted: agent_pb2.Launch) -> dict[str, str]:
    """Where copies of this host's state go in memory, and whose are kept here, as nodes."""
    nodes = {"MUSTER_COPY_TO": wanted.copy_to, "MUSTER_COPY_OF": wanted.copy_of}
    return {name: ",".join(map(str, numbers)) for name, numbers in nodes.items()}


def _named(key: agent_pb2.AttemptKey) -> Key:
    """Raises: ValueError for what is no name of a folder."""
    if not key.job_uid or not key.job_uid.replace("-", "").replace("_", "").isalnum():
        raise ValueError(f"{key.job_uid!r} is not a uid")
    return Key(key.job_uid, key.attempt)


def _exited(attempt: HostAttempt, done: RankExit) -> agent_pb2.Exited:
    age = Duration()
    age.FromNanoseconds(max(0, time.monotonic_ns() - done.monotonic_ns))
    is_well = done.code == 0 and done.signal == 0
    log_path = ranklog.log_path(attempt.folder, done.rank)
    return agent_pb2.Exited(
        key=_key(attempt.key),
        rank=done.rank,
        code=done.code,
        signal=done.signal,
        age=age,
        log_tail="" if is_well else attempt.spoiled or ranklog.tail(log_path),
        out_of_memory=done.signal == signal.SIGKILL and attempt.has_run_out_of_memory,
    )


def _progress(attempt: HostAttempt) -> agent_pb2.Progress:
    word = agent_pb2.Progress(key=_key(attempt.key), unreadable=min(attempt.untold, _MOST_UNTOLD))
    word.MergeFrom(attempt.said)
    return word


def _step_times(attempt: HostAttempt, times: Sequence[ComputedStep]) -> agent_pb2.StepTimes:
    samples = [agent_pb2.StepSample(step=each.step, seconds=each.seconds) for each in times]
    return agent_pb2.StepTimes(key=_key(attempt.key), samples=samples)
