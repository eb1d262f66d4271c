"""The checker of the failover drill: it must say no when the answer is no."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drills.linearizable import CallKind, RecordedCall, Seen, Value, after, is_linearizable
from tests.cases import case


def create(began: float, ended: float, mark: int, *, taken: bool = False) -> RecordedCall:
    return RecordedCall(CallKind.CREATE, began, ended, "taken" if taken else Seen(mark, True), mark)


def get(began: float, ended: float, answer: Value) -> RecordedCall:
    return RecordedCall(CallKind.GET, began, ended, answer)


def cancel(began: float, ended: float, answer: Value) -> RecordedCall:
    return RecordedCall(CallKind.CANCEL, began, ended, answer)


LIVE, ENDED = Seen(1, is_live=True), Seen(1, is_live=False)
WITH_LABEL = Seen(1, is_live=True, label=7)
LABELLED = RecordedCall(CallKind.LABEL, 2, 3, WITH_LABEL, 7)
TOO_LATE = RecordedCall(CallKind.LABEL, 2, 3, "over", 7)
AGAIN = RecordedCall(CallKind.LABEL, 2, 9, replace(ENDED, label=8), 7)  # its first answer got lost
OTHER = RecordedCall(CallKind.LABEL, 5, 6, Seen(1, is_live=True, label=8), 8)
LOST = create(0, inf, 1)  # whose answer nobody has seen
CROWD = [create(0, 100, mark, taken=mark != 5) for mark in range(1, 9)]
HISTORIES: list[tuple[str, list[RecordedCall], bool]] = [
    ("a create is lost", [create(0, 1, 1), get(2, 3, None)], False),
    ("a read takes back a create", [create(0, 9, 1), get(1, 2, LIVE), get(3, 4, None)], False),
    ("a create between reads", [create(0, 9, 1), get(1, 2, None), get(3, 4, LIVE)], True),
    ("a name is given twice", [create(0, 5, 1), create(1, 6, 2), get(7, 8, LIVE)], False),
    ("a name is taken", [create(0, 5, 1), create(1, 6, 2, taken=True), get(7, 8, LIVE)], True),
    ("a cancel frees the name", [create(0, 1, 1), cancel(2, 6, ENDED), create(3, 7, 2)], True),
    ("a job lives again", [create(0, 1, 1), cancel(2, 3, ENDED), get(4, 5, LIVE)], False),
    ("a label", [create(0, 1, 1), LABELLED, get(4, 5, WITH_LABEL)], True),
    ("a label is lost", [create(0, 1, 1), LABELLED, get(4, 5, LIVE)], False),
    (
        "a label is set and asked for again",
        [create(0, 1, 1), AGAIN, get(3, 4, WITH_LABEL), OTHER],
        True,
    ),
    ("a label is asked for again and not set", [create(0, 1, 1), AGAIN, get(10, 11, LIVE)], False),
    ("a label of what ended", [create(0, 1, 1), cancel(1.2, 1.5, ENDED), LABELLED], False),
    ("a label comes too late", [create(0, 1, 1), cancel(1.2, 1.5, ENDED), TOO_LATE], True),
    ("an open call alone", [LOST], True),
    ("an open call never happens", [LOST, get(1, 2, None)], True),
    ("an open call happens late", [LOST, get(1, 2, None), get(3, 4, LIVE)], True),
    ("an open call is taken back", [LOST, get(1, 2, LIVE), get(3, 4, None)], False),
    ("a call happens before it began", [get(0, 1, LIVE), create(2, 3, 1)], False),
    ("one of a crowd has the name", [*CROWD, get(101, 102, Seen(5, True))], True),
    ("another of a crowd has the name", [*CROWD, get(101, 102, Seen(4, True))], False),
]


def test_a_history_is_linearizable_or_not() -> None:
    for name, calls, can_be in HISTORIES:
        with case(history=name):
            assert is_linearizable(calls) == can_be


_CALLS = st.lists(
    st.tuples(st.sampled_from(CallKind), st.floats(0, 0.9), st.floats(0, 3)),
    min_size=1,
    max_size=14,
)


@given(_CALLS)
def test_whatever_a_register_answers_is_linearizable(
    drawn: list[tuple[CallKind, float, float]],
) -> None:
    """Call i has its instant at i + 1; it begins up to a little before, ends after."""
    value: Value = None
    calls = []
    for i, (kind, early, late) in enumerate(drawn, 1):
        blank = RecordedCall(kind, i - early, i + late, mark=i)
        value, answer = after(value, blank)
        calls.append(RecordedCall(kind, i - early, i + late, answer, i))
    assert is_linearizable(calls)


@pytest.mark.parametrize("wrong", [None, Seen(99, is_live=True)])
def test_one_wrong_answer_among_many_is_found(wrong: Value) -> None:
    calls = [create(0, 1, 1), *(get(i, i + 1.5, LIVE) for i in range(2, 40))]
    assert is_linearizable(calls)
    calls[20] = get(20, 21.5, wrong)
    assert not is_linearizable(calls)
