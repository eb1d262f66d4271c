"""The hosts that affinity leaves a job: in decisions, reservations, commits, swaps and dry runs."""

from dataclasses import replace

import pytest

from placement.fabric import hostset
from placement.fabric.constraints import Constraints
from scheduler.core import (
    JobState,
    Plan,
    SchedulingOptions,
    State,
    commit,
    decide,
    explain,
)
from scheduler.core.model.plan import Move, Start, Swap
from scheduler.core.policies.affinity import Affinity
from scheduler.core.queue.verdict import WaitReason
from tests.build import HOUR_NS, end, fabric, loaded, on, refused, run, schedule, spec, submit

ALONE = Affinity(exclusive="rack")
FABRIC = fabric(zones=2, racks=2, hosts=2)


def domains(state: State, name: str, tier: int) -> set[str]:
    job = state.jobs[name]
    return {FABRIC.domain(host, tier) for host in job.hosts + job.spares}


def is_running(state: State, name: str) -> bool:
    return state.jobs[name].state is JobState.RUNNING


def test_a_pattern_does_not_keep_a_job_from_itself() -> None:
    apart = Affinity(avoid=(("rack", ("eval-*",)),))
    state = schedule(run(loaded(), *(submit(f"eval-{i}", 1, affinity=apart) for i in range(5))))
    racks = [domains(state, f"eval-{i}", 1).pop() for i in range(4)]
    assert len(set(racks)) == 4
    assert not is_running(state, "eval-4")


def test_near_is_a_wish_and_the_answer_says_how_it_was_met() -> None:
    state = schedule(run(loaded(), submit("x", 3), submit("y", 3)))
    state = schedule(run(state, submit("n", 1, affinity=Affinity(near="y"))))
    assert domains(state, "n", 0) == domains(state, "y", 0)
    assert any("all hosts lie in its zones" in note for note in state.jobs["n"].present.notes)
    state = schedule(run(state, submit("m", 1, affinity=Affinity(near="y"))))
    assert is_running(state, "m")
    assert any("its zones have too little room" in note for note in state.jobs["m"].present.notes)


def test_near_a_job_that_holds_nothing_is_said() -> None:
    state = schedule(run(loaded(), submit("n", 1, affinity=Affinity(near="nobody"))))
    assert any("it holds no hosts" in note for note in state.jobs["n"].present.notes)


@pytest.mark.parametrize(
    ("affinity", "where", "field"),
    [
        (Affinity(exclusive="pod"), Constraints(), "constraints.exclusive"),
        (Affinity(avoid=(("pod", ("a",)),)), Constraints(), "constraints.avoid.pod"),
        (Affinity(avoid=(("zone", ("a",)),), near="a"), Constraints(), "constraints.avoid.zone"),
        (Affinity(), Constraints(same="pod"), "constraints.same"),
        (Affinity(), Constraints(labels=(("gpu", "x"),)), "constraints.hosts.gpu"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    affinity: Affinity, where: Constraints, field: str
) -> None:
    answer = refused(loaded(), submit("j", 1, where=where, affinity=affinity))
    assert [violation.field for violation in answer.violations] == [field]


def test_a_stale_start_beside_an_exclusive_job_falls() -> None:
    state = run(loaded(), submit("other", 1))
    old = Plan(state.version, (Start("other", on(FABRIC, state.jobs["other"].spec.request, 1)),))
    state = schedule(
        run(state, submit("alone", 1, affinity=ALONE, priority=1)), options=SchedulingOptions()
    )
    hosts = state.jobs["alone"].hosts
    beside = hosts[0] ^ 1  # the other host of its rack
    plan = replace(old, actions=(Start("late", on(FABRIC, spec("late").request, beside)),))
    answer = commit(run(state, submit("late", 1)), plan, 0)
    assert "closed by exclusive or avoid" in answer.stale[0].detail


def test_a_swap_out_of_the_one_domain_falls() -> None:
    state = schedule(run(loaded(), submit("a", 3, where=Constraints(same="zone"))))
    job = state.jobs["a"]
    away = next(h for h in range(8) if FABRIC.domain(h) != FABRIC.domain(job.hosts[0]))
    moved = (away, *job.hosts[1:])
    swap = Swap("a", (Move(0, job.hosts[0], away),), on(FABRIC, job.spec.request, *moved).cuts)
    state = replace(state, index=replace(state.index, unhealthy=hostset.of(job.hosts[:1])))
    answer = commit(state, Plan(state.version, (swap,)), 0)
    assert "must be in one" in answer.stale[0].detail


def test_a_longer_job_does_not_take_the_only_rack_that_will_do() -> None:
    """d needs a whole rack: r0 of z0 in an hour. Enough hosts would stay free by number."""
    jobs = [submit("a", 1, limit_s=3600), *(submit(n, 1, limit_s=360_000) for n in "bcf")]
    apart = Affinity(avoid=(("rack", tuple("abcf")),))
    state = loaded()
    for job in jobs:
        job = replace(job, spec=replace(job.spec, affinity=apart))
        state = schedule(run(state, job))
    state = schedule(run(state, submit("d", 2, where=Constraints(same="rack"), limit_s=60)))
    assert not is_running(state, "d")
    rack = domains(state, "a", 1)
    state = schedule(run(state, *(submit(f"long{i}", 1, limit_s=360_000) for i in range(4))))
    longs = [n for n in state.index.running if n.startswith("long")]
    assert len(longs) == 3
    assert all(domains(state, name, 1) != rack for name in longs)
    state = schedule(run(state, end("a"), now_ns=HOUR_NS), HOUR_NS)
    assert domains(state, "d", 1) == rack


def test_an_exclusive_job_that_outlasts_a_reservation_waits() -> None:
    state = schedule(run(loaded(), submit("a", 4, limit_s=3600)))
    state = run(state, submit("big", 8, limit_s=60), submit("alone", 1, affinity=ALONE))
    reason = explain(state, "alone", 0, SchedulingOptions())
    assert decide(state, 0, SchedulingOptions()).actions == ()
    assert reason.cause is WaitReason.BEHIND
    assert "big (8 hosts) is ahead of it" in reason.sentence


def test_a_job_that_lacks_room_for_its_shape_is_told_so() -> None:
    apart = Affinity(avoid=(("rack", ("s*",)),))
    state = loaded()
    for i in range(4):
        state = schedule(run(state, submit(f"s{i}", 1, limit_s=3600, affinity=apart)))
    state = run(state, submit("d", 2, where=Constraints(same="rack")))
    reason = explain(state, "d", 0, SchedulingOptions())
    assert reason.cause is WaitReason.CONSTRAINTS
    assert reason.start_ns == HOUR_NS
    assert reason.sentence == (
        "needs 2 hosts in one rack; 4 are free, at most 1 in one rack;"
        " s0, s1, s2 and 1 more end in 1 h 00 min by stated limits"
    )
