"""Sorted values behave as a sorted list that is copied for every change; maps keep their ranks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.collections import sorted_values
from scheduler.core.collections.persistent_map import PersistentMap
from scheduler.core.collections.sorted_values import SortedValues

CHANGES = st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=200)


def _rank(value: int) -> tuple[int, str] | None:
    """Of odd values none."""
    return None if value % 2 else (value // 4, f"v{value}")


def _other(value: int) -> int:
    return -value


@given(CHANGES)
def test_they_are_a_sorted_list(changes: list[tuple[int, bool]]) -> None:
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


def test_removing_what_is_not_there_is_an_error() -> None:
    for values in (SortedValues[int](), SortedValues([1, 3])):
        with pytest.raises(KeyError):
            values.without(2)
        with pytest.raises(KeyError):
            values.without(9)


@given(CHANGES)
def test_next_versions_keep_the_ranks_of_a_map(changes: list[tuple[int, bool]]) -> None:
    entries: PersistentMap[int, int] = PersistentMap()
    for step, (key, is_removal) in enumerate(changes):
        entries.ranks(_rank)
        entries = (
            entries.without(key) if is_removal and key in entries else entries.having(key, step)
        )
        anew = sorted(r for r in map(_rank, entries.values()) if r is not None)
        assert list(entries.ranks(_rank)) == anew
    assert list(entries.ranks(_other)) == sorted(map(_other, entries.values()))
