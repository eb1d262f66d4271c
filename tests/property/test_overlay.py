"""The map under the state behaves as a dict that is copied for every change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.collections.persistent_map import PersistentMap

KEYS = st.integers(0, 90)


def test_older_versions_stay_as_they_were() -> None:
    first = PersistentMap({"a": 1})
    second = first.having("a", 2).having("b", 3)
    third = second.without("a")

    assert [dict(each) for each in (first, second, third)] == [
        {"a": 1},
        {"a": 2, "b": 3},
        {"b": 3},
    ]


def test_what_is_not_there_is_an_error() -> None:
    gone = PersistentMap({"a": 1}).without("a")
    for key in ("a", "b"):
        with pytest.raises(KeyError):
            gone.without(key)
        with pytest.raises(KeyError):
            gone[key]


@given(st.lists(st.tuples(KEYS, st.booleans()), max_size=400))
def test_it_is_a_dict_in_content_order_and_size(changes: list[tuple[int, bool]]) -> None:
    plain: dict[int, int] = {}
    overlay: PersistentMap[int, int] = PersistentMap()
    for step, (key, is_removal) in enumerate(changes):
        if is_removal and key in plain:
            del plain[key]
            overlay = overlay.without(key)
        else:
            plain[key] = step
            overlay = overlay.having(key, step)

    assert list(overlay.items()) == list(plain.items())
    assert len(overlay) == len(plain)
    assert all(overlay.get(key) == plain.get(key) for key in range(91))
    assert all((key in overlay) == (key in plain) for key in range(91))
    assert overlay == plain
