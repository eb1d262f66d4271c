"""The map and the sorted values under the state behave as a dict and a list that are copied for
every change, and maps keep their ranks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.collections import sorted_values
from scheduler.core.collections.persistent_map import PersistentMap
from scheduler.core.collections.sorted_values import SortedValues

CHANGE = st.tuples(st.integers(0, 60), st.booleans())
# So many that changes are joined, and new bases made.
CHANGES = st.lists(CHANGE) | st.lists(CHANGE, min_size=80, max_size=200)


def test_what_is_not_there_is_an_error() -> None:
    gone = PersistentMap({"a": 1}).without("a")
    for key in ("a", "b"):
        with pytest.raises(KeyError):
            gone.without(key)
        with pytest.raises(KeyError):
            gone[key]
    for values in (SortedValues[int](), SortedValues([1, 3])):
        for value in (2, 9):
            with pytest.raises(KeyError):
                values.without(value)


def _rank(value: int) -> tuple[int, str] | None:
    """Of odd values none."""
    return None if value % 2 else (value // 4, f"v{value}")


def _negative(value: int) -> int:
    return -value


@settings(max_examples=30)
@given(CHANGES)
def test_a_map_is_a_dict_in_content_order_and_size_and_keeps_its_ranks(
    changes: list[tuple[int, bool]],
) -> None:
    plain: dict[int, int] = {}
    entries: PersistentMap[int, int] = PersistentMap()
    for step, (key, is_removal) in enumerate(changes):
        older, before = entries, dict(plain)
        if is_removal and key in plain:
            del plain[key]
            entries = entries.without(key)
        else:
            plain[key] = step
            entries = entries.having(key, step)
        assert dict(older) == before
        anew = sorted(rank for rank in map(_rank, plain.values()) if rank is not None)
        assert list(entries.ranks(_rank)) == anew
    assert list(entries.ranks(_negative)) == sorted(map(_negative, plain.values()))
    assert list(entries.items()) == list(plain.items())
    assert len(entries) == len(plain)
    assert all(entries.get(key) == plain.get(key) for key in range(61))
    assert all((key in entries) == (key in plain) for key in range(61))
    assert entries == plain


@settings(max_examples=30)
@given(CHANGES)
def test_sorted_values_are_a_sorted_list(changes: list[tuple[int, bool]]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sorted_values, "MOST", 4)
        plain, values = set[int](), SortedValues[int]()
        for value, is_removal in changes:
            before, was = values, sorted(plain)
            if is_removal and value in plain:
                plain.remove(value)
                values = values.without(value)
            elif value not in plain:
                plain.add(value)
                values = values.having(value)
            assert list(before) == was
        assert list(values) == sorted(plain)
        for value in range(10):
            below = [each for each in sorted(plain) if each < value]
            assert list(values.before(value)) == below[::-1]
            assert list(values.since(value)) == sorted(plain)[len(below) :]
