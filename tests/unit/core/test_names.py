"""Names in order: what a sorted list of the same names would hold."""

from random import Random

import pytest

from scheduler.core.collections import name_list as module
from scheduler.core.collections.name_list import NameList


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of eight in blocks of two, so that few names fill many."""
    monkeypatch.setattr(module, "MOST", 8)
    monkeypatch.setattr(module, "BLOCK", 2)


def test_any_changes_leave_what_a_sorted_list_holds() -> None:
    chance = Random(1)
    order = {f"job-{number}": (-chance.randrange(3), number) for number in range(300)}
    held, expected = NameList(), list[str]()
    for _ in range(800):
        name = chance.choice(list(order))
        if name in expected:
            expected.remove(name)
            held = held.without(name, order[name], order.__getitem__, "g")
        else:
            expected = sorted([*expected, name], key=order.__getitem__)
            held = held.having(name, order[name], order.__getitem__, "g")
        assert list(held) == expected
        for chunk in held.parts:  # written down from here on, and kept by later versions
            assert [name for block in chunk.blocks for name in block] == list(chunk)
            assert 0 < min(map(len, chunk.blocks)) <= max(map(len, chunk.blocks)) <= 4
        assert len(held) == len(expected)
        assert [held[at] for at in ((0, -1) if expected else ())] == expected[:1] + expected[-1:]


def test_a_version_is_not_touched_by_later_ones() -> None:
    before = NameList("bdf")
    before.having("c", "c", str, "g").without("b", "b", str, "g")
    assert before == ("b", "d", "f")


def test_equal_names_are_equal_however_they_came_about() -> None:
    grown = NameList()
    for letter in "hgfedcba":
        grown = grown.having(letter, letter, str, "g")
    assert grown == NameList("abcdefgh")
    assert hash(grown) == hash(NameList("abcdefgh"))
    assert grown != NameList("abcdefgx")


@pytest.mark.parametrize("held", ["", "abd", "ab"])
def test_names_that_are_not_there_cannot_be_taken_out(held: str) -> None:
    with pytest.raises(KeyError):
        NameList(held).without("c", "c", str, "g")


def test_slices_are_plain_tuples() -> None:
    assert NameList("abcdefg")[1:3] == ("b", "c")
