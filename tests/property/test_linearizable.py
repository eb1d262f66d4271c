"""The checker of the failover drill: it must say no when the answer is no."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drills.linearizable import Operation, RecordedCall, Seen, Value, after, is_linearizable


def create(began: float, ended: float, mark: int, *, taken: bool = False) -> RecordedCall:
    return RecordedCall(
        Operation.CREATE, began, ended, "taken" if taken else Seen(mark, True), mark
    )


def get(began: float, ended: float, answer: Value) -> RecordedCall:
    return RecordedCall(Operation.GET, began, ended, answer)


def cancel(began: float, ended: float, answer: Value) -> RecordedCall:
    return RecordedCall(Operation.CANCEL, began, ended, answer)


LIVE, ENDED = Seen(1, is_live=True), Seen(1, is_live=False)


def test_an_acknowledged_create_that_is_lost() -> None:
    assert not is_linearizable([create(0, 1, 1), get(2, 3, None)])


def test_a_read_that_takes_back_what_another_saw() -> None:
    """Both overlap the create, but not each other."""
    assert not is_linearizable([create(0, 9, 1), get(1, 2, LIVE), get(3, 4, None)])
    assert is_linearizable([create(0, 9, 1), get(1, 2, None), get(3, 4, LIVE)])


def test_two_leaders_that_give_the_name_twice() -> None:
    assert not is_linearizable([create(0, 5, 1), create(1, 6, 2), get(7, 8, LIVE)])
    assert is_linearizable([create(0, 5, 1), create(1, 6, 2, taken=True), get(7, 8, LIVE)])


def test_a_cancel_between_makes_the_name_free() -> None:
    assert is_linearizable([create(0, 1, 1), cancel(2, 6, ENDED), create(3, 7, 2)])


def test_a_cancelled_job_that_lives_again() -> None:
    assert not is_linearizable([create(0, 1, 1), cancel(2, 3, ENDED), get(4, 5, LIVE)])


def test_a_label_that_is_lost_or_given_to_what_has_ended() -> None:
    labelled = RecordedCall(Operation.LABEL, 2, 3, Seen(1, True, label=7), 7)
    assert is_linearizable([create(0, 1, 1), labelled, get(4, 5, Seen(1, True, label=7))])
    assert not is_linearizable([create(0, 1, 1), labelled, get(4, 5, LIVE)])
    assert not is_linearizable([create(0, 1, 1), cancel(1.2, 1.5, ENDED), labelled])
    over = RecordedCall(Operation.LABEL, 2, 3, "over", 7)
    assert is_linearizable([create(0, 1, 1), cancel(1.2, 1.5, ENDED), over])


def test_an_open_call_may_happen_late_or_never() -> None:
    lost = create(0, inf, 1)
    assert is_linearizable([lost])
    assert is_linearizable([lost, get(1, 2, None)])
    assert is_linearizable([lost, get(1, 2, None), get(3, 4, LIVE)])
    assert not is_linearizable([lost, get(1, 2, LIVE), get(3, 4, None)])


def test_a_call_cannot_happen_before_it_began() -> None:
    assert not is_linearizable([get(0, 1, LIVE), create(2, 3, 1)])


def test_many_that_overlap_are_searched_in_time() -> None:
    marks = range(1, 9)
    crowd = [create(0, 100, mark, taken=mark != 5) for mark in marks]
    assert is_linearizable([*crowd, get(101, 102, Seen(5, True))])
    assert not is_linearizable([*crowd, get(101, 102, Seen(4, True))])


_CALLS = st.lists(
    st.tuples(st.sampled_from(Operation), st.floats(0, 0.9), st.floats(0, 3)),
    min_size=1,
    max_size=14,
)


@given(_CALLS)
def test_whatever_a_register_answers_is_linearizable(
    drawn: list[tuple[Operation, float, float]],
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
