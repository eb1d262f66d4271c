"""Launches: no state in any order of steps breaks an invariant, from each all comes right, and
every rule that is switched off shows."""

from collections.abc import Iterator

import pytest

from drills.protocol.launch_scopes import (
    AGENT,
    BLACKOUT,
    CUT,
    FREEZE,
    LAUNCH_MUTATIONS,
    QUICK,
    SUCCESSION,
    TWO_TERMS,
    WIDE,
    LaunchMutation,
)
from drills.protocol.launches import Launches, LaunchScope
from drills.protocol.search import search
from drills.protocol.stepped import stepped_clock

WIDE_CPU_S = 40.0


@pytest.fixture(autouse=True)
def _clock() -> Iterator[None]:
    with stepped_clock():
        yield


_MUTATIONS = [
    pytest.param(each, id=each.name, marks=[pytest.mark.slow] if each.scope is TWO_TERMS else [])
    for each in LAUNCH_MUTATIONS
]


@pytest.mark.parametrize("scope", QUICK, ids=lambda scope: scope.name)
def test_all_states_hold_and_come_right(scope: LaunchScope) -> None:
    """Where all hosts are reached, no two attempts of a job run at all."""
    found = search(Launches(scope, is_strict=True))
    assert found.counterexample is None, str(found.counterexample)
    assert found.is_whole
    assert found.settled == found.states > 100


def test_no_gang_that_runs_is_stopped_where_the_servers_alone_are_cut_off() -> None:
    """In the states near the start; the slow tests look at more."""
    found = search(Launches(BLACKOUT), most_cpu_s=1.0, settle_every=3)
    assert found.counterexample is None, str(found.counterexample)
    assert found.states > 100


@pytest.mark.parametrize(
    ("scope", "steps"),
    [
        (CUT, 12),
        (FREEZE, 12),
        (AGENT, 11),
        pytest.param(SUCCESSION, 16, marks=pytest.mark.slow),
    ],
)
def test_two_attempts_may_run_where_a_host_is_not_reached(scope: LaunchScope, steps: int) -> None:
    """For as long as its lease: what they may not do is told by muster.progress."""
    found = search(Launches(scope, is_strict=True), settle_every=0)
    assert found.counterexample is not None
    assert len(found.counterexample.steps) == steps


@pytest.mark.parametrize("mutation", _MUTATIONS)
def test_a_rule_that_is_off_shows_in_so_many_steps(
    mutation: LaunchMutation, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation.patch(monkeypatch)
    found = search(Launches(mutation.scope), settle_every=int(mutation.is_settled))
    assert found.counterexample is not None
    assert found.counterexample.fault == mutation.fault
    assert len(found.counterexample.steps) == mutation.steps, str(found.counterexample)


@pytest.mark.slow
@pytest.mark.parametrize("scope", WIDE, ids=lambda scope: scope.name)
def test_wide_scopes_hold(scope: LaunchScope) -> None:
    found = search(Launches(scope), most_cpu_s=WIDE_CPU_S, settle_every=3)
    assert found.counterexample is None, str(found.counterexample)
    assert found.states > 3_000
