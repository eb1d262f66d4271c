"""Values as JSON and back: the same value, or a refusal."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.due import Due, GangEnds, PlanIsReady
from simulator.snapshot.plain import Floats, Kept, form, told


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: float | None = None


@dataclass(frozen=True, slots=True)
class Circle:
    x: int
    points: tuple[Point, ...] = ()


class Inner(Kept):
    count: int

    def __init__(self) -> None:
        self.count = 0


class Outer(Kept):
    inner: Inner
    names: set[str]

    def __init__(self, wire: object) -> None:
        self.wire = wire
        self.inner = Inner()
        self.names = set()


def there_and_back(kind: Any, value: Any) -> Any:
    found = form(kind)
    return found.load(json.loads(json.dumps(found.dump(value))))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, -(2**70)),
        (float, 0.1 + 0.2),
        (dict[tuple[str, int], dict[str, float]], {("zone", 1): {"b": 1.5, "a": 0}}),
        (Counter[str], Counter(b=2, a=1)),
        (set[str], {"b", "a"}),
        (list[tuple[int, Colour]], [(1, Colour.RED)]),
        (Point | Circle, Circle(1, (Point(2, 0.5), Point(3)))),
        (Point | Circle, Point(1)),
        (Point | None, None),
        (Floats, Floats("d", [0.1, 3e300])),
        (dict[str, None], {"x": None}),
    ],
)
def test_it_comes_back_as_it_was(kind: Any, value: Any) -> None:
    assert there_and_back(kind, value) == value


def test_a_set_of_many_hosts_comes_back() -> None:
    """Python writes no decimal number of more than 4,300 digits."""
    hosts = 2**20_000 + 1

    assert there_and_back(int, hosts) == hosts


def test_the_order_of_a_mapping_comes_back() -> None:
    found = there_and_back(dict[str, int], {"z": 1, "a": 2})

    assert list(found) == ["z", "a"]


@given(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_come_back_to_the_last_bit(whole: int, part: float) -> None:
    assert there_and_back(Point, Point(whole, part)) == Point(whole, part)


@pytest.mark.parametrize(
    ("kind", "plain"),
    [
        (int, "7"),
        (int, True),
        (str, 7),
        (Point, {"x": 1}),
        (Point, [1, 2]),
        (Point | Circle, {"type": "Square", "x": 1}),
        (Colour, "blue"),
        (tuple[int, str], [1]),
        (type(None), 0),
    ],
)
def test_what_dump_did_not_make_is_refused(kind: Any, plain: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        form(kind).load(plain)


def test_a_type_without_a_form_is_refused_before_anything_is_written() -> None:
    with pytest.raises(TypeError, match="no plain form"):
        form(list[object])


def test_what_a_class_annotates_is_kept_and_its_wiring_is_not() -> None:
    before = Outer("before")
    before.inner.count, before.names = 3, {"x"}

    after = Outer("after")
    inner = after.inner
    after.restore(json.loads(json.dumps(before.kept())))

    assert (after.inner.count, after.names, after.wire) == (3, {"x"}, "after")
    assert after.inner is inner


def test_another_field_is_another_form() -> None:
    assert told(Outer) == "inner: {count: int}, names: [str]"


def test_whatever_can_be_due_can_be_written_down() -> None:
    """Raises when a field of an action of a plan, or of what is due, has no form."""
    assert {GangEnds.__name__, PlanIsReady.__name__} <= {
        part.split("(")[0] for part in form(Due).told.split(" | ")
    }
