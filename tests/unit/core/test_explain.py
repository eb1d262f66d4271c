"""Sentences that say why a job waits, dry runs, what-ifs and slots: true when tried in earnest."""

from dataclasses import replace

import pytest

from placement.errors import BadInput
from placement.fabric.constraints import Constraints
from placement.fabric.reader import from_spec
from placement.workload.request import AUTO, Insufficient, Limits, Undecided
from scheduler.core import (
    DryRun,
    JobState,
    Reason,
    SchedulingOptions,
    State,
    decide,
    dry_run,
    explain,
)
from scheduler.core.admission.admit import Code
from scheduler.core.explain.explain import Reasons
from scheduler.core.explain.reason import Basis, DomainRoom, Obstacle, ObstacleKind
from scheduler.core.explain.slots import Asker, Slots, slots
from scheduler.core.explain.whatif import WhatIf, what_if
from scheduler.core.model.commands import Command, LoadTenants, MoveHost, SubmitJob
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.model.plan import Start
from scheduler.core.names import DEFAULT_TENANT
from scheduler.core.policies.spares import SparePolicy
from scheduler.core.policies.tenants import OPEN, GuaranteedCell, PriorityClass, Tenant, Tenants
from scheduler.core.queue.policies import BUILT_IN
from scheduler.core.queue.verdict import WaitReason
from tests.build import (
    HOUR_NS,
    MINUTE_NS,
    cancel,
    cordon,
    drain,
    end,
    fabric,
    fabric_spec,
    fail,
    hosts_of,
    loaded,
    run,
    schedule,
    settled,
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


# --- dry runs: what they say, decisions say --------------------------------------


RACKS_OF_8 = fabric(zones=2, racks=4, hosts=8)


def tried(state: State, command: SubmitJob, options: SchedulingOptions | None = None) -> DryRun:
    outcome = dry_run(state, command, options or SchedulingOptions(), 0)
    assert isinstance(outcome, DryRun), outcome
    return outcome


def decided(state: State, command: SubmitJob) -> Start:
    """What the next decision proposes once the job is submitted."""
    plan = decide(run(state, command), 0, SchedulingOptions())
    (start,) = (a for a in plan.actions if isinstance(a, Start) and a.name == command.spec.name)
    return start


@pytest.mark.parametrize(("racks", "spares"), [(0, 3), (1, 11)])
def test_spares_follow_the_rule_of_the_tenants_file(racks: int, spares: int) -> None:
    rule = SparePolicy(0.06, racks=racks)
    state = run(loaded(RACKS_OF_8), LoadTenants(replace(OPEN, spares=rule)))
    command = submit("a", 12, dp=12, spares=AUTO)
    answer = tried(state, command).answer
    assert len(answer.spares) == spares
    assert decided(state, command).placement == answer


SMALL_LIMITED = Tenants((Tenant("small", limit_gpus=32), Tenant(DEFAULT_TENANT)))


def test_a_job_beyond_its_tenants_limit_is_infeasible() -> None:
    state = run(TEN, LoadTenants(SMALL_LIMITED))
    outcome = dry_run(state, submit("a", 5, tenant="small"), SchedulingOptions(), 0)
    assert outcome.code is Code.INFEASIBLE


def test_a_job_that_its_tenants_limit_holds_back_waits() -> None:
    state = started(
        run(TEN, LoadTenants(SMALL_LIMITED)), submit("a", 2, tenant="small", limit_s=HOUR)
    )
    command = submit("b", 3, tenant="small")
    outcome = tried(state, command)
    assert not isinstance(outcome.outcome, Start)
    assert outcome.outcome.cause is WaitReason.LIMIT
    assert outcome.outcome.start_ns == HOUR_NS
    assert isinstance(outcome.answer, Insufficient)
    assert (outcome.answer.needed, outcome.answer.free) == (3, 8)
    assert outcome.answer.free_by_domain == (("z0", 8),)
    after = settled(run(state, command))
    assert after.index.running == ("a",)


def test_a_start_names_the_jobs_that_make_room() -> None:
    spot = PriorityClass("spot", -100, is_preemptible=True)
    state = run(TEN, LoadTenants(Tenants((Tenant(DEFAULT_TENANT),), classes=(spot,))))
    state = started(state, submit("spot", 10, priority_class="spot"), now_ns=-2 * HOUR_NS)
    outcome = tried(state, submit("urgent", 10))
    assert outcome.outcome.victims == ("spot",)
    assert outcome.answer.notes == ("preempted spot",)


def test_a_search_without_budget_is_undecided() -> None:
    limits = SchedulingOptions(place=Limits(rounds=0, trees=0))
    outcome = tried(TEN, submit("x", 6, pp=3), limits)
    assert not isinstance(outcome.outcome, Start)
    assert outcome.outcome.cause is WaitReason.SEARCH
    assert isinstance(outcome.answer, Undecided)


def test_a_request_id_that_was_used_says_nothing_about_the_dry_run() -> None:
    state = started(TEN, submit("x", 6, request_id="r"))
    outcome = tried(state, submit("y", 4, request_id="r"))
    assert isinstance(outcome.outcome, Start)


def test_an_elastic_job_starts_at_the_largest_size_that_fits() -> None:
    state = started(loaded(), submit("x", 3))
    outcome = tried(state, submit("a", 8, min_dp=2))
    assert outcome.job.dp == 5
    assert len(outcome.answer.hosts) == 5
    assert outcome.answer.notes == (
        "dp 5 of 8: the largest legal size that fits (2 to 8 in steps of 1)",
    )


def test_a_job_waits_for_hosts_that_a_gang_which_failed_takes_first() -> None:
    """The gang is mended before the queue is looked at: the dry run knows that."""
    state = started(TEN, submit("a", 8))
    state = run(state, fail(state.loaded_fabric.hosts[state.jobs["a"].hosts[0]]))
    outcome = tried(state, submit("b", 2))
    assert isinstance(outcome.answer, Insufficient)
    assert outcome.answer.free == 1


# --- what would change for a job -------------------------------------------------


WAITING = run(BUSY, submit("c", 4), submit("d", 2))


def supposing(state: State, name: str, *conditions: str) -> WhatIf:
    return what_if(state, name, conditions, 0, SchedulingOptions())


def test_a_requeued_gang_leaves_its_hosts_to_who_is_ahead_of_it() -> None:
    before = run(BUSY, submit("c", 4, priority=9))
    answer = supposing(before, "b", "requeue b")
    assert (answer.job.state, answer.starts) == (JobState.QUEUED, ("c",))
    assert supposing(BUSY, "b", "requeue b").job.state is JobState.RUNNING


def test_a_wait_that_grows_shorter_or_longer() -> None:
    assert supposing(WAITING, "d", "priority 9").sentence.startswith(
        "would still wait: needs 2 hosts"
    )
    longer = supposing(run(BUSY, submit("c", 4)), "c", "drain z0-r0-h9")
    assert longer.sentence.startswith("would still wait, 1 h 00 min longer: needs 4 hosts")
    sooner = supposing(run(BUSY, cordon("z0-r0-h9"), submit("c", 4)), "c", "uncordon z0")
    assert sooner.sentence.startswith("would still wait, 1 h 00 min less: needs 4 hosts")
    assert sooner.after.start_ns == HOUR_NS


def test_a_wait_without_end() -> None:
    answer = supposing(run(BUSY, submit("c", 10)), "c", "cordon z0-r0-h0")
    assert answer.sentence.startswith("would still wait, until a time that cannot be foreseen: ")
    back = supposing(run(BUSY, cordon("z0-r0-h0"), submit("c", 10)), "c", "uncordon z0")
    assert back.sentence.startswith("would still wait, for at most 2 h 00 min: ")


def test_a_job_keeps_its_place_whatever_else_differs() -> None:
    state = run(BUSY, submit("c", 4), submit("d", 4), submit("e", 4))
    answer = supposing(state, "d", "limit 1h")
    assert answer.after.sentence.endswith("; 1 job ahead of it")


def test_other_jobs_that_start_or_stop_are_named() -> None:
    answer = supposing(WAITING, "c", "cancel b", "cancel a")
    assert answer.starts == ("d",)
    assert answer.stops == ("b", "a") or answer.stops == ("a", "b")


def test_a_running_job_would_swap_or_lose_its_hosts() -> None:
    state = started(TEN, submit("a", 6))
    moved = supposing(state, "a", "fail z0-r0-h0")
    assert moved.sentence == "would run on 6 hosts in z0, attempt 2"
    lost = supposing(BUSY, "a", f"fail {hosts_of(BUSY, 'a')[0]}")
    assert lost.sentence.startswith("would lose its hosts and wait: host ")
    assert supposing(BUSY, "a", "end a").sentence == "would be completed"
    starts = supposing(run(TEN, submit("c", 6)), "c")
    assert starts.sentence == "would start now on 6 hosts in z0, as it does anyway"


def test_a_failed_host_is_left_out_when_its_domain_comes_back() -> None:
    state = run(TEN, fail("z0-r0-h0"), drain("z0-r0-h1"), submit("c", 10))
    assert supposing(state, "c", "uncordon z0").after.free == 9
    assert supposing(state, "c", "uncordon z0", "repair z0").job.state is JobState.RUNNING


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("", "is not a condition"),
        ("cordon", "is not a condition"),
        ("explode z0", "is not a condition"),
        ("cordon z9", "no host and no domain 'z9'"),
        ("cancel nobody", "no job 'nobody'"),
        ("uncordon z0-r0-h0", "z0-r0-h0 is failed: cannot uncordon"),
        ("end c", "job c is queued, not running"),
        ("priority high", "is not a whole number"),
        ("limit 2", "is not a time limit"),
        ("limit 0h", "must be at least 1"),
        ("class gold", "no class 'gold'"),
    ],
)
def test_a_condition_that_cannot_be(condition: str, message: str) -> None:
    state = run(WAITING, fail("z0-r0-h0"))
    with pytest.raises(BadInput) as caught:
        what_if(state, "c", ["cordon z0-r0-h1", condition], 0, SchedulingOptions())
    assert caught.value.field == "suppose[1]"
    assert message in caught.value.message


def test_only_a_waiting_job_can_differ() -> None:
    with pytest.raises(BadInput, match="job a is running: only labels"):
        supposing(BUSY, "a", "priority 5")


def test_an_unknown_job() -> None:
    with pytest.raises(KeyError):
        supposing(BUSY, "nobody", "cordon z0")


# --- slots by size ---------------------------------------------------------------


EIGHT = loaded(fabric(2, 2, 2))


def asked(state: State, *hosts: int, policy: str = "production", **asker: object) -> Slots:
    gpus = state.loaded_fabric.gpus_per_host
    sizes = [n * gpus for n in hosts]
    return slots(state, 0, SchedulingOptions(policy=policy), Asker(**asker), sizes)  # type: ignore[arg-type]


def in_all(found: Slots) -> list[int]:
    return [slot.in_all for slot in found.counts]


def test_an_empty_fabric() -> None:
    found = asked(EIGHT, 1, 2, 3, 8, 9)
    assert in_all(found) == [8, 4, 2, 1, 0]
    assert [slot.inside for slot in found.counts] == [8, 4, 2, 0, 0]
    assert found.counts[2].by_domain == (1, 1)
    assert (found.domains, found.free, found.room) == (("z0", "z1"), (4, 4), 8)


@pytest.mark.parametrize(
    ("sizes", "asker", "field"),
    [
        ((8, 12), Asker(), "sizes"),
        ((0,), Asker(), "sizes"),
        ((-8,), Asker(), "sizes"),
        ((8,), Asker(tenant="nobody"), "tenant"),
        ((8,), Asker(priority_class="gold"), "priority_class"),
        ((8,), Asker(time_limit_s=0), "time_limit_s"),
    ],
)
def test_what_nobody_can_ask(sizes: tuple[int, ...], asker: Asker, field: str) -> None:
    with pytest.raises(BadInput) as caught:
        slots(EIGHT, 0, SchedulingOptions(), asker, sizes)
    assert caught.value.field == field


def test_a_job_called_like_the_probe_is_no_obstacle() -> None:
    assert in_all(asked(started(EIGHT, submit("slot-0", 3)), 1)) == [5]
