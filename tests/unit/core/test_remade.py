"""A next version has the changes and shares all else with the one before."""

import dataclasses
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import partial
from typing import Any

import pytest

from muster.structs import Derived, replace
from tests.build import loaded, run, submit

STATE = run(loaded(), submit("a"))


def test_a_field_that_is_not_there_is_an_error() -> None:
    with pytest.raises(TypeError, match="has no field 'versoin'"):
        replace(STATE, **{"versoin": 3})


@pytest.fixture
def many_switches() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("many_switches")
def test_another_thread_may_find_something_out_meanwhile() -> None:
    """A server keeps a snapshot or decides in one thread while another applies events."""
    job = dataclasses.replace(STATE.jobs["a"])
    (name, *_) = (name for name, prop in vars(type(job)).items() if isinstance(prop, Derived))

    def find() -> None:
        for _ in range(20_000):
            job.__dict__.pop(name, None)
            getattr(job, name)

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(find)
        while not other.done():
            assert replace(job, priority=7).priority == 7
        other.result()


class _Reads:
    """Stands in for a value and writes down which of its attributes are asked for."""

    def __init__(self, value: object) -> None:
        self._value, self.read = value, set[str]()

    def __getattr__(self, name: str) -> object:
        self.read.add(name)
        prop = getattr(type(self._value), name, None)
        if isinstance(prop, property):
            assert prop.fget is not None
            return prop.fget(self)
        function = getattr(type(self._value), name, None)
        return partial(function, self) if callable(function) else getattr(self._value, name)


@pytest.mark.parametrize(
    "value", [STATE, STATE.index, STATE.jobs["a"]], ids=["state", "index", "job"]
)
def test_what_is_found_out_comes_from_the_fields_that_it_names(value: Any) -> None:
    names = {field.name for field in fields(value)}
    found = {name: prop for name, prop in vars(type(value)).items() if isinstance(prop, Derived)}
    assert found
    for prop in found.values():
        reads = _Reads(value)
        prop.find(reads)
        through = {s for name in reads.read & found.keys() for s in found[name].sources}
        assert (reads.read & names) | through <= prop.sources <= names


def test_what_was_found_out_is_kept_until_what_it_comes_from_changes() -> None:
    before = dataclasses.replace(STATE)
    free = before.free

    assert replace(before, version=99).__dict__["free"] is free
    assert "free" not in replace(before, index=replace(before.index, held=5)).__dict__
    assert replace(before, index=replace(before.index, held=1)).free == free & ~1
