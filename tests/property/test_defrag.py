"""Moves free what they say, at no larger cut, and none of them is one too many."""

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core import SchedulingOptions, State, replay
from scheduler.core.defrag.proposal import DefragProposal, propose
from scheduler.core.model.commands import Command
from scheduler.core.policies.costs import Costs
from scheduler.core.tenancy.quota import domain_masks
from tests.build import committed, cordon, end, exactly, fabric, fail, loaded, submit
from tests.property.driver import reached

EMPTY = loaded(fabric(3, 2, 3))
HOSTS = st.sampled_from(EMPTY.loaded_fabric.hosts)
NAMES = st.sampled_from("abcdefghijkl")
COMMANDS = st.one_of(
    st.builds(submit, NAMES, st.integers(1, 4), spares=st.sampled_from((exactly(0), exactly(1)))),
    st.builds(submit, NAMES, st.integers(1, 7)),
    st.builds(end, NAMES),
    st.builds(fail, HOSTS),
    st.builds(cordon, HOSTS),
)
MASKS = domain_masks(EMPTY.loaded_fabric, "zone")


def freed(state: State, found: DefragProposal, without: int | None = None) -> int:
    """Hosts free in the proposal's domain after its moves, all but one of them if asked."""
    moves = tuple(m.swap for at, m in enumerate(found.moves) if at != without)
    plan = found.plan.__class__(found.version, moves)
    after = replay(committed(state, plan, 10**15), state) if moves else state
    zones = state.loaded_fabric.tiers[0].domains
    return (after.free & MASKS[zones.index(found.domain)]).bit_count()


@settings(max_examples=40)
@given(st.lists(COMMANDS, min_size=4, max_size=20), st.integers(2, 6))
def test_a_proposal_holds(commands: list[Command], wanted: int) -> None:
    state = reached(EMPTY, commands, SchedulingOptions(), pace_ns=10**12)
    found = propose(state, wanted, 10**15, SchedulingOptions(), Costs())
    most = max((state.free & mask).bit_count() for mask in MASKS)
    assert found.sentence
    if not found.moves:
        assert bool(found.domain) == (most >= wanted)
        return
    assert most < wanted <= found.free_after == freed(state, found)
    assert all(freed(state, found, without=at) < wanted for at in range(len(found.moves)))
    after = replay(committed(state, found.plan, 10**15), state)
    assert after.free.bit_count() == state.free.bit_count()
    moved = {move.swap.name for move in found.moves}
    for name, job in state.jobs.items():
        if name not in moved:
            assert after.jobs[name] == job
            continue
        now = after.jobs[name]
        assert now.attempt == job.attempt + 1
        pairs = zip(now.present.cuts, job.present.cuts, strict=True)
        assert all(new.bytes_per_step <= old.bytes_per_step for new, old in pairs)
