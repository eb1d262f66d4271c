"""Elastic gangs: how large they start, when they grow, what they drop."""

from dataclasses import replace

import pytest

from placement.fabric.constraints import Constraints
from placement.fabric.hostset import HostSet
from placement.objective.check import violations
from placement.workload.request import Placement
from placement.workload.training import Batch
from scheduler.core import Job, JobState, SchedulingOptions, State, Tenants, decide
from scheduler.core.capacity.placer import make_placer
from scheduler.core.commit.commit import Conflict, commit
from scheduler.core.model.commands import LoadTenants
from scheduler.core.model.job import SECOND_NS
from scheduler.core.policies.tenants import Tenant
from tests.build import (
    HOUR_NS,
    end,
    exactly,
    fabric,
    fail,
    job,
    loaded,
    refused,
    run,
    running,
    schedule,
    started,
    submit,
)

F = fabric(zones=2, racks=2, hosts=2)
CHECKPOINT_NS = 1_800 * SECOND_NS


def beside(hosts: int, name: str = "x", **more: int) -> State:
    """A cluster of 8 hosts on which another job holds so many."""
    return started(loaded(F), submit(name, hosts, **more))


def shrunk(state: State, *hosts: str, now_ns: int = HOUR_NS) -> State:
    """After these hosts failed, and one decision."""
    return schedule(run(state, *map(fail, hosts), now_ns=now_ns), now_ns)


class TestStart:
    @pytest.mark.parametrize(("busy", "dp"), [(0, 8), (1, 7), (4, 4), (5, 3)])
    def test_with_as_many_replicas_as_there_is_room_for(self, busy: int, dp: int) -> None:
        state = beside(busy) if busy else loaded(F)
        state = started(state, submit("a", 8, min_dp=3))
        assert (job(state, "a").dp, len(job(state, "a").hosts)) == (dp, dp)
        assert job(state, "a").sizes == (3, 4, 5, 6, 7, 8)

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

    def test_what_no_size_fits_is_refused(self) -> None:
        answer = refused(loaded(F), submit("a", 20, min_dp=9))
        assert answer.code == "infeasible"
        assert "no room for a legal size from dp 9" in answer.message


class TestShrink:
    def test_the_replica_of_the_failed_host_goes(self) -> None:
        state = started(loaded(F), submit("a", 8, pp=2, min_dp=1))
        before = job(state, "a")
        after = job(shrunk(state, F.hosts[before.hosts[5]]), "a")
        assert after.hosts == (*before.hosts[:4], *before.hosts[6:])
        assert (after.state, after.dp, after.attempt) == (JobState.RUNNING, 3, 2)

    def test_a_swap_comes_first(self) -> None:
        state = started(loaded(F), submit("a", 6, pp=2, min_dp=1))
        after = job(shrunk(state, F.hosts[job(state, "a").hosts[0]]), "a")
        assert (after.dp, len(after.hosts)) == (3, 6)

    def test_what_is_left_of_a_replica_stands_in_for_others(self) -> None:
        """Two replicas lose one host each: one goes, and its other host replaces."""
        state = started(loaded(F), submit("a", 8, pp=2, min_dp=1))
        hosts = job(state, "a").hosts
        after = job(shrunk(state, F.hosts[hosts[0]], F.hosts[hosts[3]]), "a")
        assert after.dp == 3
        assert after.hosts == (hosts[2], hosts[1], *hosts[4:])

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
