"""Elastic gangs: how large they start, when they grow, what they drop, and for whom."""

from dataclasses import replace

import pytest

from placement.fabric import hostset
from placement.fabric.constraints import Constraints
from placement.fabric.hostset import HostSet
from placement.objective.check import violations
from placement.workload.request import Placement
from placement.workload.training import Batch
from scheduler.core import (
    Conflict,
    Job,
    Plan,
    SchedulingOptions,
    State,
    Tenants,
    commit,
    decide,
    explain,
)
from scheduler.core.capacity.placer import make_placer
from scheduler.core.explain.reason import Shrink
from scheduler.core.model.commands import LoadTenants
from scheduler.core.model.events import JobStarted
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.plan import Start
from scheduler.core.model.restart_option import RestartOption, taken
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.tenants import Preemption, PriorityClass, Tenant
from tests.build import (
    HOUR_NS,
    MINUTE_NS,
    committed,
    cordon,
    end,
    exactly,
    fabric,
    fail,
    hosts_of,
    job,
    loaded,
    run,
    running,
    schedule,
    started,
    submit,
)
from tests.windows import set_window

F = fabric(zones=2, racks=2, hosts=2)
CHECKPOINT_NS = 1_800 * SECOND_NS


def beside(hosts: int, **more: int) -> State:
    """A cluster of 8 hosts on which another job holds so many."""
    return started(loaded(F), submit("x", hosts, **more))


def shrunk(state: State, *hosts: str, now_ns: int = HOUR_NS) -> State:
    """After these hosts failed, and one decision."""
    return schedule(run(state, *map(fail, hosts), now_ns=now_ns), now_ns)


class TestStart:
    def test_one_placement_finds_the_size(self) -> None:
        """Sizes are ruled out by counting."""
        state = run(beside(3), submit("a", 8, min_dp=1))
        calls = []
        find = make_placer(state, SchedulingOptions())

        def counted(job: Job, free: HostSet, most: int) -> Placement | None:
            calls.append(job.dp)
            return find(job, free, most)

        decide(state, 0, SchedulingOptions(), counted)
        assert calls == [5]

    def test_nothing_is_placed_for_one_that_cannot_start(self) -> None:
        state = run(beside(6), submit("a", 8, min_dp=3))

        def never(job: Job, free: HostSet, most: int) -> Placement | None:
            raise AssertionError("placed")

        assert not decide(state, 0, SchedulingOptions(), never).actions

    def test_required_spares_count(self) -> None:
        state = started(beside(3), submit("a", 8, min_dp=1, spares=exactly(2)))
        assert (job(state, "a").dp, len(job(state, "a").spares)) == (3, 2)

    def test_constraints_count(self) -> None:
        inside = Constraints(same="zone")
        state = started(beside(1), submit("a", 8, min_dp=1, where=inside))
        assert job(state, "a").dp == 4

    @pytest.mark.parametrize("policy", ["production", "easy", "conservative"])
    def test_never_onto_hosts_that_an_earlier_job_waits_for(self, policy: str) -> None:
        """big starts when x ends, in an hour, and leaves two hosts of the eight."""
        state = beside(4, limit_s=3_600)
        state = run(state, submit("big", 6, limit_s=3_600), submit("a", 4, min_dp=1))
        state = schedule(state, policy=policy)
        assert running(state) == {"x", "a"}
        assert job(state, "a").dp == 2

    def test_the_full_size_may_be_short_enough_where_the_least_is_not(self) -> None:
        """At dp 4 it runs half an hour, before big starts; at dp 2 an hour and a half."""
        state = beside(4, limit_s=3_600)
        state = run(state, submit("big", 8), submit("a", 4, min_dp=1, limit_s=1_800))
        assert job(schedule(state), "a").dp == 4


class TestShrink:
    def test_sizes_that_the_batch_skips_are_skipped(self) -> None:
        state = loaded(F)
        wanted = submit("a", 8, min_dp=1)
        batch = replace(wanted.spec.request, batch=Batch(16))
        wanted = replace(wanted, spec=replace(wanted.spec, request=batch))
        state = started(state, wanted)
        assert job(state, "a").sizes == (1, 2, 4, 8)
        assert job(shrunk(state, "z0-r0-h0"), "a").dp == 4

    def test_replicas_that_share_hosts_are_placed_anew_on_what_is_left(self) -> None:
        """Stages outermost and two replicas a host: a host of three carries both stages."""
        wanted = submit("a", 12, gpus=4, min_dp=1, pp=2, dp=6)
        order = replace(wanted.spec.request.parallelism, order="tp-cp-ep-dp-pp")
        request = replace(wanted.spec.request, parallelism=order)
        state = started(beside(2), replace(wanted, spec=replace(wanted.spec, request=request)))
        before = job(state, "a")
        state = shrunk(state, F.hosts[before.hosts[2]])
        after = job(state, "a")
        assert after.dp < before.dp
        assert set(after.hosts) < set(before.hosts)
        placed = Placement(after.hosts, after.spares, after.present.cuts, after.present.lower_bound)
        assert not violations(F, after.allocation, after.request, placed)

    def test_required_spares_are_kept_or_nothing(self) -> None:
        state = started(loaded(F), submit("a", 7, min_dp=1, spares=exactly(1)))
        state = shrunk(state, *F.names(job(state, "a").hosts[:2]))
        after = job(state, "a")
        assert (after.dp, len(after.spares)) == (5, 1)


class TestGrow:
    def test_no_sooner_than_the_interval(self) -> None:
        state = run(started(beside(4), submit("a", 8, min_dp=2)), end("x"))
        limits = SchedulingOptions(resize_every_s=5_000)
        assert decide(state, CHECKPOINT_NS, limits).next_decision_ns == 3 * CHECKPOINT_NS

    def test_not_for_too_little(self) -> None:
        """One replica more of ten is 10 %; of eleven it is not, and twelve are the most."""
        network = fabric(zones=1, racks=4, hosts=4)
        state = started(loaded(network), submit("x", 5), submit("y", 1), submit("a", 13, min_dp=2))
        assert job(state, "a").dp == 10
        state = run(state, end("y"))
        assert decide(state, CHECKPOINT_NS, SchedulingOptions(least_gain=10)).actions
        assert not decide(state, CHECKPOINT_NS, SchedulingOptions(least_gain=11)).actions

    def test_not_when_it_is_nearly_done(self) -> None:
        """With 600 s left a restart of 300 s gains nothing by one replica more of seven."""
        state = run(started(beside(1), submit("a", 8, min_dp=2, limit_s=2_100)), end("x"))
        assert not decide(state, CHECKPOINT_NS, SchedulingOptions()).actions

    @pytest.mark.parametrize("policy", ["production", "easy"])
    @pytest.mark.parametrize(("big", "dp"), [(4, 4), (5, 3), (6, 2)])
    def test_not_onto_hosts_that_a_waiting_job_is_to_have(
        self, big: int, dp: int, policy: str
    ) -> None:
        """big starts when y ends: of the six hosts that are free then the others are for a."""
        state = started(loaded(F), submit("x", 3, limit_s=7_200), submit("y", 3, limit_s=9_000))
        state = started(state, submit("a", 8, min_dp=1))
        state = run(state, submit("big", big), end("x"))
        state = schedule(state, CHECKPOINT_NS, policy=policy)
        assert job(state, "a").dp == dp
        state = schedule(run(state, end("y"), now_ns=9_000 * SECOND_NS), 9_000 * SECOND_NS)
        assert "big" in running(state)

    def test_not_while_a_waiting_job_counts_on_its_own_hosts(self) -> None:
        """a would end in an hour and big start then; larger, it would keep its hosts longer."""
        state = started(loaded(F), submit("x", 4), submit("y", 2))
        state = started(state, submit("a", 4, min_dp=2, limit_s=3_600))
        state = run(state, submit("big", 3, limit_s=90_000), end("y"))
        assert job(schedule(state, CHECKPOINT_NS * 3), "a").dp == 2

    def test_not_beyond_the_limit_of_its_tenant(self) -> None:
        tenants = Tenants((Tenant("default"), Tenant("t", limit_gpus=5 * 8)), default="default")
        state = started(run(loaded(F), LoadTenants(tenants)), submit("x", 5))
        state = started(state, submit("a", 8, min_dp=1, tenant="t"))
        assert job(state, "a").dp == 3
        state = schedule(run(state, end("x")), CHECKPOINT_NS)
        assert job(state, "a").dp == 5

    def test_a_stale_growth_falls(self) -> None:
        state = run(started(beside(4), submit("a", 8, min_dp=2)), end("x"))
        plan = decide(state, CHECKPOINT_NS, SchedulingOptions())
        taken = started(state, submit("b", 2), now_ns=CHECKPOINT_NS)
        assert isinstance(commit(taken, plan, CHECKPOINT_NS), Conflict)
        ended = run(state, end("a"))
        assert isinstance(commit(ended, plan, CHECKPOINT_NS), Conflict)


# --- replicas dropped for others -------------------------------------------------


CLASSES = (
    PriorityClass("spot", -5, is_preemptible=True),
    PriorityClass("urgent", 5),
)
TERMS = Preemption(min_run_s=600, costs=Costs(checkpoint_s=1_800, restart_s=300))
TENANTS = Tenants((Tenant("default"),), classes=CLASSES, preemption=TERMS)
LATER_NS = 20 * MINUTE_NS


def cluster(tenants: Tenants = TENANTS) -> State:
    return run(loaded(F), LoadTenants(tenants))


def spot(hosts: int = 8, min_dp: int = 1, **more: object) -> State:
    """A cluster on which an elastic gang of the class spot runs."""
    wanted = submit("a", hosts, min_dp=min_dp, priority_class="spot", **more)  # type: ignore[arg-type]
    return started(cluster(), wanted)


def urgent(state: State, hosts: int, now_ns: int = LATER_NS, **more: object) -> State:
    """The same with an urgent job that waits."""
    wanted = submit("u", hosts, priority_class="urgent", limit_s=3_600, **more)  # type: ignore[arg-type]
    return run(state, wanted, now_ns=now_ns)


class TestHowMany:
    def test_sizes_that_the_batch_skips_are_skipped(self) -> None:
        state = urgent(spot(min_dp=2), 1)
        a = job(state, "a")
        some = replace(state, jobs={**state.jobs, "a": replace(a, sizes=(2, 4, 8))})
        (shrink,) = _start(some).shrinks
        assert shrink.dp == 4

    def test_whole_replicas(self) -> None:
        """Each has one host in either zone: two of four go, though three would leave a zone."""
        after = schedule(urgent(spot(pp=2), 3), LATER_NS)
        assert (job(after, "a").dp, after.free.bit_count()) == (2, 1)

    def test_spares_that_it_insists_on_are_kept(self) -> None:
        after = schedule(urgent(spot(hosts=7, spares=exactly(1)), 3), LATER_NS)
        assert (job(after, "a").dp, len(job(after, "a").spares)) == (4, 1)


class TestWhich:
    def test_constraints_of_the_job_are_kept(self) -> None:
        after = schedule(urgent(spot(), 2, where=Constraints(same="rack")), LATER_NS)
        assert len({host.rpartition("-")[0] for host in hosts_of(after, "u")}) == 1
        assert job(after, "a").dp == 6

    def test_one_that_shrinks_goes_before_one_that_is_sent_away(self) -> None:
        """Even though the rigid one has less to lose."""
        state = started(spot(hosts=4, min_dp=2), submit("r", 4, priority_class="spot"))
        after = schedule(urgent(state, 2), LATER_NS)
        assert running(after) == {"a", "r", "u"}

    def test_some_shrink_and_others_leave(self) -> None:
        state = started(spot(hosts=5, min_dp=2), submit("r", 3, priority_class="spot"))
        plan = _start(urgent(state, 6))
        assert (plan.victims, [(s.name, s.dp) for s in plan.shrinks]) == (("r",), [("a", 2)])
        reason = explain(urgent(state, 6), "u", LATER_NS, SchedulingOptions())
        assert reason.sentence == (
            "starts with the next decision, by shrinking a to dp 2 and preempting r"
        )
        assert (reason.preempts, reason.shrinks) == (("r",), (Shrink("a", 2),))


class TestWhen:
    def test_after_the_minimum_run_time(self) -> None:
        state = urgent(spot(), 1, now_ns=0)
        plan = decide(state, 9 * MINUTE_NS, SchedulingOptions())
        assert (plan.actions, plan.next_decision_ns) == ((), 10 * MINUTE_NS)
        reason = explain(state, "u", 9 * MINUTE_NS, SchedulingOptions())
        assert reason.sentence.endswith("; or by shrinking a to dp 7 in 1 min")
        assert (reason.preempts, reason.shrinks) == ((), (Shrink("a", 7),))
        assert reason.preempt_ns == 10 * MINUTE_NS

    def test_it_counts_as_a_start_for_the_next_time(self) -> None:
        after = schedule(urgent(spot(), 1), LATER_NS)
        again = run(after, submit("v", 1, priority_class="urgent"), now_ns=LATER_NS)
        plan = decide(again, LATER_NS, SchedulingOptions())
        assert (plan.actions, plan.next_decision_ns) == ((), LATER_NS + 10 * MINUTE_NS)

    def test_not_into_a_window_that_it_would_have_ended_before(self) -> None:
        """With one replica of two its hour takes two, and the window opens in between."""
        for from_s, is_sent_away in ((5_400, True), (3 * 3_600, False)):
            state = spot(hosts=8, min_dp=4, limit_s=3_600)
            window = set_window("w", "z0", "z1", start_s=from_s, end_s=6 * 3_600)
            state = urgent(run(state, window), 4, now_ns=10 * MINUTE_NS)
            wanted = replace(state.jobs["u"], spec=replace(state.jobs["u"].spec, time_limit_s=60))
            state = replace(state, jobs={**state.jobs, "u": wanted})
            start = _start(state, 10 * MINUTE_NS)
            assert bool(start.victims) is is_sent_away

    def test_nobody_who_was_promised_a_start_waits_longer_for_it(self) -> None:
        """big is to have all hosts when a ends in an hour; with half its replicas a would
        need two, so a is not made smaller for little, who is short."""
        state = spot(hosts=4, min_dp=2, limit_s=3_600)
        state = started(state, submit("n", 4, limit_s=3_600))
        state = run(state, submit("big", 8, priority_class="urgent"), now_ns=LATER_NS)
        state = run(state, submit("little", 2, limit_s=60), now_ns=LATER_NS)
        assert not any(s.shrinks for s in _starts(state))


class TestCheckedAgain:
    def test_a_plan_falls_when_the_gang_lies_elsewhere_meanwhile(self) -> None:
        state = urgent(spot(hosts=7), 3)
        plan = decide(state, LATER_NS, SchedulingOptions())
        moved = schedule(run(state, fail(hosts_of(state, "a")[0]), now_ns=LATER_NS), 0)
        assert isinstance(commit(moved, plan, LATER_NS), Conflict)

    @pytest.mark.parametrize("dp", [8, 7, 0])
    def test_a_size_that_is_none_is_no_plan(self, dp: int) -> None:
        state = urgent(spot(), 3)
        start = _start(state)
        wrong = replace(start, shrinks=(replace(start.shrinks[0], dp=dp),))
        assert isinstance(commit(state, Plan(state.version, (wrong,)), LATER_NS), Conflict)

    def test_nor_are_hosts_that_it_does_not_have(self) -> None:
        state = urgent(started(spot(hosts=4), submit("n", 3)), 2)
        start = _start(state)
        (shrink,) = start.shrinks
        free = hostset.members(state.free)[0]
        elsewhere = replace(shrink.placement, hosts=(free, *shrink.placement.hosts[1:]))
        wrong = replace(start, shrinks=(replace(shrink, placement=elsewhere),))
        assert isinstance(commit(state, Plan(state.version, (wrong,)), LATER_NS), Conflict)


class TestFailure:
    def test_a_failed_gang_takes_one_replica_of_a_lesser_one(self) -> None:
        state = started(spot(hosts=4), submit("n", 4, priority_class="urgent"))
        state = run(state, fail(hosts_of(state, "n")[0]), now_ns=LATER_NS)
        after = schedule(state, LATER_NS)
        assert (running(after), job(after, "a").dp) == ({"a", "n"}, 3)
        step = taken(job(after, "n").restart_options)
        assert (step.option, step.note) == (RestartOption.PREEMPT, "shrinks a to dp 3")
        assert job(after, "a").reason.startswith("shrunk from dp 4 by n")

    def test_cordoned_hosts_that_it_gives_up_are_no_room(self) -> None:
        state = run(spot(), cordon("z0-r0-h0"))
        after = schedule(urgent(state, 1), LATER_NS)
        assert running(after) == {"a", "u"}
        assert "z0-r0-h0" not in hosts_of(after, "u")


def grown(**more: int) -> State:
    """A gang that began with four hosts, and has eight since half an hour."""
    state = started(started(cluster(), submit("x", 4)), submit("a", 8, min_dp=2, **more))
    state = schedule(run(state, end("x")), HOUR_NS // 2)
    assert (job(state, "a").present.start_dp, job(state, "a").dp) == (4, 8)
    return state


class TestLoan:
    """What a gang has grown beyond its start, it gives back."""

    DUE_NS = HOUR_NS // 2 + 300 * SECOND_NS + 1_800 * SECOND_NS  # restarted, and saved

    def test_to_a_gang_that_lost_a_host_at_once(self) -> None:
        state = started(cluster(), submit("x", 3), submit("n", 1), submit("a", 8, min_dp=2))
        state = schedule(run(state, end("x")), HOUR_NS // 2)
        assert (job(state, "a").present.start_dp, job(state, "a").dp) == (4, 7)
        then_ns = 45 * MINUTE_NS
        after = schedule(run(state, fail(hosts_of(state, "n")[0]), now_ns=then_ns), then_ns)
        assert (running(after), job(after, "a").dp) == ({"a", "n"}, 6)

    def test_only_to_one_of_its_priority_and_as_often_as_it_may_grow(self) -> None:
        waits, options = submit("b", 3), SchedulingOptions()
        state = run(grown(), waits, now_ns=HOUR_NS // 2)
        assert decide(state, self.DUE_NS, options).actions
        assert not decide(state, self.DUE_NS, replace(options, resize_every_s=3 * 3_600)).actions
        above = run(grown(priority=1), waits, now_ns=HOUR_NS // 2)
        assert not decide(above, self.DUE_NS, options).actions
        off = replace(TENANTS, preemption=replace(TERMS, is_on=False))
        assert not decide(run(state, LoadTenants(off)), self.DUE_NS, options).actions


def _starts(state: State, now_ns: int = LATER_NS) -> list[Start]:
    return [a for a in decide(state, now_ns, SchedulingOptions()).actions if isinstance(a, Start)]


def _start(state: State, now_ns: int = LATER_NS) -> Start:
    (found,) = _starts(state, now_ns)
    return found


def test_nobody_borrows_spares_of_a_gang_that_makes_room() -> None:
    """One host of g, and its spare, are free once it is gone: b starts there, k waits."""
    state = started(cluster(), submit("n", 6, priority=9))
    state = started(state, submit("g", 1, priority_class="spot", spares=exactly(1)))
    state = urgent(state, 1)
    for name in "bk":
        state = run(state, submit(name, 1, priority_class="spot"), now_ns=LATER_NS)
    plan = decide(state, LATER_NS, SchedulingOptions())
    events = committed(state, plan, LATER_NS)
    assert [event.name for event in events if isinstance(event, JobStarted)] == ["u", "b"]
    assert len(events) == len(plan.actions) + 1
