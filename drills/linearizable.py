"""Is there one order of these calls that explains every answer?

A history is linearizable when each call can be given an instant between its start and its
answer so that, in the order of the instants, a plain register gives the same answers. A
call whose answer never came may have its instant at any time after its start, or none.
Histories of different keys are checked one by one, for linearizability is local.

Source: Herlihy and Wing, "Linearizability: A Correctness Condition for Concurrent Objects"
(1990); search as in Wing and Gong, "Testing and Verifying Concurrent Objects" (1993), with
Lowe's memory of visited configurations, "Testing for linearizability" (2017).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import inf


class CallKind(Enum):
    CREATE = "create"
    CANCEL = "cancel"
    GET = "get"
    LABEL = "label"


@dataclass(frozen=True, slots=True)
class Seen:
    """The job that a client saw under a name, which the call with `mark` made. `label`: the mark
    of the call that labelled it last, 0 for none."""

    mark: int
    is_live: bool
    label: int = 0


Value = Seen | None


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """`mark` tells what a create makes. `answer`: what there was after it, None for not
    found, "taken", or "over" for what has ended. `ended` is inf when no answer came."""

    kind: CallKind
    began: float
    ended: float
    answer: Value | str = None
    mark: int = 0

    @property
    def is_open(self) -> bool:
        return self.ended == inf


def after(value: Value, call: RecordedCall) -> tuple[Value, Value | str]:
    """Return the register after `call`, and its answer: submit, cancel and get as the docs define
    them."""
    match call.kind:
        case CallKind.CREATE:
            if value is not None and value.is_live:
                return value, "taken"
            made = Seen(call.mark, is_live=True)
            return made, Seen(call.mark, is_live=True)
        case CallKind.CANCEL:
            ended = None if value is None else replace(value, is_live=False)
            return ended, ended
        case CallKind.LABEL:
            if value is None or not value.is_live:
                return value, None if value is None else "over"
            labelled = replace(value, label=call.mark)
            return labelled, labelled
        case CallKind.GET:
            return value, value


def is_linearizable(calls: Sequence[RecordedCall]) -> bool:
    """Return whether calls can be put in one order that explains all answers. Cost: exponential in
    the calls that overlap, linear in the rest."""
    calls = sorted(calls, key=lambda call: (call.began, call.ended))
    closed = sum(1 << i for i, call in enumerate(calls) if not call.is_open)
    visited: set[tuple[int, Value]] = set()
    stack: list[tuple[int, Value]] = [(0, None)]
    while stack:
        done, value = stack.pop()
        if done & closed == closed:
            return True
        if (done, value) in visited:
            continue
        visited.add((done, value))
        stack.extend(_next(calls, done, value))
    return False


def _next(calls: Sequence[RecordedCall], done: int, value: Value) -> Iterator[tuple[int, Value]]:
    """Every call that may come next: none that is not done has ended before it began."""
    first_end = inf
    for i, call in enumerate(calls):
        if call.began > first_end:
            return
        if done >> i & 1:
            continue
        first_end = min(first_end, call.ended)
        then, answer = after(value, call)
        if call.is_open or _is_same_answer(call, answer):
            yield done | 1 << i, then


def _is_same_answer(call: RecordedCall, answer: Value | str) -> bool:
    """Return whether answers agree; a repeated create or label may answer with its job as it is by
    then. That the label was set, the reads after it tell."""
    may_repeat = call.kind in (CallKind.CREATE, CallKind.LABEL)
    if may_repeat and isinstance(answer, Seen) and isinstance(call.answer, Seen):
        return answer.mark == call.answer.mark
    return call.answer == answer
