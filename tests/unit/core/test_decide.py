"""Who runs next: order, gangs, backfill around a promise, and what a failure does."""

from dataclasses import replace
from random import Random

import pytest

from placement.fabric import hostset
from placement.workload.request import SpareRule
from scheduler.core import SchedulingOptions, State, decide
from scheduler.core.capacity.outlook import Outlook
from scheduler.core.collections.name_list import NameList
from scheduler.core.collections.persistent_map import PersistentMap
from scheduler.core.model.commands import LoadTenants
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.plan import Move, Requeue, Start, Swap
from scheduler.core.policies.tenants import Aging, Preemption, PriorityClass, Tenant, Tenants
from scheduler.core.queue.policies import queue_policy
from scheduler.core.queue.policies.production import priority_of
from scheduler.core.tenancy.quota_check import Quotas
from tests.build import (
    HOUR_NS,
    cancel,
    drain,
    end,
    exactly,
    fabric,
    fail,
    hosts_of,
    job,
    loaded,
    queue_order,
    repair,
    run,
    running,
    schedule,
    settled,
    spares_of,
    started,
    submit,
)

HOUR = 3_600
EIGHT = loaded(fabric(2, 2, 2))  # z0: r0, r1; z1: r0, r1; two hosts a rack
TEN = loaded(fabric(1, 1, 10))


def reserved(
    state: State, hosts: int, now_ns: int = 0, options: SchedulingOptions | None = None
) -> tuple[int, int] | None:
    """(start, hosts free then) of a job of so many hosts, as if it were the first to wait."""
    options, quotas = options or SchedulingOptions(), Quotas(state)
    probe = job(run(state, submit("probe", hosts)), "probe")
    outlook = Outlook(state, now_ns, options, quotas)
    found = outlook.reservation(probe, state.free)
    return None if found is None else (found.start_ns, found.extra + hosts)


def decided(state: State, now_ns: int = 0, policy: str = "production") -> list[str]:
    """Names of the jobs that start, in order."""
    plan = decide(state, now_ns, SchedulingOptions(policy=policy))
    return [action.name for action in plan.actions if isinstance(action, Start)]


@pytest.mark.parametrize("policy", ["easy", "fifo", "conservative"])
def test_the_textbook_policies_ignore_priority(policy: str) -> None:
    state = run(EIGHT, submit("a", 4), submit("b", 4, priority=1), submit("c", 4, priority=2))
    assert decided(state, policy=policy) == ["a", "b"]
    assert queue_order(state, 0, SchedulingOptions(policy=policy)) == ["a", "b", "c"]


@pytest.mark.parametrize("spares", [SpareRule(), exactly(1)])
def test_drained_spare_is_released_and_replaced(spares: SpareRule) -> None:
    state = settled(run(TEN, submit("a", 3, spares=spares)))
    (spare,) = spares_of(state, "a")
    state = settled(run(state, drain(spare)))
    (other,) = spares_of(state, "a")
    assert other != spare
    assert not hostset.has(state.index.held, state.loaded_fabric.index_by_name[spare])


@pytest.mark.parametrize(
    ("late_s", "more_s"), [(0, 60), (59, 60), (60, 120), (3_600, 3_840), (5 * HOUR, 30_720)]
)
def test_a_job_past_its_limit_is_given_as_long_again(late_s: int, more_s: int) -> None:
    """One minute, two, four, ... beyond its limit: never more than twice what it is late."""
    now_ns, end_ns = 10 * HOUR_NS + late_s * SECOND_NS, 10 * HOUR_NS + more_s * SECOND_NS
    state = started(TEN, submit("long", 6, limit_s=10 * HOUR))
    state = run(state, submit("wide", 8, limit_s=HOUR))
    assert reserved(state, 8, now_ns) == (end_ns, 10)
    left_s = more_s - late_s
    assert decided(run(state, submit("short", 4, limit_s=left_s)), now_ns) == ["short"]
    assert decided(run(state, submit("short", 4, limit_s=left_s + 1)), now_ns) == []


def test_draining_hosts_do_not_come_back() -> None:
    """`a` sits on a draining host: its end makes five hosts of its six."""
    state = run(started(TEN, submit("a", 10, limit_s=HOUR)), drain("z0-r0-h0"))
    assert reserved(state, 9) == (HOUR_NS, 9)
    assert reserved(state, 10) is None


def test_a_job_does_not_start_on_the_host_that_just_stopped_it() -> None:
    state = schedule(run(started(EIGHT, submit("a", 8)), fail("z0-r0-h0")))
    plan = decide(run(state, repair("z0-r0-h0")), 0, SchedulingOptions())
    assert (plan.actions, plan.next_decision_ns) == ((), 600 * SECOND_NS)


def test_nobody_slips_in_between_a_failure_and_the_requeue() -> None:
    """Two hosts fail, one is free: no plan that requeues `a` gives that host away,
    for `a` comes first."""
    state = started(loaded(fabric(1, 1, 7)), submit("a", 6, priority=1))
    a = hosts_of(state, "a")
    state = run(state, fail(a[0]), fail(a[1]), submit("late", 1))
    assert [type(action) for action in decide(state, 0, SchedulingOptions()).actions] == [Requeue]


def test_the_important_gang_gets_the_last_host() -> None:
    state = loaded(fabric(1, 1, 7))
    state = started(state, submit("low", 3), submit("high", 3, priority=1))
    low, high = hosts_of(state, "low"), hosts_of(state, "high")
    plan = decide(run(state, fail(low[0]), fail(high[0])), 0, SchedulingOptions())
    assert [(type(a), a.name) for a in plan.actions] == [(Swap, "high"), (Requeue, "low")]


def test_failed_hosts_come_before_draining_ones() -> None:
    """One host is left: the gang starts again on it and the draining one."""
    state = started(loaded(fabric(1, 1, 5)), submit("a", 4))
    before = hosts_of(state, "a")
    (last,) = set(state.loaded_fabric.hosts) - set(before)
    state = run(state, drain(before[0]), fail(before[3]))
    index = state.loaded_fabric.index_by_name
    (action,) = decide(state, 0, SchedulingOptions()).actions
    assert action.moves == (Move(3, index[before[3]], index[last]),)


def test_nobody_starts_on_what_a_swap_makes_due_to_another_tenant() -> None:
    """A gang that swaps in its spare holds one host less: that is promised to its tenant."""
    tenants = Tenants((Tenant("lab", guaranteed_gpus=16), Tenant("shop"), Tenant("default")))
    state = run(loaded(fabric(1, 1, 5)), LoadTenants(tenants))
    state = schedule(run(state, submit("a", spares=exactly(1), tenant="lab")))
    state = run(state, fail(hosts_of(state, "a")[0]), submit("b", 3, tenant="shop"))
    plan = decide(state, 0, SchedulingOptions())
    assert [type(action) for action in plan.actions] == [Swap]
    assert "b" not in running(schedule(state))


TWO = Tenants((Tenant("a"), Tenant("b")), "a", half_life_s=HOUR)


def with_tenants(tenants: Tenants) -> State:
    return run(EIGHT, LoadTenants(tenants))


def test_equal_tenants_take_turns_as_they_start() -> None:
    """Counted by hosts, at once: a's first two hosts are worth two turns of b."""
    state = with_tenants(TWO)
    jobs = [submit(f"a{i}", 2, tenant="a") for i in range(3)]
    jobs += [submit(f"b{i}", 1, tenant="b") for i in range(4)]
    starts = decided(run(state, *jobs))
    assert starts == ["a0", "b0", "b1", "a1", "b2", "b3", "a2"][: len(starts)]
    assert len(starts) >= 6


def test_who_is_below_its_guarantee_comes_first() -> None:
    tenants = Tenants((Tenant("a", guaranteed_gpus=32), Tenant("b")), "a")
    state = schedule(run(with_tenants(tenants), submit("x", 2, tenant="a")))
    state = run(state, submit("b", tenant="b"), submit("a", tenant="a"))
    assert queue_order(state, 0, SchedulingOptions()) == ["a", "b"]


def test_siblings_are_compared_before_cousins() -> None:
    """Both of research's have little, but product has less than research together."""
    tenants = Tenants(
        (Tenant("r"), Tenant("r1", "r"), Tenant("r2", "r"), Tenant("p")), "p", half_life_s=HOUR
    )
    state = with_tenants(tenants)
    state = schedule(
        run(state, submit("x", 2, tenant="r1"), submit("y", 2, tenant="r2"), submit("z", 3))
    )
    state = run(state, submit("r", tenant="r1"), submit("p"))
    assert queue_order(state, 0, SchedulingOptions()) == ["p", "r"]


def lived(tenants: Tenants, hours: int) -> dict[str, int]:
    """Hour of each start: a job of the lowest priority that needs everything, and every
    hour one of the highest that needs half and runs for two."""
    state = run(with_tenants(tenants), submit("meek", 8, limit_s=HOUR))
    starts: dict[str, int] = {}
    for hour in range(hours):
        now_ns = hour * HOUR_NS
        done = [n for n in state.index.running if starts[n] == hour - (1 if n == "meek" else 2)]
        state = run(state, *(end(name) for name in done), now_ns=now_ns)
        state = run(state, submit(f"p{hour}", 4, limit_s=2 * HOUR, priority=5), now_ns=now_ns)
        before = set(state.index.running)
        state = schedule(state, now_ns)
        starts |= dict.fromkeys(set(state.index.running) - before, hour)
    return starts


def test_starvation_is_bounded_where_waiting_counts() -> None:
    """After five hours nobody who comes is more important than `meek`; those who came
    before are few, and then it holds the reservation."""
    assert "meek" not in lived(TWO, 12)
    assert lived(replace(TWO, aging=Aging(HOUR, 1)), 12)["meek"] <= 5 + 4


SPOT = (PriorityClass("production", 100), PriorityClass("spot", 0, is_preemptible=True))


def test_waiting_puts_no_preemptible_job_before_those_that_would_evict_it() -> None:
    tenants = replace(TWO, classes=SPOT, aging=Aging(HOUR, 10))
    state = run(with_tenants(tenants), submit("spot", priority_class="spot"))
    late_ns = 100 * HOUR_NS
    state = run(state, submit("prod", priority_class="production"), now_ns=late_ns)
    assert queue_order(state, late_ns, SchedulingOptions()) == ["prod", "spot"]
    never = replace(tenants, preemption=Preemption(is_on=False))
    state = run(state, LoadTenants(never), now_ns=late_ns)
    assert queue_order(state, late_ns, SchedulingOptions()) == ["spot", "prod"]


@pytest.mark.parametrize("aging", [pytest.param(None, marks=pytest.mark.slow), Aging(HOUR, 3)])
def test_neighbours_that_wait_are_passed_over_and_looked_at_again_after_a_start(
    aging: Aging | None,
) -> None:
    """The jobs that an order shows when it may pass over all that wait are those that it shows
    when it may not, but for some that had to wait."""
    random = Random(7)
    tenants = Tenants(tuple(Tenant(f"t{i}", weight=i + 1) for i in range(3)), "t0", aging=aging)
    state = with_tenants(tenants)
    for i in range(1_500):
        job = submit(f"j{i}", tenant=f"t{random.randrange(3)}", priority=random.randrange(2))
        state = run(state, job, now_ns=i * HOUR_NS // 500)
    if aging is not None:  # those that were requeued wait for less long than their neighbours
        waiting = [state.jobs[name] for name in random.sample(tuple(state.index.queue), 40)]
        jobs = {j.name: replace(j, attempt=1, state_ns=2 * HOUR_NS) for j in waiting}
        state = replace(state, jobs=PersistentMap({**state.jobs, **jobs}))
    now_ns, policy = 9 * HOUR_NS, queue_policy("production")

    def shown(may_pass: bool) -> list[str]:
        queue = policy.order(policy.context(state, now_ns, SchedulingOptions(), state.free))
        names = []
        for job in queue.jobs(lambda *_: may_pass):
            names.append(job.name)
            if int(job.name[1:]) % 97 == 0:
                queue.record_allocation(job, 1)
        return names

    each, some = shown(False), shown(True)
    assert sorted(each) == sorted(state.index.queue)
    for name in each:
        if int(name[1:]) % 97 == 0 and name in some:  # what stands between starts may be passed
            assert set(some[: some.index(name)]) <= set(each[: each.index(name)])
    if aging is not None:
        now = {name: priority_of(state.jobs[name], tenants, now_ns) for name in each}
        assert [-now[name] for name in each] == sorted(-p for p in now.values())
    assert len(some) < len(each) / 10


def test_the_queue_by_tenant_follows_every_change() -> None:
    state = with_tenants(TWO)
    state.index.queue.by_group(lambda name: state.jobs[name].tenant)  # from here on it is kept
    for step in range(300):
        state = run(state, submit(f"j{step}", tenant="ab"[step % 3 % 2], priority=step % 5))
        if step % 4 == 3:
            state = run(state, cancel(f"j{step - 3}"))
    kept = state.index.queue.by_group(str)
    anew = NameList(state.index.queue).by_group(lambda name: state.jobs[name].tenant)
    assert dict(kept) == dict(anew)
