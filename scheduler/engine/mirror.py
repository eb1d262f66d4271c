"""A process that holds the same state, and computes on it.

Python runs one thread at a time, so whatever computes for long in a thread of the server slows down
every call meanwhile. A mirror (mirror_process.py) folds the same events into the same state, and is
sent with each question what happened since the one before. It takes seconds and some 150 MB until
it is up.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from threading import Lock
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

from muster.structs import struct
from scheduler.core import State
from scheduler.core.model.events import Event
from scheduler.engine.proposal import WriterStopped
from scheduler.eventlog import codec, snapshots
from scheduler.identity import ANYBODY, Caller, caller

MOST_EVENTS = 20_000  # beyond which a whole state is sent instead
_PROGRAM, _NICE = "scheduler.engine.mirror_process", 10  # calls go first, also while it loads
_PIECE, _PAUSE_S = 100, 0.004  # events, a millisecond of work, and how long others go on then

log = logging.getLogger("muster.writer")

Given = TypeVarTuple("Given")
Answer = TypeVar("Answer")


class NoAnswer(Exception):
    """The mirror has no process, or that has ended or lost count of versions: compute elsewhere."""


class NoSuchVersion(Exception):
    """The mirror does not have the state of the version asked for."""


class Failed(NamedTuple):
    """Error that a computation raised."""

    error: Exception


@struct(frozen=True, slots=True)
class MirrorQuestion:
    """A computation to do on the state at `version`. `base`: a snapshot to begin with, else the
    state of the question before; `events`: what follows it, as the log has it. `who`: for whom;
    None: anybody."""

    version: int
    base: bytes | None
    events: tuple[tuple[str, str], ...]
    who: Caller | None
    compute: Callable[..., Any]
    arguments: tuple[Any, ...]


class Lacking(NamedTuple):
    """The part of the log that a mirror has not been sent yet: events, after the state that it
    needs first, if any."""

    base: State | None
    events: tuple[Event, ...]


class StateMirror:
    """A process that follows the state of one writer, which tells it of all that is durable, and
    answers one question at a time. `purpose`: what for, in messages; `modules`: what it loads
    before it says that it is up. There is none before `start`."""

    def __init__(self, purpose: str, *modules: str) -> None:
        self.newest = State.empty()
        self.process: subprocess.Popen[bytes] | None = None
        self._purpose = purpose
        self._modules = modules
        self._link: Connection | None = None
        self._is_up = self._is_closed = False
        self._needs_all = True
        self._events: list[Event] = []
        self._lock = Lock()  # of what it lacks

    def start(self) -> None:
        """Begin a process, unless there is one."""
        if self.process is not None or self._is_closed:
            return
        self._link, child_end = Pipe()
        # Not -m: what it sends must bear the name of its module, not of the program.
        program = f"import os; os.nice({_NICE}); from {_PROGRAM} import main; main()"
        command = [sys.executable, "-c", program, str(child_end.fileno()), *self._modules]
        with child_end:
            # In a process group of its own, for Ctrl-C is meant for the server, which ends it.
            self.process = subprocess.Popen(command, pass_fds=[child_end.fileno()], process_group=0)

    def is_up(self) -> bool:
        """Whether there is a process that has started."""
        link = self._link  # which another thread may end meanwhile
        try:
            if not self._is_up and link is not None and link.poll():
                self._is_up = bool(link.recv())
        except (EOFError, OSError):
            self._is_up = True  # asking it will find that it has ended
        return self._is_up

    def follow(self, events: Sequence[Event], state: State) -> None:
        """Note durable events, which lead to `state`; they are sent with the next question."""
        with self._lock:
            is_next = state.version == self.newest.version + len(events)
            self.newest = state
            if not self._needs_all:
                self._events += events
                if len(self._events) > MOST_EVENTS or not is_next:
                    self._forget()

    def forget(self, state: State) -> None:
        """Note that this state does not follow from the one before."""
        with self._lock:
            self.newest = state
            self._forget()

    def take(self) -> Lacking:
        """Return what the mirror has not been sent yet, and count it as sent with the next
        question."""
        with self._lock:
            base = self.newest if self._needs_all else None
            lacking = Lacking(base, tuple(self._events))
            self._needs_all, self._events = False, []
            return lacking

    def ask(
        self,
        lacking: Lacking,
        compute: Callable[[State, *Given], Answer],
        state: State,
        *arguments: *Given,
    ) -> Answer:
        """Let the mirror call `compute`, a function of a module, on this state and for this task's
        caller, and return the answer.

        Raises: NoAnswer; WriterStopped after `close`; what `compute` raises.
        """
        who = None if (mine := caller()) is ANYBODY else mine
        base = None if lacking.base is None else snapshots.encode(lacking.base, 0, _pause)
        rows = _rows(lacking.events)
        question = MirrorQuestion(state.version, base, rows, who, compute, arguments)
        try:
            if (link := self._link) is None:
                raise EOFError
            link.send(question)
            answer = link.recv()
        except (EOFError, OSError) as error:
            self.end()
            if self._is_closed:
                raise WriterStopped from None
            log.warning("the process for %s has ended (%r): threads go on", self._purpose, error)
            raise NoAnswer from error
        if not isinstance(answer, Failed):
            return answer  # type: ignore[no-any-return]
        if isinstance(answer.error, NoSuchVersion):
            with self._lock:
                self._forget()  # whether it took the events is unknown
            log.info("the process for %s lacks a state: %s", self._purpose, answer.error)
            raise NoAnswer from answer.error
        raise answer.error

    def end(self) -> None:
        """Kill the process, if there is one; waiting callers get NoAnswer."""
        process, self._link, self._is_up = self.process, None, False
        with self._lock:
            self._forget()
        self.process = None  # last, for from here on another one may be started
        if process is not None:
            process.kill()
            process.wait()

    def close(self) -> None:
        """End the process for good; waiting callers get WriterStopped."""
        self._is_closed = True
        self.end()

    def _forget(self) -> None:
        self._needs_all, self._events = True, []


def _rows(events: tuple[Event, ...]) -> tuple[tuple[str, str], ...]:
    """The events as the log has them, written in pieces: thousands at once would have Python's
    lock every other moment for a twentieth of a second, in which calls take twice as long."""
    rows: list[tuple[str, str]] = []
    for at in range(0, len(events), _PIECE):
        if at:
            _pause()
        rows += map(codec.encode, events[at : at + _PIECE])
    return tuple(rows)


def _pause() -> None:
    time.sleep(_PAUSE_S)
