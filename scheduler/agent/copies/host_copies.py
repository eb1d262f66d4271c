"""Copies of ranks' state in the memory of this host, and their way from host to host.

    ROOT/                              in tmpfs; the agent's, as all that is not said to be others'
      port                             where this agent takes copies, again after its restart
      UID/                             the copies of one job (job_copies)

What ranks write is sent to the hosts that the placement has chosen. Agents speak with each other
over TCP, in threads of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
import os
import pwd
import shutil
import socket
import stat
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from scheduler.agent.copies.exchange import (
    PATIENCE_S,
    SIZE,
    CopyRefused,
    CopyRequest,
    accept_request,
    check_answer,
    open_request,
    receive_exactly,
    receive_file,
    receive_frame,
    refuse_request,
    send_bytes,
    send_frame,
)
from scheduler.agent.copies.job_copies import (
    KEPT_STEPS,
    NOTHING,
    CopyName,
    JobCopies,
    Version,
    put_aside,
)
from scheduler.agent.ranks.attempt import Key
from scheduler.v1 import agent_pb2

MEMORY = Path("/dev/shm")
_MOST_SHARE = 2  # of the host's memory copies take at most one in so many parts
_FETCH_S = 100.0  # after which ranks that lack copies do without: a start waits for little more
LOOK_S = 0.25  # between two looks at what ranks write
_UNTOLD_S, _AGAIN_S = 2.0, 0.2  # for which a host may not know of an attempt yet
_MOST_LINKS = 16  # that are answered at a time
_SENDERS = 4
_UNKNOWN = "this agent keeps no copies of that job, or knows another secret of it"

log = logging.getLogger("muster.agent")


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
            self._senders.submit(shutil.rmtree, put_aside(job.folder), ignore_errors=True)

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
        return [put_aside(folder) for folder in others]

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
                with open_request(target, job.secret, request) as (link, proof):
                    send_bytes(link, proof, file, size)
                    check_answer(link)
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
        with open_request(source, job.secret, request) as (link, proof):
            head = receive_exactly(link, SIZE.size)
            proof.update(head)
            (size,) = SIZE.unpack(head)
            with self._room_for(size):
                receive_file(link, proof, job, name, size)

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
                link.settimeout(PATIENCE_S)
                self._serve(link)
        except (OSError, CopyRefused) as error:
            log.warning("a copy that came or was asked for got lost: %s", error)
        finally:
            self._links.release()

    def _serve(self, link: socket.socket) -> None:
        """Raises: OSError, CopyRefused."""
        nonce = os.urandom(32)
        link.sendall(nonce)
        data, theirs = receive_frame(link), receive_exactly(link, 32)
        given = receive_exactly(link, 32)
        request = CopyRequest.decoded(data)
        job = self._jobs.get(request.uid) if request is not None else None
        secret = job.secret if job is not None else os.urandom(32)
        proof = hmac.new(secret, nonce + theirs + self._address.encode() + data, "sha256")
        is_known = hmac.compare_digest(proof.digest(), given)
        if not is_known or job is None or request is None:
            send_frame(link, _UNKNOWN.encode())
            raise CopyRefused(_UNKNOWN)
        try:
            if request.is_put:
                self._take(link, proof, job, request)
            else:
                with job.open(request.name) as file:
                    size = os.fstat(file.fileno()).st_size
                    accept_request(link, proof)
                    head = SIZE.pack(size)
                    proof.update(head)
                    link.sendall(head)
                    send_bytes(link, proof, file, size)
        except FileNotFoundError:
            raise refuse_request(link, "it is not here") from None
        except CopyRefused as error:
            raise refuse_request(link, str(error)) from None

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
            accept_request(link, proof)
            receive_file(link, proof, job, request.name, request.size)
        send_frame(link, b"")

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
