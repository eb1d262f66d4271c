"""A replay that is taken apart between any two of its steps goes on as if it had not been."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core import Policy, SchedulingOptions
from scheduler.core.policies.costs import Costs
from scheduler.eventlog import snapshots
from simulator.failures import Outage
from simulator.folds import Folds
from simulator.log import Log
from simulator.run import Replay, Setting
from simulator.telling import Telling
from simulator.timing import load_times
from simulator.traces.record import SECOND_NS, TraceJob
from tests.property.test_replay import HOSTS, Asked, outages, trace, workloads
from tests.replays import machine

SLOW = load_times("default,detection.default_s=3,checkpoint.interval_s=4")


@dataclass(frozen=True, slots=True)
class Stand:
    """All of a replay, as it is written down."""

    kept: str
    state: bytes
    log: str
    is_over: bool


class Cut(Exception):
    pass


def run(
    setting: Setting,
    jobs: list[TraceJob],
    failing: list[Outage],
    steps: int | None = None,
    before: Stand | None = None,
) -> Stand:
    """To its end, or for so many steps."""
    text = StringIO()
    telling = Telling(setting.fabric, has_story=True)
    telling.log = Log(text)
    folds = Folds(telling)
    replay = Replay(setting, iter(jobs), folds.feed, iter(failing))
    if before:
        kept, (state, _) = json.loads(before.kept), snapshots.decode(before.state)
        replay.go_on(kept, state)
        folds.go_on(kept, state, before.log.encode())
        text.write(before.log)
    left = steps

    def step() -> None:
        nonlocal left
        if left is not None:
            left -= 1
            if not left and not replay.is_over:
                raise Cut

    with suppress(Cut):
        replay.run(step)
    everything: dict[str, Any] = {**replay.kept(), **folds.kept(), "digest": telling.digest()}
    state_bytes = snapshots.encode(replay.state, replay.now_ns)
    return Stand(json.dumps(everything), state_bytes, text.getvalue(), replay.is_over)


@pytest.mark.parametrize("policy", list(Policy))
@settings(max_examples=25, deadline=None)
@given(
    jobs=workloads(),
    failing=outages(),
    decision_s=st.sampled_from([0, 3]),
    is_timed=st.booleans(),
    until_s=st.sampled_from([None, 30]),
    cuts=st.lists(st.integers(1, 60), min_size=1, max_size=3),
)
def test_wherever_it_is_cut(
    policy: Policy,
    jobs: list[Asked],
    failing: list[Outage],
    decision_s: int,
    is_timed: bool,
    until_s: int | None,
    cuts: list[int],
) -> None:
    """Afterwards everything that is known of it is the same: the log, all figures, the
    state, and what would come next."""
    times = SLOW if is_timed else None
    setting = Setting(
        machine(HOSTS),
        SchedulingOptions(policy=policy),
        times.costs if times else Costs(7, restart_s=2),
        decision_ns=decision_s * SECOND_NS,
        times=times,
        until_ns=None if until_s is None else until_s * SECOND_NS,
    )
    whole = run(setting, trace(jobs), failing)

    stand = None
    for steps in cuts:
        if stand is None or not stand.is_over:  # nobody writes down what is over
            stand = run(setting, trace(jobs), failing, steps, stand)
    if stand and not stand.is_over:
        stand = run(setting, trace(jobs), failing, before=stand)
    assert stand == whole
