"""The notify file: who is told what of which jobs.

    cursors: /var/lib/muster/notify       # a folder: how far each receiver has been told
    receivers:
      oncall: {webhook: "https://hooks.example/m", secret_file: hmac.key, events: [failed, hang]}
      chat: {slack: "https://hooks.slack.example/services/T0/B0/x", tenants: [research]}
      owners: {smtp: "mail.example:25", sender: m@example.org, to: [ml@example.org], labelled: true,
               user: muster, secret_file: password}     # where the mail server wants a login

A receiver is told of all jobs; with `tenants`, of the jobs of these; with `labelled`, of those
whose job file has the label `notify: NAME`.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from pydantic import Field

from muster.structs import struct
from scheduler.files.job_keys import Count, Flag, Keys, Text, checked_keys
from scheduler.files.yaml12 import load

LABEL = "notify"
_LEAST_SECRET = 16  # bytes


class Notice(StrEnum):
    """Kind of notice to a receiver."""

    STARTED = "started"  # an attempt has its hosts
    RESTARTED = "restarted"  # so often as the receiver asks
    HANG = "hang"
    FAILED = "failed"
    ENDED = "ended"  # completed or cancelled


@struct(frozen=True, slots=True)
class Receiver:
    """Receiver of notices. `url` of a webhook or of a Slack-compatible one, else `smtp` (host,
    port). `secret`: signs the body of a webhook, or is the password of `user` of a mail server.
    `tenants` empty: all. `is_labelled`: told only of jobs whose label says so. `restarts`: after so
    many RESTARTED is told."""

    name: str
    events: frozenset[Notice]
    url: str = ""
    is_slack: bool = False
    secret: bytes = b""
    smtp: tuple[str, int] = ("", 0)
    sender: str = ""
    to: tuple[str, ...] = ()
    tenants: frozenset[str] = frozenset()
    is_labelled: bool = False
    restarts: int = 3
    user: str = ""


class _ReceiverKeys(Keys):
    webhook: Text = ""
    slack: Text = ""
    smtp: Text = ""
    secret_file: Text = ""
    sender: Text = ""
    to: list[Text] = Field(default_factory=list)
    events: list[Notice] = Field(default_factory=lambda: list(Notice))
    tenants: list[Text] = Field(default_factory=list)
    labelled: Flag = False
    restarts: Count = 3
    user: Text = ""


class _FileKeys(Keys):
    cursors: Text
    receivers: dict[str, _ReceiverKeys]


def load_notify(path: str) -> tuple[Path, tuple[Receiver, ...]]:
    """Return the folder of cursors and the receivers; paths in the file are beside it. Raises:
    InputError with every fault found, each with its line."""
    document = load(path)
    keys = checked_keys(_FileKeys, document)
    folder = Path(path).parent
    wrong = [
        (f"receivers.{name}{'.' if key else ''}{key}", text)
        for name, each in keys.receivers.items()
        for key, text in _faults(name, each, folder)
    ]
    if wrong:
        raise document.error(*wrong)
    receivers = (_receiver(name, each, folder) for name, each in keys.receivers.items())
    return folder / keys.cursors, tuple(receivers)


def _faults(name: str, keys: _ReceiverKeys, folder: Path) -> Iterator[tuple[str, str]]:
    if not (name.isascii() and name.replace("-", "").replace("_", "").isalnum()):
        yield "", "a receiver's name has letters, digits, '-' and '_'"
    if [bool(keys.webhook), bool(keys.slack), bool(keys.smtp)].count(True) != 1:
        yield "", "needs one of webhook, slack and smtp"
    for key, url in (("webhook", keys.webhook), ("slack", keys.slack)):
        if url and not url.startswith(("https://", "http://")):
            yield key, "must begin with https:// or http://"
    if keys.smtp:
        host, _, port = keys.smtp.rpartition(":")
        if not (host and port.isdecimal() and int(port) < 2**16):
            yield "smtp", f"must be HOST:PORT, not {keys.smtp}"
        if not (keys.sender and keys.to):
            yield "smtp", "needs sender and to"
    for address in (keys.sender, *keys.to):
        if address and ("@" not in address or not address.isprintable()):
            yield "to", f"{address!r} is no mail address"
    if keys.secret_file:
        try:
            secret = (folder / keys.secret_file).read_bytes().strip()
        except OSError as error:
            yield "secret_file", f"cannot be read: {error.strerror}"
        else:
            if keys.webhook and len(secret) < _LEAST_SECRET:
                yield "secret_file", f"has fewer than {_LEAST_SECRET} bytes"
    elif keys.user:
        yield "user", "needs a secret_file with its password"
    elif keys.webhook:
        yield "", "a webhook needs a secret_file, whose content signs what it is sent"


def _receiver(name: str, keys: _ReceiverKeys, folder: Path) -> Receiver:
    host, _, port = keys.smtp.rpartition(":")
    secret = (folder / keys.secret_file).read_bytes().strip() if keys.secret_file else b""
    return Receiver(
        name,
        frozenset(keys.events),
        keys.webhook or keys.slack,
        bool(keys.slack),
        secret,
        (host, int(port or 0)),
        keys.sender,
        tuple(keys.to),
        frozenset(keys.tenants),
        keys.labelled,
        keys.restarts,
        keys.user,
    )
