"""What waits for the writer: one thing to check, and what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from scheduler.core import Conflict, Rejected, State
from scheduler.core.fold.apply import apply, effects
from scheduler.core.model.events import Event
from scheduler.observe.instruments import AppliedEvent, Stage

Answer = tuple[Event, ...] | Rejected | Conflict


class WriterStopped(Exception):
    """The writer takes nothing more: the server is stopping."""


class NotLeading(Exception):
    """Another server leads. `leader`: where it listens, "" when that is not known."""

    def __init__(self, leader: str) -> None:
        super().__init__(leader)
        self.leader = leader


class Proposal(NamedTuple):
    """A command or a plan for the writer to check and write, with who asked for it, and when."""

    stage: Stage
    check: Callable[[State, int], Answer]
    answer: asyncio.Future[tuple[Answer, State]]
    actor: str
    arrived_ns: int

    def resolve(self, answer: Answer | Exception, after: State | None = None) -> None:
        """Give the caller its answer, with the state that this proposal left."""
        if self.answer.done():  # the caller has gone away
            return
        if isinstance(answer, Exception):
            self.answer.set_exception(answer)
        elif after is not None:
            self.answer.set_result((answer, after))


def followed(
    state: State, answer: Answer, actor: str, arrived_ns: int | None = None
) -> list[AppliedEvent]:
    """Apply the events of an answer in order, and return each with its effects."""
    steps = []
    for event in answer if isinstance(answer, tuple) else ():
        after = apply(state, event)
        done = effects(state, event, after)
        steps.append(AppliedEvent(state, event, after, actor, arrived_ns, done))
        state = after
    return steps
