"""The process of a mirror, started by mirror.py with the number of its pipe.

It holds a state of its own and folds into it the events that each question brings. It
ends when the other side of its pipe does, however that came about.
"""

from __future__ import annotations

import pickle
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection

from placement import warm_up
from scheduler.core import State
from scheduler.core.fold.apply import apply
from scheduler.engine.mirror import Failed, MirrorQuestion, NoSuchVersion
from scheduler.eventlog import codec, snapshots
from scheduler.identity import ANYBODY, act_for

KEPT = 1_000  # states before the newest: a question may have waited while others brought events


class KnownStates:
    """The newest state and those just before it, by version."""

    def __init__(self) -> None:
        self._by_version: dict[int, State] = {}
        self._newest = State.empty()

    def follow(self, question: MirrorQuestion) -> State:
        """Return the state that a question is about. Raises: NoSuchVersion."""
        try:
            for state in self._followed(question):
                self._newest = self._by_version[state.version] = state
                self._by_version.pop(state.version - KEPT, None)
        except Exception as error:  # what it has then is not the server's state
            self._by_version.clear()
            raise NoSuchVersion(f"{type(error).__name__}: {error}") from error
        if question.version not in self._by_version:
            raise NoSuchVersion(
                f"asked about version {question.version} at version {self._newest.version}"
            )
        return self._by_version[question.version]

    def _followed(self, question: MirrorQuestion) -> Iterator[State]:
        state = self._newest
        if question.base is not None:
            self._by_version.clear()
            state, _ = snapshots.decode(question.base)
            yield state
        for name, body in question.events:
            state = apply(state, codec.decode(name, body))
            yield state


def respond(states: KnownStates, question: MirrorQuestion) -> object:
    """Return the answer to a question, or the error that it raised."""
    try:
        state = states.follow(question)
        act_for(question.who or ANYBODY)
        return question.compute(state, *question.arguments)
    except Exception as error:
        return Failed(error)


def packed(answer: object) -> bytes:
    """Return the answer as bytes for the pipe; where that is not possible, an error that says
    so."""
    try:
        body = pickle.dumps(answer)
        if isinstance(answer, Failed):
            pickle.loads(body)  # many exceptions are made from other arguments than they keep
    except Exception:
        inside = answer.error if isinstance(answer, Failed) else answer
        body = pickle.dumps(Failed(RuntimeError(f"{type(inside).__name__}: {inside}"[:500])))
    return body


def answer_all(link: Connection, modules: Sequence[str]) -> None:
    """Answer questions until the other side is gone."""
    states = KnownStates()
    for module in modules:
        import_module(module)
    warm_up()
    link.send("up")
    while True:
        link.send_bytes(packed(respond(states, link.recv())))


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the server, which ends the pipe
        signal.signal(number, signal.SIG_IGN)
    with Connection(int(sys.argv[1])) as link, suppress(EOFError, OSError):
        answer_all(link, sys.argv[2:])
