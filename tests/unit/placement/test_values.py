"""Values that are frozen by promise are what frozen dataclasses are in all but their making."""

from __future__ import annotations

import pickle
import subprocess
import sys
from copy import copy, deepcopy
from dataclasses import fields, replace

import pytest

from placement.values import value
from placement.workload.request import SpareRule, TierCut

_ASSIGN = """
from placement.workload.request import TierCut
cut = TierCut("zone", 8)
try:
    cut.tier = "rack"
except AttributeError as error:
    print(type(error).__name__)
"""


@value(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


@value(frozen=True, slots=True)
class Alone:
    x: int


@value(frozen=True, slots=True)
class Nothing:
    pass


@value(frozen=True)
class Kept:
    x: int


def test_it_is_a_dataclass_whose_fields_are_its_identity() -> None:
    point = Point(3)

    assert point == Point(3, 0) != Point(3, 1)
    assert hash(point) == hash(Point(3, 0))
    assert [field.name for field in fields(Point)] == ["x", "y"]
    assert replace(point, y=4) == Point(3, 4)
    assert repr(point) == "Point(x=3, y=0)"


def test_slots_are_its_own_choice() -> None:
    assert not hasattr(Point(1), "__dict__")
    assert vars(Kept(1)) == {"x": 1}


def test_another_process_reads_what_one_wrote() -> None:
    cut = TierCut("zone", 8, (("dp", 8),))

    assert pickle.loads(pickle.dumps(cut)) == cut
    assert pickle.loads(pickle.dumps(SpareRule(share=0.02))) == SpareRule(share=0.02)


@pytest.mark.parametrize("one", [Point(3, 4), Alone(3), Nothing(), Kept(3)])
def test_any_number_of_fields_goes_there_and_back(one: object) -> None:
    again = pickle.loads(pickle.dumps(one))

    assert again == one
    assert type(again) is type(one)
    assert copy(one) == deepcopy(one) == one


def test_the_development_mode_forbids_what_mypy_forbids() -> None:
    def said(*flags: str) -> str:
        run = subprocess.run(
            [sys.executable, *flags, "-c", _ASSIGN], capture_output=True, text=True, check=True
        )
        return run.stdout.strip()

    assert said("-X", "dev") == "FrozenInstanceError"
    assert said() == ""
