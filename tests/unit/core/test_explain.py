"""Sentences that say why a job waits, and that are true."""

import pytest

from placement.fabric.constraints import Constraints
from placement.fabric.reader import from_spec
from scheduler.core import Reason, SchedulingOptions, State, Tenants, decide, explain
from scheduler.core.explain.explain import Reasons
from scheduler.core.explain.reason import Basis, DomainRoom, Obstacle, ObstacleKind
from scheduler.core.model.commands import Command, LoadTenants, MoveHost
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.model.plan import Start
from scheduler.core.names import DEFAULT_TENANT
from scheduler.core.policies.tenants import GuaranteedCell, Tenant
from scheduler.core.queue.policies import BUILT_IN
from scheduler.core.queue.verdict import WaitReason
from tests.build import (
    HOUR_NS,
    MINUTE_NS,
    cancel,
    cordon,
    end,
    fabric,
    fabric_spec,
    fail,
    loaded,
    run,
    schedule,
    started,
    submit,
)
from tests.cases import case

HOUR = 3_600
TEN = loaded(fabric(1, 1, 10))
BUSY = started(TEN, submit("a", 6, limit_s=2 * HOUR), submit("b", 4, limit_s=HOUR))


def why(state: State, name: str, now_ns: int = 0, policy: str = "production") -> Reason:
    return explain(state, name, now_ns, SchedulingOptions(policy=policy))


def test_a_job_that_waits_for_one_end() -> None:
    reason = why(run(BUSY, submit("c", 3)), "c", 15 * MINUTE_NS)
    assert reason == Reason(
        "c",
        WaitReason.HOSTS,
        "needs 3 hosts; 0 are free; b ends in 45 min by stated limits",
        needed=3,
        free=0,
        start_ns=HOUR_NS,
        waits_for=("b",),
        reserved_in=("z0",),
        missing=3,
        rooms=(DomainRoom("z0", 0, 0),),
        obstacles=(Obstacle(ObstacleKind.RUNNING, "b", 4, HOUR_NS, Basis.STATED),),
    )


def test_hosts_out_of_service() -> None:
    state = run(TEN, fail("z0-r0-h0"), cordon("z0-r0-h1"), submit("c", 9))
    reason = why(state, "c")
    assert reason.sentence == (
        "needs 9 hosts; 8 are free; it can start in 24 h 00 min: 1 host should be repaired by then"
    )
    assert reason.start_ns == 24 * HOUR_NS
    reason = why(run(state, cancel("c"), submit("d", 10)), "d")
    assert reason.sentence == (
        "needs 10 hosts; 8 are free; it needs hosts that are out of service (2 hosts)"
    )
    assert reason.start_ns is None


def test_cordoned_hosts_are_counted_by_the_reason_given() -> None:
    why_not = "slurm: refused: QOS"
    refused = [MoveHost(f"z0-r0-h{at}", HostMove.CORDON, why_not) for at in (1, 2)]
    state = run(TEN, fail("z0-r0-h0"), *refused, submit("c", 9))
    obstacles = why(state, "c").obstacles
    assert [(each.name, each.hosts) for each in obstacles] == [("slurm: refused: QOS", 2), ("", 1)]


def test_gangs_on_hosts_that_the_job_may_not_have_are_no_obstacles() -> None:
    labels = {"z0": {"pool": "a"}, "z1": {"pool": "b"}}
    state = loaded(from_spec(fabric_spec(2, 1, 3) | {"labels": labels}))
    first, second = (Constraints(labels=(("pool", pool),)) for pool in "ab")
    small = submit("a", 1, where=first, limit_s=HOUR // 2)
    state = started(state, small, submit("b", 2, where=second, limit_s=HOUR))
    reason = why(run(state, submit("c", 3, where=second)), "c")
    assert "; b ends in 1 h 00 min by stated limits" in reason.sentence
    assert reason.waits_for == ("b",)
    assert [each.name for each in reason.obstacles] == ["b"]


def test_a_job_that_those_ahead_leave_no_room() -> None:
    reason = why(run(TEN, submit("c", 8), submit("d", 4)), "d")
    assert reason.cause is WaitReason.BEHIND
    assert (
        reason.sentence
        == "would fit, but the next decision starts 1 job ahead of it and leaves 2 hosts"
    )


def behind(limit_s: int, hosts: int = 4) -> State:
    """`a` holds six of ten for two hours, `wide` waits for eight, `c` comes after."""
    state = started(TEN, submit("a", 6, limit_s=2 * HOUR))
    return run(state, submit("wide", 8), submit("c", hosts, limit_s=limit_s))


def test_a_job_that_would_delay_the_first() -> None:
    reason = why(behind(3 * HOUR), "c")
    assert reason.cause is WaitReason.BEHIND
    assert reason.waits_for == ("wide",)
    assert reason.sentence == (
        "would fit, but wide (8 hosts) is ahead of it; starting now would delay it;"
        " with a time limit of 2 h 00 min it would not"
    )
    assert reason.passes_s == 2 * HOUR
    assert reason.obstacles == (Obstacle(ObstacleKind.AHEAD, "wide", 8, 2 * HOUR_NS),)
    assert not reason.missing


@pytest.mark.parametrize("policy", BUILT_IN)
def test_due_is_what_decide_starts(policy: str) -> None:
    for hosts in [1, 2, 3, 4, 5]:
        for limit_s in [1, 2 * HOUR, 2 * HOUR + 1]:
            with case(hosts=hosts, limit_s=limit_s):
                state = behind(limit_s, hosts)
                limits = SchedulingOptions(policy=policy)
                begun = {a.name for a in decide(state, 0, limits).actions if isinstance(a, Start)}
                due = {
                    n
                    for n in state.index.queue
                    if explain(state, n, 0, limits).cause is WaitReason.DUE
                }
                assert due == begun


def test_jobs_that_do_not_wait() -> None:
    assert why(BUSY, "a").sentence == "a is running"
    assert why(run(BUSY, end("a")), "a").sentence == "a is completed"
    assert why(run(BUSY, cancel("a")), "a").sentence == "a is cancelled"
    assert why(run(BUSY, fail("z0-r0-h0")), "a").cause is WaitReason.NOT_WAITING


def test_hosts_that_await_their_agents_have_not_failed_and_come_at_no_known_time() -> None:
    state = schedule(run(TEN, fail("z0-r0-h0", "agent-awaited"), submit("a", 10)))
    reason = why(state, "a")
    assert reason.sentence.endswith("out of service (1 host, 1 of them awaiting agents)")
    assert reason.start_ns is None
    assert state.faults == TEN.faults
    back = schedule(run(state, fail("z0-r0-h0", "agent-back")))
    assert why(back, "a").sentence == "a is running"


LIMITED = Tenants(
    (Tenant("small", limit_gpus=32), Tenant("owner", guaranteed_gpus=32), Tenant(DEFAULT_TENANT))
)


def with_tenants(*commands: Command) -> State:
    return started(run(TEN, LoadTenants(LIMITED)), *commands)


def test_a_limit_names_the_ends_that_make_room() -> None:
    state = with_tenants(
        submit("a", 1, tenant="small", limit_s=HOUR),
        submit("b", 2, tenant="small", limit_s=2 * HOUR),
        submit("c", 1, limit_s=60),
    )
    reason = why(run(state, submit("d", 3, tenant="small")), "d")
    assert reason.cause is WaitReason.LIMIT
    assert reason.sentence == (
        "needs 3 hosts; tenant small holds 3 of its limit of 4;"
        " a, b end in 2 h 00 min by stated limits"
    )
    assert (reason.start_ns, reason.waits_for, reason.missing) == (2 * HOUR_NS, ("a", "b"), 2)
    assert reason.obstacles[0] == Obstacle(ObstacleKind.LIMIT, "small", 3)
    assert {obstacle.name for obstacle in reason.obstacles} == {"small", "a", "b"}


def test_obstacles_say_whose_guarantees_are_and_what_ends_first() -> None:
    state = with_tenants(submit("a", 4, limit_s=HOUR))
    reason = why(run(state, submit("d", 3)), "d")
    assert reason.cause is WaitReason.PROMISES
    assert "the rest is guaranteed to others; a ends in 1 h 00 min" in reason.sentence
    assert (reason.start_ns, reason.waits_for, reason.missing) == (HOUR_NS, ("a",), 1)
    assert reason.obstacles[0] == Obstacle(ObstacleKind.GUARANTEE, "owner", 4)


def test_rooms_tell_what_is_free_from_what_may_be_used() -> None:
    keeps = Tenant("keeper", cells=(GuaranteedCell("zone", 1, 3),))
    state = run(loaded(fabric(2, 1, 4)), LoadTenants(Tenants((keeps, Tenant(DEFAULT_TENANT)))))
    state = run(state, cordon("z1-r0-h3"), submit("d", 5))
    reason = why(state, "d")
    assert sum(room.free for room in reason.rooms) == 7
    assert sum(room.usable for room in reason.rooms) == 4
    assert reason.missing == 1


def test_every_way_to_know_an_end_is_told_apart() -> None:
    state = started(TEN, submit("a", 3, limit_s=60), submit("b", 3), submit("c", 4, limit_s=HOUR))
    reason = why(run(state, submit("d", 10)), "d", 2 * MINUTE_NS)
    by_name = {obstacle.name: obstacle.basis for obstacle in reason.obstacles}
    assert by_name == {"a": Basis.OUTRUN, "b": Basis.ASSUMED, "c": Basis.STATED}


def test_one_walk_gives_every_reason_in_any_order() -> None:
    state = run(BUSY, *(submit(f"w{i}", 2 + i) for i in range(5)))
    reasons = Reasons(state, 0, SchedulingOptions())
    for name in ("w2", "w0", "w4", "w2", "a"):
        assert reasons.of(name) == why(state, name)
    assert reasons.of("w2") is reasons.of("w2")
