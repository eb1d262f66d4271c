"""The telling of a replay in a process of its own, so that it takes no time from deciding.

Events and rows go there through a pipe, some hundreds at a time; what is asked is answered
once all that came before is told. What goes wrong there is raised here, at the next message.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from placement.fabric.tree import Fabric
from scheduler.core.model.events import Event
from scheduler.files.errors import InputError, Problem
from simulator.accounts import Account
from simulator.metrics import JobRow
from simulator.report import Place
from simulator.study.pool import ctrl_c_ignored
from simulator.telling import Telling

MESSAGE = 500  # events and rows


class Beside(AbstractContextManager["Beside"]):
    """A `Telling` elsewhere. A context manager: what was said is told before it is left."""

    def __init__(self, fabric: Fabric, place: Place | None = None, has_story: bool = False) -> None:
        context = get_context("spawn")  # a fork of a process with threads may hang
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_tell, args=(theirs, fabric, place, has_story))
        with ctrl_c_ignored():
            self._process.start()
        theirs.close()
        self._said: list[tuple[str, Any]] = []

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self._asked("close")
            else:
                with suppress(OSError):
                    self._pipe.send((self._said, None))
        finally:
            self._pipe.close()
            self._process.join()

    def feed(self, event: Event) -> None:
        self._say("feed", event)

    def ended(self, row: JobRow) -> None:
        self._say("ended", row)

    def digest(self) -> str:
        return str(self._asked("digest"))

    def story(self, settled: Account) -> dict[str, Any]:
        return dict(self._asked("story", settled))

    def grown(self) -> dict[str, bytes]:
        return dict(self._asked("grown"))

    def kept(self) -> dict[str, Any]:
        return dict(self._asked("kept"))

    def go_on(self, kept: dict[str, Any], log: bytes) -> None:
        self._asked("go_on", kept, log)

    def _say(self, what: str, of: Event | JobRow) -> None:
        self._said.append((what, of))
        if len(self._said) >= MESSAGE:
            self._send(None)

    def _send(self, question: tuple[Any, ...] | None) -> None:
        said, self._said = self._said, []
        try:
            self._pipe.send((said, question))
        except OSError:  # it is gone, perhaps with something left to say
            self._answer()
            raise

    def _asked(self, *question: Any) -> Any:
        self._send(question)
        return self._answer()

    def _answer(self) -> Any:
        """Raises: what went wrong there, InputError when it is gone without a word."""
        try:
            is_good, answer = self._pipe.recv()
        except (EOFError, OSError):
            told = "the process that writes it was ended from outside, perhaps for want of memory"
            raise InputError(Problem("--report", told)) from None
        if not is_good:
            raise answer
        return answer


def _tell(pipe: Connection, fabric: Fabric, place: Place | None, has_story: bool) -> None:
    """In the other process, until the pipe is closed."""
    with pipe, suppress(OSError):  # whoever asked may be gone
        try:
            with Telling(fabric, place, has_story) as telling:
                _hear(pipe, telling)
        except EOFError:
            pass
        except Exception as error:
            pipe.send((False, error))


def _hear(pipe: Connection, telling: Telling) -> NoReturn:
    """Raises: EOFError when all is said, and what telling raises."""
    while True:
        said, question = pipe.recv()
        for what, of in said:
            getattr(telling, what)(of)
        if question is not None:
            what, *about = question
            pipe.send((True, getattr(telling, what)(*about)))
