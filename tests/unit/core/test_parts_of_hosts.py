"""Jobs that take a part of a host: which host they share, whom that delays, and what becomes of
them when it fails or drains."""

from dataclasses import replace
from typing import Any

import pytest

from placement import BadInput, choose_gpus
from placement.fabric import hostset
from placement.fabric.reader import from_spec
from scheduler.core import (
    Conflict,
    HostState,
    JobState,
    Plan,
    SchedulingOptions,
    State,
    admit,
    commit,
    decide,
    explain,
)
from scheduler.core.model.commands import LoadTenants, SubmitJob
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.job_account import shown
from scheduler.core.model.plan import Start
from scheduler.core.policies.tenants import Preemption, PriorityClass, Tenant, Tenants
from scheduler.core.tenancy.standing import standings
from tests.build import (
    drain,
    end,
    exactly,
    fabric,
    fabric_spec,
    fail,
    hosts_of,
    loaded,
    repair,
    run,
    running,
    schedule,
    settled,
    started,
    submit,
)

FOUR = loaded(fabric(1, 2, 2))
TWO = loaded(fabric(1, 1, 2))
NUMA = {**fabric_spec(1, 1, 2), "gpu_groups": [[0, 1, 4, 5], [2, 3, 6, 7]]}


def part(name: str, gpus: int, **job: Any) -> SubmitJob:
    return submit(name, gpus=gpus, **job)


def gpus_of(state: State, name: str) -> tuple[int, ...]:
    return state.jobs[name].present.gpus


class TestWhichGpus:
    def test_a_part_is_aligned_and_leaves_the_largest_run_whole(self) -> None:
        net = fabric(1, 1, 1)
        assert choose_gpus(net, 0, (), 2) == (0, 1)
        assert choose_gpus(net, 0, (0,), 2) == (2, 3)
        assert choose_gpus(net, 0, (0, 1), 1) == (2,)
        assert choose_gpus(net, 0, (0, 4, 5), 1) == (1,)
        assert choose_gpus(net, 0, (0,), 4) == (4, 5, 6, 7)
        assert choose_gpus(net, 0, (0, 5), 4) == (1, 2, 3, 4)
        assert choose_gpus(net, 0, range(6), 3) is None

    def test_a_numa_node_is_not_crossed_where_one_has_the_room(self) -> None:
        net = from_spec(NUMA)
        assert choose_gpus(net, 0, (), 4) == (0, 1, 4, 5)
        assert choose_gpus(net, 0, (0,), 2) == (4, 5)
        assert choose_gpus(net, 0, (0,), 4) == (2, 3, 6, 7)
        assert choose_gpus(net, 0, (0, 2), 4) == (1, 3, 4, 5)

    @pytest.mark.parametrize(
        ("groups", "says"),
        [
            ("0-3", "must be a list"),
            ([[0, 1, 2, 3]], "each of the GPUs 0 to 7 once"),
            ([[0, 1, 2, 3], [3, 4, 5, 6, 7]], "each of the GPUs 0 to 7 once"),
            ([[True, 1, 2, 3], [0, 4, 5, 6, 7]], "each of the GPUs 0 to 7 once"),
        ],
    )
    def test_wrong_groups_are_refused(self, groups: object, says: str) -> None:
        with pytest.raises(BadInput, match=says) as caught:
            from_spec({**fabric_spec(1, 1, 2), "gpu_groups": groups})
        assert caught.value.field == "gpu_groups"


class TestStarting:
    def test_small_jobs_share_a_host_and_others_stay_whole(self) -> None:
        state = started(FOUR, part("a", 4), part("b", 2), part("c", 1), part("d", 1))
        assert {hosts_of(state, name) for name in "abcd"} == {hosts_of(state, "a")}
        assert sorted(gpu for name in "abcd" for gpu in gpus_of(state, name)) == [*range(8)]
        assert state.free.bit_count() == 3
        (host,) = state.jobs["a"].hosts
        assert {job.name for job in state.holders(host)} == set("abcd")

    def test_the_fullest_host_that_has_the_room_is_joined(self) -> None:
        state = started(FOUR, part("a", 5), part("b", 4))
        assert hosts_of(state, "a") != hosts_of(state, "b")
        state = started(state, part("c", 3), part("d", 3))
        assert hosts_of(state, "c") == hosts_of(state, "a")
        assert hosts_of(state, "d") == hosts_of(state, "b")

    def test_two_decisions_on_one_state_cannot_give_a_gpu_twice(self) -> None:
        state = started(TWO, part("a", 4))
        waits = run(state, part("b", 4), part("c", 4))
        plans = [
            decide(run(state, part(name, 4)), 0, SchedulingOptions()).actions[0] for name in "bc"
        ]
        answer = commit(waits, Plan(waits.version, tuple(plans)), 0)
        assert not isinstance(answer, Conflict)
        assert [event.name for event in answer] == ["b"]  # type: ignore[union-attr]

    def test_it_has_no_spares_and_one_size(self) -> None:
        elastic = replace(part("a", 2).spec, min_dp=1)
        wrong = (part("a", 2, spares=exactly(1)), SubmitJob(elastic, "u"))
        for command, field in zip(wrong, ("spares", "min_dp"), strict=True):
            answer = admit(TWO, command, 0)
            assert [v.field for v in answer.violations] == [field]

    def test_a_reason_says_how_many_gpus(self) -> None:
        state = started(loaded(fabric(1, 1, 1)), part("a", 5), part("b", 4))
        assert "needs 4 GPUs of one host" in explain(state, "b", 0, SchedulingOptions()).sentence

    @pytest.mark.parametrize(
        ("gpus", "said"), [(1, "1 GPU of one host is"), (2, "2 GPUs of one host are")]
    )
    def test_a_part_that_fits_is_said_to_start_in_its_number(self, gpus: int, said: str) -> None:
        state = run(TWO, part("a", gpus))
        sentence = explain(state, "a", 0, SchedulingOptions()).sentence
        assert sentence == f"{said} free; starts with the next decision"


class TestWhomItDelays:
    @pytest.mark.parametrize("policy", ["easy", "conservative", "production"])
    def test_one_that_outlasts_the_first_that_waits_does_not_keep_its_host(
        self, policy: str
    ) -> None:
        limits = SchedulingOptions(policy=policy)
        state = settled(run(TWO, part("a", 4, limit_s=100), submit("b", 1, limit_s=50)), 0, limits)
        state = run(state, submit("wide", 2, limit_s=60))
        state = run(state, part("long", 4, limit_s=500), part("short", 4, limit_s=90))
        state = settled(state, 0, limits)
        assert running(state) == {"a", "b", "short"}
        state = settled(run(state, end("b"), now_ns=50 * SECOND_NS), 50 * SECOND_NS, limits)
        late = run(state, end("a"), end("short"), now_ns=100 * SECOND_NS)
        assert running(settled(late, 100 * SECOND_NS, limits)) == {"wide"}


class TestQuotas:
    def test_parts_count_as_the_hosts_that_they_would_fill(self) -> None:
        tenants = Tenants((Tenant("default"), Tenant("small", limit_gpus=8)))
        state = run(FOUR, LoadTenants(tenants))
        state = settled(run(state, *(part(name, 3, tenant="small") for name in "abcd")))
        assert running(state) == {"a", "b"}
        assert state.account("small").held == 1
        assert state.account("small").part_gpus == 6
        state = settled(run(state, part("e", 2, tenant="small")))
        assert running(state) == {"a", "b", "e"}
        state = run(state, end("a"), end("b"), end("e"))
        assert state.account("small").held == 0

    def test_its_time_is_that_of_its_gpus(self) -> None:
        state = started(FOUR, part("a", 2))
        account = shown(state.jobs["a"], 80 * SECOND_NS, state.tenants.preemption.costs)
        assert account.time.holding == 80 * SECOND_NS
        assert account.hosts.holding == 20 * SECOND_NS


class TestFailures:
    def test_all_that_share_a_failed_host_start_elsewhere(self) -> None:
        state = started(FOUR, part("a", 4), part("b", 4))
        (before,) = hosts_of(state, "a")
        state = run(state, fail(before))
        assert [state.jobs[n].state for n in "ab"] == [JobState.INTERRUPTED] * 2
        state = settled(state)
        assert running(state) == {"a", "b"}
        assert {hosts_of(state, n) for n in "ab"} != {(before,)}
        assert hosts_of(state, "a") == hosts_of(state, "b")
        assert [state.jobs[n].attempt for n in "ab"] == [2, 2]

    def test_a_drained_host_is_empty_when_all_have_gone(self) -> None:
        state = started(FOUR, part("a", 4), part("b", 2))
        (before,) = hosts_of(state, "a")
        index = state.loaded_fabric.index_by_name[before]
        state = run(state, drain(before))
        assert state.host(index).state is HostState.DRAINING
        state = settled(state)
        assert running(state) == {"a", "b"}
        assert state.host(index).state is HostState.CORDONED
        assert not hostset.has(state.index.held, index)

    def test_it_goes_on_where_it_was_when_its_host_is_well(self) -> None:
        state = started(loaded(fabric(1, 1, 1)), part("a", 4))
        state = settled(run(state, fail("z0-r0-h0"), repair("z0-r0-h0"), now_ns=5), 5)
        late_ns = 700 * SECOND_NS
        state = settled(state, late_ns)
        assert running(state) == {"a"}
        assert state.jobs["a"].attempt == 2

    def test_where_there_is_no_room_it_stays_on_a_draining_host(self) -> None:
        state = started(loaded(fabric(1, 1, 1)), part("a", 4))
        state = settled(run(state, drain("z0-r0-h0")))
        assert running(state) == {"a"}


def test_no_gang_is_evicted_in_vain_for_a_part() -> None:
    """Its host is another's as well: a gang that could evict it waits instead."""
    classes = (PriorityClass("spot", 0, is_preemptible=True),)
    tenants = Tenants((Tenant("default"),), classes=classes, preemption=Preemption(is_on=True))
    state = started(run(TWO, LoadTenants(tenants)), part("a", 4, priority_class="spot"))
    state = run(state, submit("wide", 2, priority=9))
    plan = decide(state, 10**12, SchedulingOptions())
    assert not [a for a in plan.actions if isinstance(a, Start)]
    assert schedule(state, 10**12).jobs["a"].state is JobState.RUNNING


def test_a_tenant_stands_with_the_gpus_that_it_holds_and_waits_for() -> None:
    state = started(FOUR, part("a", 2), part("b", 1), submit("c", 2))
    state = run(state, part("d", 3), submit("e", 4))
    (standing,) = standings(state, 0)
    assert (standing.held_gpus, standing.queued_gpus) == (2 + 1 + 16, 3 + 32)
