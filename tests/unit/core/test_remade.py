"""A next version has the changes and shares all else with the one before."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from scheduler.core import State
from scheduler.core.remade import remade
from tests.build import loaded, run, submit

STATE = run(loaded(), submit("a"))


def test_it_is_what_replace_makes_of_it() -> None:
    changed = remade(STATE, version=99, held=5)

    assert changed == replace(STATE, version=99, held=5)
    assert (changed.version, changed.held) == (99, 5)
    others = {field.name for field in fields(State)} - {"version", "held"}
    assert all(getattr(changed, name) is getattr(STATE, name) for name in others)


def test_the_version_before_stays_as_it_was() -> None:
    before = replace(STATE)
    remade(STATE, version=99)

    assert before == STATE


def test_a_field_that_is_not_there_is_an_error() -> None:
    with pytest.raises(TypeError, match="State has no versoin"):
        remade(STATE, **{"versoin": 3})
