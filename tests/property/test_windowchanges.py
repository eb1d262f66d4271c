"""Random lives: a watch of windows is told of every window that came, changed or went."""

from __future__ import annotations

import pytest

from scheduler.core import State, apply
from scheduler.core.fold.effects import WindowChange, WindowChangeKind, effects
from scheduler.core.model.lifecycle import WindowState
from tests.property.test_hostchanges import a_log

GONE = {WindowChangeKind.CLOSED, WindowChangeKind.REMOVED}


@pytest.mark.parametrize("seed", range(8))
def test_no_change_of_a_window_is_left_out_and_none_is_made_up(seed: int) -> None:
    state, told = State.empty(), set()
    for event in a_log(seed):
        after = apply(state, event)
        done = effects(state, event, after)
        change = next((e for e in done if isinstance(e, WindowChange)), None)
        was, now = dict(state.windows), dict(after.windows)
        expected = [name for name in {*was, *now} if was.get(name) != now.get(name)]
        assert len(expected) <= 1
        assert [change.booking.window.name] * len(expected) == expected if change else not expected
        if change is not None:
            name = change.booking.window.name
            assert (change.version, change.time_ns) == (after.version, event.time_ns)
            assert change.before == was.get(name)
            assert (change.kind in GONE) == (name not in now)
            assert (change.booking.state is WindowState.OVER) == (name not in now)
            assert (change.kind is WindowChangeKind.CREATED) == (name not in was)
            told.add(change.kind)
        state = after
    assert {WindowChangeKind.CREATED, WindowChangeKind.OPENED} <= told
