"""The event log as text: one JSON object a line, and the digest of all of them."""

from __future__ import annotations

import hashlib
from typing import TextIO

from scheduler.core.model.events import Event
from scheduler.eventlog.codec import encode


class Log:
    """Feed it events; it keeps their digest, and writes them when it has a `file`.

    Two runs with the same digest took the same decisions, to the byte: the digest is
    the SHA-256 of events.jsonl.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file
        self._version = 0
        self._sha256 = hashlib.sha256()

    def feed(self, event: Event) -> None:
        self._version += 1
        kind, body = encode(event)
        line = f'{{"version":{self._version},"type":"{kind}","event":{body}}}\n'
        self._sha256.update(line.encode())
        if self._file:
            self._file.write(line)

    @property
    def digest(self) -> str:
        return self._sha256.hexdigest()
