"""Copies of ranks' state in the memory of this host, and their way from host to host.

    ROOT/                              in tmpfs; the agent's, as all that is not said to be others'
      port                             where this agent takes copies, again after its restart
      UID/own/                         the user's: what ranks of this host write (muster.progress)
      UID/kept/                        copies of ranks of other hosts, or fetched from there
        rank-3.attempt-1.step-120      the user's, who may read it

What ranks write is sent to the hosts that the placement has chosen. Agents speak with each other
over TCP, in threads of their own. Both sides prove that they know the secret of the attempt, which
the server has told the agents of its hosts alone; the same proof covers every byte that is sent.
The bytes are not encrypted: they take the way of the gang's own traffic.

Of each job up to three steps are kept: the newest of which the server says that all hosts have
their copies, so that a failure in the middle of a renewal leaves the one before whole; the newest;
and between them one that all hosts choose alike, so that it has time to come everywhere where ranks
write more often than a renewal takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import os
import pwd
import re
import shutil
import socket
import stat
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from scheduler.agent.ranks.attempt import Key
from scheduler.v1 import agent_pb2

MEMORY = Path("/dev/shm")
KEPT_STEPS = 3
_MOST_FILES = 2_048  # of a folder that are looked at, for ranks may write any number
_MOST_SHARE = 2  # of the host's memory copies take at most one in so many parts
_PIECE = 1 << 20
_PATIENCE_S = 10.0  # for the other side, whenever it is waited for
_FETCH_S = 100.0  # after which ranks that lack copies do without: a start waits for little more
LOOK_S = 0.25  # between two looks at what ranks write
_UNTOLD_S, _AGAIN_S = 2.0, 0.2  # for which a host may not know of an attempt yet
_MOST_FRAME = 2_048
_MOST_LINKS = 16  # that are answered at a time
_SENDERS = 4
_SIZE, _LENGTH = struct.Struct("!Q"), struct.Struct("!H")
_NAME = re.compile(r"rank-(\d{1,9})\.attempt-(\d{1,9})\.step-(\d{1,18})")
_ACCEPTED = b"accepted"
_UNKNOWN = "this agent keeps no copies of that job, or knows another secret of it"

log = logging.getLogger("muster.agent")

Version = tuple[int, int]  # attempt and step
NOTHING: Version = (0, 0)


class CopyRefused(Exception):
    """The agent of another host does not take or give a copy; the text says why."""


class CopyName(NamedTuple):
    """Names the copy of one rank."""

    rank: int
    attempt: int
    step: int

    @property
    def version(self) -> Version:
        return (self.attempt, self.step)

    @property
    def file(self) -> str:
        return f"rank-{self.rank}.attempt-{self.attempt}.step-{self.step}"

    @staticmethod
    def parse(text: str) -> CopyName | None:
        """Read the name of a file; None: it is that of no copy."""
        match = _NAME.fullmatch(text)
        return CopyName(*map(int, match.groups())) if match else None


class CopyRequest(NamedTuple):
    """A request of one agent to another: to take a copy of `size` bytes, or to give one."""

    uid: str
    is_put: bool
    name: CopyName
    size: int

    def encoded(self) -> bytes:
        return json.dumps([self.uid, self.is_put, *self.name, self.size]).encode()

    @staticmethod
    def decoded(data: bytes) -> CopyRequest | None:
        """Read what another agent sent, which may be anything; None: it is no request."""
        try:
            uid, is_put, *numbers = json.loads(data)
        except (ValueError, TypeError, RecursionError):
            return None
        fits = [type(n) is int and 0 <= n < 2**62 for n in numbers]
        if type(uid) is not str or type(is_put) is not bool or len(fits) != 4 or not all(fits):
            return None
        rank, attempt, step, size = numbers
        return CopyRequest(uid, is_put, CopyName(rank, attempt, step), size)


@dataclass(eq=False)
class JobCopies:
    """Copies of one job. `attempt`: the newest that is prepared here. `targets`: HOST:PORT of the
    agents that keep copies of this host's ranks. `most`: bytes of one rank's copy. `floor`: the
    newest step of which all hosts are known to have all copies. `is_begun`: whether ranks of
    `attempt` have been started; until then nothing is removed."""

    uid: str
    folder: Path
    user: pwd.struct_passwd
    attempt: int = 0
    secret: bytes = b""
    targets: tuple[str, ...] = ()
    most: int = 0
    floor: Version = NOTHING
    is_begun: bool = False
    sent: set[tuple[str, CopyName]] = field(default_factory=set)
    reported: agent_pb2.HeldCopies | None = None

    @property
    def own_folder(self) -> Path:
        return self.folder / "own"

    @property
    def peer_folder(self) -> Path:
        return self.folder / "kept"

    def make_folders(self) -> None:
        """Make what is missing; what another user had here is removed. Raises: OSError."""
        self.folder.mkdir(mode=0o711, exist_ok=True)
        if self.own_folder.exists() and self.own_folder.stat().st_uid != self.user.pw_uid:
            shutil.rmtree(self.own_folder)
            shutil.rmtree(self.peer_folder, ignore_errors=True)
        self.own_folder.mkdir(mode=0o700, exist_ok=True)
        self.peer_folder.mkdir(mode=0o711, exist_ok=True)
        for path in (self.folder.parent, self.folder, self.peer_folder):
            path.chmod(0o711)  # whatever the umask
        for path in self.peer_folder.glob("*.partial"):
            path.unlink(missing_ok=True)
        os.chown(self.own_folder, self.user.pw_uid, self.user.pw_gid)

    def files(self, folder: Path) -> dict[CopyName, os.stat_result]:
        """Return the copies in one of its folders."""
        statuses = {}
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in islice(entries, _MOST_FILES):
                name = CopyName.parse(entry.name)
                if name is None:
                    continue
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and status.st_uid == self.user.pw_uid:
                        statuses[name] = status
        return statuses

    def open(self, name: CopyName) -> IO[bytes]:
        """Open a copy of the job. What the user may have put in its place is not followed.

        Raises: OSError.
        """
        path = self.own_folder / name.file
        path = path if os.path.lexists(path) else self.peer_folder / name.file
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != self.user.pw_uid:
            os.close(file)
            raise FileNotFoundError(f"{name.file} is no copy")
        return os.fdopen(file, "rb", buffering=0)

    def steps_to_keep(self, steps: Iterable[Version]) -> set[Version]:
        """Return `floor`, the newest of these steps, and the one after `floor` that the highest
        power of two divides: all hosts agree on it, and keep it for longer and longer."""
        later = [version for version in steps if version > self.floor]
        lasting = max(later, key=lambda v: (v[0], v[1] & -v[1], v[1]), default=NOTHING)
        return {self.floor, lasting, max(later, default=NOTHING)}

    def keep_only(self, folder: Path, versions: Collection[Version]) -> None:
        """Remove the copies of all other steps from one of its folders."""
        for name in self.files(folder):
            if name.version not in versions:
                (folder / name.file).unlink(missing_ok=True)

    def remove_old(self, folder: Path, *coming: Version) -> bool:
        """Remove the copies of steps that are not to be kept from one of its folders. Return
        whether those of the `coming` ones are."""
        versions = self.steps_to_keep({*coming, *(name.version for name in self.files(folder))})
        self.keep_only(folder, versions)
        return versions.issuperset(coming)


class HostCopies:
    """Copies of all jobs on this host. `state`: the folder of its agent, which names the one in
    memory. `address`: at which other hosts reach this one."""

    def __init__(
        self, state: Path, address: str, say: Callable[[agent_pb2.SessionRequest], None]
    ) -> None:
        digest = hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:16]
        self.root = MEMORY / f"muster-{digest}"
        self._host_address, self._say = address, say
        self._address = ""  # once it listens
        self._listening: socket.socket | None = None
        self._jobs: dict[str, JobCopies] = {}
        self._most = 0  # bytes of all jobs
        self._reserved = 0  # bytes that are about to come
        self._lock = threading.Lock()  # of the two, and of what is removed for what comes
        self._links = threading.BoundedSemaphore(_MOST_LINKS)
        self._senders: ThreadPoolExecutor | None = None

    # --- what the agent asks for -------------------------------------------------------------

    async def prepare(
        self, key: Key, terms: agent_pb2.CopyTerms, user: pwd.struct_passwd, live: Collection[str]
    ) -> dict[str, Any]:
        """Be ready for copies of a job, and fetch what this host lacks; what cannot be fetched is
        logged. `live`: uids of jobs that have an attempt here; copies of others are removed.

        Return what to remember for the next life of the agent. Raises: OSError.
        """
        old = self._drop_others({*live, key.job_uid})
        job = self._open(key, terms.secret, terms.most_bytes, user)
        for folder in old:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        loop = asyncio.get_running_loop()
        fetching = [
            loop.run_in_executor(self._senders, self._fetch, job, wanted.address, name)
            for wanted in terms.wanted
            for name in _names(wanted.copy)
        ]
        try:
            async with asyncio.timeout(_FETCH_S):
                await asyncio.gather(*fetching)
        except TimeoutError:
            log.warning("%s: copies are not here after %g s", key.folder_name, _FETCH_S)
        return {
            "secret": terms.secret.hex(),
            "most_bytes": terms.most_bytes,
            "interval_s": terms.interval.ToNanoseconds() / 1e9,
        }

    def begin(self, key: Key, order: Mapping[str, Any], launch: agent_pb2.Launch) -> dict[str, str]:
        """Send what ranks write from here on, and keep nothing but what they begin with. Return
        variables of the ranks."""
        terms, job = order["copies"], self._jobs.get(key.job_uid)
        if job is None:
            return {}
        version = (launch.copy_attempt, launch.copy_step)
        ranks = int(order["env"]["LOCAL_WORLD_SIZE"])
        most = self._most // (KEPT_STEPS * ranks * (1 + len(launch.copy_of)))
        terms |= {"targets": [*launch.copy_addresses], "floor": [*version], "most": most}
        self._take_up(job, terms)
        for folder in (job.own_folder, job.peer_folder):
            job.keep_only(folder, [version])
        start = {"MUSTER_COPY_ATTEMPT": str(version[0]), "MUSTER_COPY_STEP": str(version[1])}
        return {
            "MUSTER_COPIES": str(job.folder),
            "MUSTER_COPY_BYTES": str(most),
            "MUSTER_COPY_INTERVAL": f"{terms['interval_s']:g}",
            **(start if version != NOTHING else {}),
        }

    def resume(self, key: Key, order: Mapping[str, Any], user: pwd.struct_passwd) -> None:
        """Go on with an attempt of an earlier life of the agent."""
        terms, known = order["copies"], self._jobs.get(key.job_uid)
        if known is not None and known.attempt > key.attempt:
            return
        try:
            job = self._open(key, bytes.fromhex(terms["secret"]), terms["most_bytes"], user)
        except OSError as error:
            log.warning("copies of %s are not kept any more: %s", key.folder_name, error)
            return
        if "targets" in terms:
            self._take_up(job, terms)

    def _take_up(self, job: JobCopies, terms: Mapping[str, Any]) -> None:
        job.targets, job.most = tuple(terms["targets"]), terms["most"]
        job.floor = (terms["floor"][0], terms["floor"][1])
        job.is_begun = True

    def note_complete(self, key: Key, step: int) -> None:
        """All hosts have all copies of this step: older ones may go."""
        job = self._jobs.get(key.job_uid)
        if job is not None and job.attempt == key.attempt and job.is_begun:
            job.floor = max(job.floor, (key.attempt, step))

    def describe(self, key: Key) -> agent_pb2.HeldCopies | None:
        """Return the copies of a job that are here; None: none are kept of it."""
        job = self._jobs.get(key.job_uid)
        return None if job is None else self._describe(job)

    async def watch(self) -> None:
        """Look at the copies again and again, in a thread: to free memory takes time."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Send what ranks have written, remove what is of no use, and tell the server."""
        for job in list(self._jobs.values()):
            try:
                held = await asyncio.to_thread(self._look_at, job)
            except OSError as error:
                log.warning("copies of job %s cannot be looked at: %s", job.uid, error)
                continue
            if held != job.reported and self._jobs.get(job.uid) is job:
                job.reported = held
                self._say(agent_pb2.SessionRequest(held_copies=held))

    def _look_at(self, job: JobCopies) -> agent_pb2.HeldCopies:
        """Raises: OSError."""
        if job.is_begun:
            self._send_new(job)
        return self._describe(job)

    def folder_of(self, uid: str) -> Path | None:
        """Return where copies of a job are on this host; None: none are kept."""
        job = self._jobs.get(uid)
        return None if job is None else job.folder

    def drop(self, uid: str) -> None:
        """Remove all copies of a job, of which this host may be given new ones at once."""
        if (job := self._jobs.pop(uid, None)) is not None and self._senders is not None:
            self._senders.submit(shutil.rmtree, _put_aside(job.folder), ignore_errors=True)

    def close(self, *, keeps: bool = True) -> None:
        """Take no more copies. `keeps`: leave what is here to the next life of the agent."""
        if self._listening is not None:
            with contextlib.suppress(OSError):
                self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
            self._listening = None
        if self._senders is not None:
            self._senders.shutdown(wait=False, cancel_futures=True)
        if not keeps or not self._jobs:
            self._jobs.clear()
            shutil.rmtree(self.root, ignore_errors=True)

    # --- what is here ------------------------------------------------------------------------

    def _open(self, key: Key, secret: bytes, most: int, user: pwd.struct_passwd) -> JobCopies:
        """Raises: OSError."""
        self._make_root()
        self._listen()
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._most = min(most, memory // _MOST_SHARE)
        job = self._jobs.get(key.job_uid) or JobCopies(key.job_uid, self.root / key.job_uid, user)
        job.user, job.secret, job.attempt = user, secret, key.attempt
        job.is_begun, job.targets = False, ()
        job.sent.clear()
        job.make_folders()
        self._jobs[key.job_uid] = job
        return job

    def _make_root(self) -> None:
        """Make the folder in memory, where everybody may make some. Raises: OSError."""
        self.root.mkdir(mode=0o711, exist_ok=True)
        status = self.root.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(f"{self.root} belongs to somebody else")

    def _drop_others(self, live: Collection[str]) -> list[Path]:
        """Return folders to remove of jobs that are gone, maybe in an earlier life of the agent.
        Raises: OSError."""
        self._make_root()
        for uid in self._jobs.keys() - live:
            del self._jobs[uid]
        others = [each for each in self.root.iterdir() if each.name not in live and each.is_dir()]
        return [_put_aside(folder) for folder in others]

    def _describe(self, job: JobCopies) -> agent_pb2.HeldCopies:
        ranks = defaultdict[Version, set[int]](set)
        for folder in (job.own_folder, job.peer_folder):
            for name in job.files(folder):
                ranks[name.version].add(name.rank)
        held = agent_pb2.HeldCopies(
            key=agent_pb2.AttemptKey(job_uid=job.uid, attempt=job.attempt), address=self._address
        )
        for (attempt, step), some in sorted(ranks.items()):
            held.copies.add(attempt=attempt, step=step, ranks=sorted(some))
        return held

    def _used(self) -> int:
        """Return the bytes of memory that all copies take; holes in files of ranks take none."""
        return sum(
            min(status.st_size, status.st_blocks * 512)
            for job in self._jobs.values()
            for folder in (job.own_folder, job.peer_folder)
            for status in job.files(folder).values()
        )

    # --- to other hosts ----------------------------------------------------------------------

    def _send_new(self, job: JobCopies) -> None:
        """Have the steps that ranks of this host have written sent to its targets."""
        for folder in (job.own_folder, job.peer_folder):
            job.remove_old(folder)
        wanted = set()
        for name, status in job.files(job.own_folder).items():
            if status.st_size > job.most:
                (job.own_folder / name.file).unlink(missing_ok=True)
                words = "job %s: the copy of rank %d has %d bytes, and %d may be kept of each"
                log.warning(words, job.uid, name.rank, status.st_size, job.most)
            elif name.attempt == job.attempt:
                wanted |= {(target, name) for target in job.targets}
        assert self._senders is not None
        for target, name in sorted(wanted - job.sent):
            self._senders.submit(self._send, job, target, name)
        job.sent = wanted

    def _send(self, job: JobCopies, target: str, name: CopyName) -> None:
        try:
            with job.open(name) as file:
                size = os.fstat(file.fileno()).st_size
                request = CopyRequest(job.uid, True, name, size)
                with _request(target, job.secret, request) as (link, proof):
                    _send_bytes(link, proof, file, size)
                    _check_answer(link)
        except FileNotFoundError:
            pass  # a newer one has taken its place
        except (OSError, CopyRefused) as error:
            words = "job %s: no copy of rank %d after step %d at %s: %s"
            log.warning(words, job.uid, name.rank, name.step, target, error)

    def _fetch(self, job: JobCopies, source: str, name: CopyName) -> None:
        """Get a copy from another host into this one's memory. That one may have yet to be told of
        the attempt."""
        until_s = time.monotonic() + _UNTOLD_S
        while True:
            try:
                self._fetch_now(job, source, name)
                return
            except (OSError, CopyRefused) as error:
                if str(error) == _UNKNOWN and time.monotonic() < until_s:
                    time.sleep(_AGAIN_S)
                    continue
                words = "job %s: the copy of rank %d after step %d cannot be fetched from %s: %s"
                log.warning(words, job.uid, name.rank, name.step, source, error)
                return

    def _fetch_now(self, job: JobCopies, source: str, name: CopyName) -> None:
        """Raises: OSError, CopyRefused."""
        request = CopyRequest(job.uid, False, name, 0)
        with _request(source, job.secret, request) as (link, proof):
            head = _receive_exactly(link, _SIZE.size)
            proof.update(head)
            (size,) = _SIZE.unpack(head)
            with self._room_for(size):
                _receive_file(link, proof, job, name, size)

    # --- from other hosts --------------------------------------------------------------------

    def _listen(self) -> None:
        """Take copies, at the port of an earlier life of the agent where that is free."""
        if self._listening is not None:
            return
        path, port = self.root / "port", 0
        with contextlib.suppress(OSError, ValueError):
            port = int(path.read_text(encoding="ascii"))
        family = socket.AF_INET6 if ":" in self._host_address else socket.AF_INET
        try:
            listening = socket.create_server(("", port), family=family)
        except OSError:
            listening = socket.create_server(("", 0), family=family)
        port = listening.getsockname()[1]
        path.write_text(str(port), encoding="ascii")
        self._listening, self._address = listening, f"{self._host_address}:{port}"
        self._senders = ThreadPoolExecutor(_SENDERS, "copies")
        threading.Thread(target=self._accept_links, args=(listening,), daemon=True).start()

    def _accept_links(self, listening: socket.socket) -> None:
        while True:
            try:
                link, _ = listening.accept()
            except OSError:
                if listening.fileno() < 0:  # closed
                    return
                time.sleep(_AGAIN_S)  # files are short, or the other side has gone
                continue
            if self._links.acquire(blocking=False):
                threading.Thread(target=self._answer, args=(link,), daemon=True).start()
            else:
                link.close()

    def _answer(self, link: socket.socket) -> None:
        """Serve one request of another agent, or of whoever connects."""
        try:
            with link:
                link.settimeout(_PATIENCE_S)
                self._serve(link)
        except (OSError, CopyRefused) as error:
            log.warning("a copy that came or was asked for got lost: %s", error)
        finally:
            self._links.release()

    def _serve(self, link: socket.socket) -> None:
        """Raises: OSError, CopyRefused."""
        nonce = os.urandom(32)
        link.sendall(nonce)
        data, theirs = _receive_frame(link), _receive_exactly(link, 32)
        given = _receive_exactly(link, 32)
        request = CopyRequest.decoded(data)
        job = self._jobs.get(request.uid) if request is not None else None
        secret = job.secret if job is not None else os.urandom(32)
        proof = hmac.new(secret, nonce + theirs + self._address.encode() + data, "sha256")
        is_known = hmac.compare_digest(proof.digest(), given)
        if not is_known or job is None or request is None:
            _send_frame(link, _UNKNOWN.encode())
            raise CopyRefused(_UNKNOWN)
        try:
            if request.is_put:
                self._take(link, proof, job, request)
            else:
                with job.open(request.name) as file:
                    size = os.fstat(file.fileno()).st_size
                    _accept(link, proof)
                    head = _SIZE.pack(size)
                    proof.update(head)
                    link.sendall(head)
                    _send_bytes(link, proof, file, size)
        except FileNotFoundError:
            raise _refusal(link, "it is not here") from None
        except CopyRefused as error:
            raise _refusal(link, str(error)) from None

    def _take(
        self, link: socket.socket, proof: hmac.HMAC, job: JobCopies, request: CopyRequest
    ) -> None:
        """Raises: OSError, CopyRefused."""
        version = request.name.version
        if version[0] != job.attempt:
            raise CopyRefused(f"attempt {job.attempt} of the job is the present one here")
        if not job.remove_old(job.peer_folder, version):
            raise CopyRefused("copies of a later step are here")
        with self._room_for(request.size):
            _accept(link, proof)
            _receive_file(link, proof, job, request.name, request.size)
        _send_frame(link, b"")

    @contextlib.contextmanager
    def _room_for(self, size: int) -> Iterator[None]:
        """Have so many bytes for what comes meanwhile. Raises: CopyRefused."""
        with self._lock:
            used = self._used() + self._reserved
            if used + size > self._most:
                raise CopyRefused(
                    f"{size:,} bytes are too many: {used:,} of {self._most:,} are in use"
                )
            self._reserved += size
        try:
            yield
        finally:
            with self._lock:
                self._reserved -= size


def _names(copy: agent_pb2.HeldCopy) -> Sequence[CopyName]:
    return [CopyName(rank, copy.attempt, copy.step) for rank in copy.ranks]


# --- what goes over a connection ---------------------------------------------------------------


@contextlib.contextmanager
def _request(
    address: str, secret: bytes, request: CopyRequest
) -> Iterator[tuple[socket.socket, hmac.HMAC]]:
    """Connect to an agent that accepts the request, and proves that it may. Raises: OSError,
    CopyRefused."""
    host, _, port = address.rpartition(":")
    try:
        link = socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE_S)
    except (ValueError, OverflowError):
        raise ConnectionError("that is no address") from None
    with link:
        data, nonce = request.encoded(), os.urandom(32)
        signed = _receive_exactly(link, 32) + nonce + address.encode() + data
        proof = hmac.new(secret, signed, "sha256")
        _send_frame(link, data)
        link.sendall(nonce + proof.digest())
        _check_answer(link)
        proof.update(_ACCEPTED)
        if not hmac.compare_digest(proof.digest(), _receive_exactly(link, 32)):
            raise CopyRefused("who answers there does not know the secret of the job")
        yield link, proof


def _accept(link: socket.socket, proof: hmac.HMAC) -> None:
    """Tell the other side that its request is accepted, and by whom."""
    proof.update(_ACCEPTED)
    _send_frame(link, b"")
    link.sendall(proof.digest())


def _refusal(link: socket.socket, reason: str) -> CopyRefused:
    """Tell the other side why it is refused. Raises: OSError."""
    _send_frame(link, reason.encode()[:_MOST_FRAME])
    return CopyRefused(reason)


def _check_answer(link: socket.socket) -> None:
    """Raises: CopyRefused."""
    if reason := _receive_frame(link):
        raise CopyRefused(reason.decode("utf-8", "replace"))


def _send_frame(link: socket.socket, data: bytes) -> None:
    link.sendall(_LENGTH.pack(len(data)) + data)


def _receive_frame(link: socket.socket) -> bytes:
    (size,) = _LENGTH.unpack(_receive_exactly(link, _LENGTH.size))
    if size > _MOST_FRAME:
        raise ConnectionError("what came is of another protocol")
    return _receive_exactly(link, size)


def _receive_exactly(link: socket.socket, size: int) -> bytes:
    data, until_s = b"", time.monotonic() + _PATIENCE_S
    while len(data) < size:
        if time.monotonic() > until_s:
            raise TimeoutError("the other side sends too little")
        piece = link.recv(size - len(data))
        if not piece:
            raise ConnectionError("the other side has closed the connection")
        data += piece
    return data


def _put_aside(folder: Path) -> Path:
    """Return the folder under a name that no job has, so that it can be removed in a while."""
    aside = folder.with_name(f"{folder.name}.{time.monotonic_ns()}")
    with contextlib.suppress(OSError):
        folder.rename(aside)
    return aside


def _send_bytes(link: socket.socket, proof: hmac.HMAC, file: IO[bytes], size: int) -> None:
    """Send so many bytes of a file, and the proof of them."""
    left = size
    while left:
        piece = file.read(min(left, _PIECE))
        if not piece:
            raise ConnectionError("the copy was cut short while it was sent")
        proof.update(piece)
        link.sendall(piece)
        left -= len(piece)
    link.sendall(proof.digest())


def _receive_file(
    link: socket.socket, proof: hmac.HMAC, job: JobCopies, name: CopyName, size: int
) -> None:
    """Write what comes into memory; it gets its name once all of it is proved.

    Raises: OSError, CopyRefused.
    """
    path = job.peer_folder / f"{name.file}.{threading.get_ident()}.partial"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags, 0o400), "wb") as file:
            piece, left = memoryview(bytearray(_PIECE)), size
            while left:
                count = link.recv_into(piece, min(left, _PIECE))
                if not count:
                    raise ConnectionError("the other side has closed the connection")
                proof.update(piece[:count])
                file.write(piece[:count])
                left -= count
            if not hmac.compare_digest(proof.digest(), _receive_exactly(link, 32)):
                raise CopyRefused("what came is not what was sent")
            os.fchown(file.fileno(), job.user.pw_uid, job.user.pw_gid)
        os.rename(path, job.peer_folder / name.file)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
