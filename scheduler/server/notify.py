"""Tell people and programs what becomes of jobs: webhooks, Slack-compatible ones, mail.

What is to be told is derived from the log, and how far a receiver has been told is kept in a file
of its own: nothing waits for a receiver but what it is told next, so that a slow one, or one that
is away, delays no commit and no other. A receiver is told of changes in the order of the log, and
of each at least once: what it had not accepted when the server ended is sent again, under the same
version.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import smtplib
import ssl
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from datetime import UTC, datetime
from email.message import EmailMessage
from functools import partial
from pathlib import Path
from typing import Any, Final

from scheduler.access.addresses import is_loopback
from scheduler.core.fold.effects import JobChange, JobChangeKind
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.names import short_name
from scheduler.engine.feed import Closed, FellBehind
from scheduler.engine.writer import Writer
from scheduler.eventlog.store import Compacted
from scheduler.files import atomic_file
from scheduler.files.errors import InputError
from scheduler.files.notify import LABEL, Notice, Receiver, load_notify
from scheduler.observe.supervision import Heartbeats, Tasks

TIMEOUT_S: Final = 10.0  # of a receiver that does not answer
FIRST_PAUSE_S: Final = 1.0  # before it is tried again
MOST_PAUSE_S: Final = 60.0
_IDLE_S: Final = 30.0  # after which a cursor is moved on though there was nothing to tell
_UNTOLD: Final = 1_000  # versions with nothing to tell, after which it is moved on as well
_LATER: Final = frozenset({408, 425, 429})  # and all from 500 on: the receiver may accept it yet
_STARTS = (JobChangeKind.STARTED, JobChangeKind.SWAPPED, JobChangeKind.RESIZED)

log = logging.getLogger("muster.notify")


class _Refused(Exception):
    """The receiver will never take this message."""


class Notifier:
    """Sends notices to the receivers of a notify file whenever the writer leads, until `close`. Its
    folder of cursors is shared by servers that share a store. Raises: InputError."""

    def __init__(self, writer: Writer, path: str, beats: Heartbeats) -> None:
        self._writer = writer
        self._path = path
        self._beats = beats
        self._begin(*load_notify(path))

    def _begin(self, cursors: Path, receivers: tuple[Receiver, ...]) -> None:
        self._cursors = cursors
        self._pool = ThreadPoolExecutor(max(1, len(receivers)), "muster-notify")
        self._tasks = Tasks(self._beats)
        for each in receivers:
            self._tasks.keep(f"notify {each.name}", partial(self._run, each))

    async def reload(self) -> None:
        """Read the file again; a receiver that is still in it goes on from where it was."""
        try:
            loaded = await asyncio.to_thread(load_notify, self._path)
        except InputError as error:
            log.error("rejected, the old receivers stay in use: %s", error)
            return
        await self.close()
        self._begin(*loaded)

    async def close(self) -> None:
        """End; notices that were not accepted are sent again by the next server."""
        await self._tasks.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _run(self, receiver: Receiver) -> None:
        term: int | None = None
        while True:
            if (term := self._writer.term) is not None:
                async with Tasks(self._beats) as tasks:
                    tasks.keep(f"telling {receiver.name}", partial(self._tell_all, receiver))
                    await self._writer.lead_change(term)
            else:
                await self._writer.lead_change(None)

    async def _tell_all(self, receiver: Receiver) -> None:
        while True:
            try:
                after = kept = await self._read_cursor(receiver)
                async with aclosing(self._writer.watch(JobChange, after, _IDLE_S)) as changes:
                    async for change in changes:
                        if isinstance(change, JobChange):
                            notice = notice_of(change, receiver)
                            if notice is not None:
                                await self._deliver(receiver, notice, change)
                            elif change.version < kept + _UNTOLD:
                                continue
                        kept = change.version
                        await self._keep(receiver, kept)
            except FellBehind:
                continue
            except Compacted as error:
                log.error("%s was not told of some changes: %s", receiver.name, error)
                await self._keep(receiver, self._writer.state.version)
            except Closed:
                await asyncio.Event().wait()

    async def _deliver(self, receiver: Receiver, notice: Notice, change: JobChange) -> None:
        """Send it until it is accepted or refused for good."""
        pause_s = FIRST_PAUSE_S
        send = partial(_send_mail if receiver.to else _post, receiver, body_of(notice, change))
        while True:
            try:
                await asyncio.get_running_loop().run_in_executor(self._pool, send)
                return
            except _Refused as error:
                job = change.job.name
                log.error("%s refuses what %s did: %s", receiver.name, job, error)
                return
            except OSError as error:  # of urllib and smtplib too
                log.warning("%s is not told: %s; again in %g s", receiver.name, error, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MOST_PAUSE_S)

    async def _read_cursor(self, receiver: Receiver) -> int:
        path = self._cursors / receiver.name
        try:
            return int(await asyncio.to_thread(path.read_text, "ascii"))
        except (FileNotFoundError, ValueError):
            version = self._writer.state.version
            await self._keep(receiver, version)
            return version

    async def _keep(self, receiver: Receiver, version: int) -> None:
        await asyncio.to_thread(_write, self._cursors / receiver.name, version)


def _write(path: Path, version: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_file.write(path, str(version), "cursors")


def notice_of(change: JobChange, receiver: Receiver) -> Notice | None:
    """Return the notice of a change for the receiver; None where it gets none."""
    job = change.job
    if receiver.tenants and job.tenant not in receiver.tenants:
        return None
    if receiver.is_labelled and dict(job.spec.labels).get(LABEL) != receiver.name:
        return None
    notice = None
    if change.kind is JobChangeKind.ENDED:
        notice = Notice.FAILED if job.state is JobState.FAILED else Notice.ENDED
    elif change.kind is JobChangeKind.HUNG:
        notice = Notice.HANG if job.present.hang else None
    elif _is_restart(change, receiver.restarts):
        notice = Notice.RESTARTED
    elif change.kind is JobChangeKind.STARTED:
        notice = Notice.STARTED
    return notice if notice in receiver.events else None


def _is_restart(change: JobChange, number: int) -> bool:
    """Return whether this is restart `number` of the job, or of roles in its present attempt."""
    if change.kind is JobChangeKind.ROLE_RESTARTED:
        return _role_restarts(change.job) == number
    return change.kind in _STARTS and change.job.attempt == number + 1


def body_of(notice: Notice, change: JobChange) -> dict[str, Any]:
    """Return the message of a notice, the same each time that it is sent. `version` tells two
    notices apart."""
    job = change.job
    outcome = {
        Notice.STARTED: f"started, attempt {job.attempt}",
        Notice.RESTARTED: _restarts_text(change),
        Notice.HANG: "hangs",
        Notice.FAILED: "failed",
        Notice.ENDED: job.state.value,
    }[notice]
    name = short_name(job.name)
    reason = job.present.hang if notice is Notice.HANG else job.reason
    return {
        "version": change.version,
        "time": datetime.fromtimestamp(change.time_ns / 1e9, UTC).isoformat(),
        "event": notice.value,
        "job": name,
        "uid": job.uid,
        "tenant": job.tenant,
        "user": job.user,
        "state": job.state.value,
        "attempt": job.attempt,
        "reason": reason,
        "text": f"{name}: {outcome}" + (f": {reason}" if reason else ""),
    }


def _role_restarts(job: Job) -> int:
    return sum(count for _, count in job.present.role_restarts)


def _restarts_text(change: JobChange) -> str:
    if change.kind is JobChangeKind.ROLE_RESTARTED:
        return f"had {_role_restarts(change.job)} restarts of roles"
    return f"was restarted {change.job.attempt - 1} times"


def _post(receiver: Receiver, body: dict[str, Any]) -> None:
    """Raises: OSError, _Refused."""
    sent = {"text": body["text"]} if receiver.is_slack else body
    data = json.dumps(sent, sort_keys=True).encode()
    headers = {"Content-Type": "application/json", "Muster-Version": str(body["version"])}
    if receiver.secret:
        digest = hmac.new(receiver.secret, data, hashlib.sha256).hexdigest()
        headers["Muster-Signature"] = f"sha256={digest}"
    request = urllib.request.Request(receiver.url, data, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S):
            pass
    except urllib.error.HTTPError as error:
        error.close()
        if error.code < 500 and error.code not in _LATER:
            raise _Refused(f"{error.code} {error.reason}") from None
        raise
    except ValueError as error:
        raise _Refused(str(error)) from None


def _send_mail(receiver: Receiver, body: dict[str, Any]) -> None:
    """Raises: OSError, _Refused."""
    message = EmailMessage()
    message["From"], message["To"] = receiver.sender, ", ".join(receiver.to)
    message["Subject"] = " ".join(body["text"].split())[:120]
    message["Message-ID"] = f"<{body['version']}.{body['uid']}.{body['event']}@muster>"
    message.set_content("\n".join(f"{key}: {value}" for key, value in body.items()))
    try:
        with smtplib.SMTP(*receiver.smtp, timeout=TIMEOUT_S) as server:
            if receiver.user:
                _log_in(server, receiver)
            server.send_message(message)
    except smtplib.SMTPAuthenticationError:
        raise  # the password may be mended meanwhile
    except smtplib.SMTPResponseException as error:
        if error.smtp_code >= 500:
            raise _Refused(str(error)) from None
        raise
    except smtplib.SMTPRecipientsRefused as error:
        if all(code >= 500 for code, _ in error.recipients.values()):
            raise _Refused(str(error)) from None
        raise


def _log_in(server: smtplib.SMTP, receiver: Receiver) -> None:
    """Encrypted, unless the mail server is on this machine. Raises: OSError."""
    server.ehlo()
    if server.has_extn("starttls"):
        server.starttls(context=ssl.create_default_context())
    elif not is_loopback(receiver.smtp[0]):
        raise OSError("it offers no STARTTLS, and no password is sent in the clear")
    server.login(receiver.user, receiver.secret.decode())
