"""The log, its leaders and callers: no state in any order of steps breaks an invariant, and every
rule that is switched off shows."""

import pytest

from drills.protocol.leader_scopes import MUTATIONS, QUICK, WIDE, Mutation
from drills.protocol.leaders import Leaders, Scope
from drills.protocol.search import search

WIDE_CPU_S = 120.0


@pytest.mark.parametrize("scope", QUICK, ids=lambda scope: scope.name)
def test_all_states_hold_and_come_right(scope: Scope) -> None:
    found = search(Leaders(scope))
    assert found.counterexample is None, str(found.counterexample)
    assert found.is_whole
    assert found.settled == found.states > 400


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_rule_that_is_off_shows_in_so_many_steps(mutation: Mutation) -> None:
    found = search(Leaders(mutation.scope, mutation.rules), settle_every=0)
    if not mutation.steps:  # another rule does its work
        assert found.is_whole
        return
    assert found.counterexample is not None
    assert found.counterexample.fault == mutation.fault
    assert len(found.counterexample.steps) == mutation.steps, str(found.counterexample)


@pytest.mark.slow
@pytest.mark.parametrize("scope", WIDE, ids=lambda scope: scope.name)
def test_wide_scopes_hold(scope: Scope) -> None:
    found = search(Leaders(scope), most_cpu_s=WIDE_CPU_S)
    assert found.counterexample is None, str(found.counterexample)
    assert found.states > 15_000
