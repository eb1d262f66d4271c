"""The cheapest moves, their price, and what commit checks again."""

from dataclasses import replace

import pytest

from placement.fabric import hostset
from placement.fabric.constraints import Constraints
from scheduler.core import Conflict, JobState, SchedulingOptions, State, Tenants, commit, replay
from scheduler.core.defrag.proposal import (
    DefragProposal,
    MoveCandidate,
    candidates,
    choose_cover,
    propose,
)
from scheduler.core.model.commands import LoadTenants
from scheduler.core.model.job import SECOND_NS
from scheduler.core.names import DEFAULT_TENANT
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.tenants import GuaranteedCell, Tenant
from scheduler.core.tenancy.quota_check import Quotas
from tests.build import (
    committed,
    end,
    exactly,
    fabric,
    flat,
    loaded,
    run,
    running,
    schedule,
    submit,
)

HOUR_NS = 3_600 * SECOND_NS
EMPTY = loaded(fabric(2, 2, 2))


def asked(state: State, wanted: int) -> DefragProposal:
    return propose(state, wanted, HOUR_NS, SchedulingOptions(), Costs())


def scattered() -> State:
    """a and b in one rack of zone 0, e in one of zone 1: a rack free in each."""
    state = EMPTY
    for at, name in enumerate("abcd"):
        state = schedule(run(state, submit(name, 1), now_ns=at), at)
    state = schedule(run(state, submit("e", 2)))
    return run(state, end("c"), end("d"))


def test_the_cheaper_zone_is_freed_and_no_gang_too_many_is_moved() -> None:
    state = scattered()
    found = asked(state, 3)
    assert [move.swap.name for move in found.moves] == ["a"]
    assert (found.free_before, found.free_after) == (2, 3)
    whole = asked(state, 4)
    assert whole.sentence == "frees 4 hosts in z1 for 1 move, 1.3 GPU-hours"
    assert [move.swap.name for move in whole.moves] == ["e"]


def test_moves_let_the_job_start_that_needed_them() -> None:
    state = scattered()
    found = asked(state, 4)
    after = replay(committed(state, found.plan, HOUR_NS), state)
    assert after.jobs["e"].attempt == 2
    started = schedule(run(after, submit("big", 4)), HOUR_NS)
    assert started.jobs["big"].present.cuts[0].bytes_per_step == 0
    assert running(started) == {"a", "b", "e", "big"}


def test_the_price_is_work_since_the_last_checkpoint_and_a_restart() -> None:
    job = schedule(run(EMPTY, submit("a", 2))).jobs["a"]
    now_ns = 2_400 * SECOND_NS
    state = replace(EMPTY, jobs={"a": job}, index=replace(EMPTY.index, running=("a",)))
    for costs, lost_s in ((Costs(1_000, 100), 400 + 100), (Costs(0, 100), 100)):
        assert [c.lost_gpu_s for c in candidates(state, job.allocation, now_ns, costs)] == [
            lost_s * 16
        ]


def test_the_cover_of_least_price_is_found() -> None:
    job = schedule(run(EMPTY, submit("a", 1))).jobs["a"]
    gangs = [
        MoveCandidate(job, tuple(range(n)), price) for n, price in ((3, 9), (2, 4), (2, 4), (1, 3))
    ]
    assert choose_cover(gangs, 4) == [gangs[1], gangs[2]]
    assert choose_cover(gangs, 3) == [gangs[1], gangs[3]]
    assert choose_cover(gangs, 8) == gangs
    assert choose_cover(gangs, 9) is None


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        (2, "nothing to move: z0 has 2 hosts free"),
        (5, "no zone has 5 hosts in service"),
    ],
)
def test_when_no_move_is_called_for(wanted: int, sentence: str) -> None:
    found = asked(scattered(), wanted)
    assert (found.sentence, found.moves) == (sentence, ())


def test_moves_make_no_hosts() -> None:
    state = schedule(run(EMPTY, submit("a", 3), submit("b", 3)))
    assert asked(state, 3).sentence == "only 2 hosts are free in all, and moves free no more"
    assert asked(loaded(flat(3)), 1).sentence.startswith("nothing to move")


def split() -> State:
    """Two hosts free in different racks of zone 0, and one rack in zone 1 with e."""
    state = EMPTY
    for name in "abcd":
        state = schedule(run(state, submit(name, 1)))
    state = schedule(run(state, submit("e", 2)))
    return run(state, end("b"), end("d"))


def test_a_gang_whose_cut_would_grow_stays() -> None:
    """e alone would be cheaper, but lies in one rack now and would lie in two."""
    assert [move.swap.name for move in asked(split(), 4).moves] == ["a", "c"]


def test_where_every_move_would_cut_more_none_is_proposed() -> None:
    """z0 and z1 have a rack of two hosts busy, and one free host in each rack."""
    state = loaded(fabric(2, 2, 3))
    for name in ("a", "b", "c", "d"):
        state = schedule(run(state, submit(name, 2)))
    assert asked(state, 3).sentence == (
        "no moves free 3 hosts in one zone without a larger cut or a longer step for the gangs"
        " that move"
    )


def test_hosts_kept_for_others_are_no_way_out() -> None:
    before = asked(scattered(), 4)
    keeper = Tenant("keeper", cells=(GuaranteedCell("rack", 1),))
    state = run(scattered(), LoadTenants(Tenants((keeper, Tenant(DEFAULT_TENANT)))))
    kept = Quotas(state).withhold_for_cells(state.free)["keeper"]
    assert kept & hostset.of(m.joined for m in before.moves[0].swap.moves)
    now = asked(state, 4)
    assert [move.swap.name for move in now.moves] == ["a", "b"]
    assert not kept & hostset.of(m.joined for move in now.moves for m in move.swap.moves)
    answer = commit(state, before.plan, HOUR_NS)
    assert isinstance(answer, Conflict)
    assert "guaranteed to others meanwhile" in answer.stale[0].detail


def test_what_changed_meanwhile_is_a_conflict() -> None:
    state = scattered()
    plan = asked(state, 4).plan
    assert isinstance(commit(run(state, end("e")), plan, HOUR_NS), Conflict)
    taken = schedule(run(state, submit("x", 4)))
    assert taken.jobs["x"].state is JobState.RUNNING
    assert isinstance(commit(taken, plan, HOUR_NS), Conflict)


def test_a_gang_is_not_moved_away_from_spares_that_have_to_lie_beside_it() -> None:
    near = submit("near", 1, spares=exactly(1), where=Constraints(same="rack"))
    state = schedule(run(EMPTY, near))
    domain = EMPTY.loaded_fabric.domain(state.jobs["near"].hosts[0], 0)
    assert not asked(state, 4).moves or domain != asked(state, 4).domain
    state = schedule(run(state, submit("other", 1)))
    for move in asked(state, 4).moves:
        assert move.swap.name != "near"
