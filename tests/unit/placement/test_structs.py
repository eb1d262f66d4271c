"""Values declared as dataclasses and made in C."""

import copy
import dataclasses
import pickle
from dataclasses import field
from typing import Any

import msgspec
import pytest

from muster.structs import Derived, derived_from, replace, struct


@struct(frozen=True, slots=True)
class Pair:
    """Two of something."""

    left: int
    right: tuple[int, ...] = ()
    seen: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.left < 0:
            raise ValueError("left must not be negative")


@struct(frozen=True)
class Square:
    side: int

    name: str = ""

    @Derived
    def area(self) -> int:
        return self.side**2

    @derived_from("side")
    def border(self) -> int:
        return 4 * self.side


def test_it_is_a_struct_and_a_dataclass_to_those_who_take_one() -> None:
    pair = Pair(1, (2, 3))

    assert isinstance(pair, msgspec.Struct)
    assert [each.name for each in dataclasses.fields(Pair)] == ["left", "right", "seen"]
    assert dataclasses.asdict(pair) == {"left": 1, "right": (2, 3), "seen": {}}
    assert dataclasses.replace(pair, left=4) == replace(pair, left=4) == Pair(4, (2, 3))
    assert (Pair.__doc__, Pair.__qualname__, Pair.__match_args__) == (
        *("Two of something.", "Pair"),
        ("left", "right", "seen"),
    )
    assert repr(pair) == "Pair(left=1, right=(2, 3), seen={})"


def test_its_fields_cannot_be_set_and_defaults_are_not_shared() -> None:
    assert Pair(1).seen is not Pair(1).seen
    # Its fields cannot be set and equal ones hash alike.
    with pytest.raises(AttributeError, match="immutable"):
        setattr(Square(2), "side", 3)  # noqa: B010
    assert hash(Square(2)) == hash(Square(2))
    assert Square(2) != Square(3)


def test_what_is_checked_when_it_is_made_is_checked_when_fields_are_replaced() -> None:
    with pytest.raises(ValueError, match="left"):
        Pair(-1)
    with pytest.raises(ValueError, match="left"):
        replace(Pair(1), left=-1)


def test_what_it_derives_is_found_once_and_not_copied() -> None:
    square = Square(3)

    assert square.area == 9
    assert vars(square) == {"area": 9}
    assert square.border == 12
    assert vars(replace(square, side=4)) == {}
    assert vars(replace(square, name="a")) == {"border": 12}
    for copied in (copy.copy(square), pickle.loads(pickle.dumps(Pair(1, (2,))))):
        assert copied in (square, Pair(1, (2,)))


def test_what_only_a_dataclass_can_do_is_refused() -> None:
    class Partly:
        side: int = field(default=0, compare=False)

    make: Any = struct(frozen=True)
    with pytest.raises(TypeError, match=r"Partly\.side"):
        make(Partly)
