"""Random lives: a watch of hosts is told of every host that an operator would see changed."""

from __future__ import annotations

from random import Random

import pytest

from scheduler.core import Policy, State, apply
from scheduler.core.fold.effects import HostsChange, effects
from scheduler.core.model.events import Event, HostMoved
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import MOVERS, Mover
from scheduler.core.model.state import Host
from tests.property.test_machine import any_command
from tests.property.test_windows import Booked, any_window


def seen(state: State) -> dict[int, tuple[Host, str | None]]:
    """Every host, asked one by one."""
    if state.fabric is None:
        return {}
    hosts = range(state.fabric.host_count)
    return {index: (state.shown(index), state.host(index).cordon) for index in hosts}


def a_log(seed: int) -> list[Event]:
    random = Random(seed)
    cluster = Booked(list(Policy)[seed % len(Policy)])
    for _ in range(120):
        cluster.send(any_command(random))
        if random.random() < 0.4:
            cluster.send(any_window(random, cluster.now_ns))
        cluster.now_ns += random.choice((0, 1, 10, 30)) * SECOND_NS
        if random.random() < 0.6:
            cluster.schedule()
    return cluster.log


@pytest.mark.parametrize("seed", range(4))
def test_every_move_of_a_host_has_a_cause_that_the_lifecycle_allows(seed: int) -> None:
    moves = [event for event in a_log(seed) if isinstance(event, HostMoved)]
    assert [m for m in moves if m.cause not in MOVERS[m.move]] == []
    assert all((m.cause is Mover.SIGNAL) == bool(m.signal) for m in moves)
    assert {m.cause for m in moves} >= {Mover.OPERATOR, Mover.SIGNAL}


@pytest.mark.parametrize("seed", range(8))
def test_no_change_of_a_host_is_left_out_and_none_is_made_up(seed: int) -> None:
    state, told = State.empty(), 0
    for event in a_log(seed):
        after = apply(state, event)
        done = effects(state, event, after)
        change = next((e for e in done if isinstance(e, HostsChange)), None)
        before, now = seen(state), seen(after)
        expected = tuple(i for i in now if before and before[i] != now[i])
        assert (change.indices if change else ()) == expected, event
        assert change is None or (change.version, change.time_ns) == (after.version, event.time_ns)
        told += len(expected)
        state = after
    assert told > 20
