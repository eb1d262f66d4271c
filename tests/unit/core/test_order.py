"""Priority, then fair share, then arrival; and waiting that counts."""

from dataclasses import replace
from random import Random

import pytest

from scheduler.core import SchedulingOptions, State, decide
from scheduler.core.collections.name_list import NameList
from scheduler.core.collections.persistent_map import PersistentMap
from scheduler.core.model.commands import LoadTenants
from scheduler.core.model.plan import Start
from scheduler.core.policies.tenants import Aging, Preemption, PriorityClass, Tenant, Tenants
from scheduler.core.queue.policies import queue_policy
from scheduler.core.queue.policies.production import priority_of
from tests.build import (
    HOUR_NS,
    cancel,
    end,
    fabric,
    loaded,
    queue_order,
    run,
    running,
    schedule,
    settled,
    submit,
)

HOUR = 3_600
TWO = Tenants((Tenant("a"), Tenant("b")), "a", half_life_s=HOUR)
EIGHT = loaded(fabric(2, 2, 2))


def order(state: State, now_ns: int = 0) -> list[str]:
    return queue_order(state, now_ns, SchedulingOptions())


def with_tenants(tenants: Tenants) -> State:
    return run(EIGHT, LoadTenants(tenants))


def test_equal_tenants_take_turns_as_they_start() -> None:
    """Counted by hosts, at once: a's first two hosts are worth two turns of b."""
    state = with_tenants(TWO)
    jobs = [submit(f"a{i}", 2, tenant="a") for i in range(3)]
    jobs += [submit(f"b{i}", 1, tenant="b") for i in range(4)]
    plan = decide(run(state, *jobs), 0, SchedulingOptions())
    starts = [action.name for action in plan.actions if isinstance(action, Start)]
    assert starts == ["a0", "b0", "b1", "a1", "b2", "b3", "a2"][: len(starts)]
    assert len(starts) >= 6


def test_weights_are_shares() -> None:
    tenants = Tenants((Tenant("a", weight=3), Tenant("b")), "a")
    jobs = [submit(f"{t}{i}", 1, tenant=t) for i in range(8) for t in "ba"]
    plan = decide(run(with_tenants(tenants), *jobs), 0, SchedulingOptions())
    starts = [action.name[0] for action in plan.actions if isinstance(action, Start)]
    assert (starts.count("a"), starts.count("b")) == (6, 2)


def test_who_is_below_its_guarantee_comes_first() -> None:
    tenants = Tenants((Tenant("a", guaranteed_gpus=32), Tenant("b")), "a")
    state = schedule(run(with_tenants(tenants), submit("x", 2, tenant="a")))
    state = run(state, submit("b", tenant="b"), submit("a", tenant="a"))
    assert order(state) == ["a", "b"]


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
    assert order(state) == ["p", "r"]


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
    assert "meek" not in lived(TWO, 40)
    assert lived(replace(TWO, aging=Aging(HOUR, 1)), 40)["meek"] <= 5 + 4


SPOT = (PriorityClass("production", 100), PriorityClass("spot", 0, is_preemptible=True))


def test_waiting_puts_no_preemptible_job_before_those_that_would_evict_it() -> None:
    tenants = replace(TWO, classes=SPOT, aging=Aging(HOUR, 10))
    state = run(with_tenants(tenants), submit("spot", priority_class="spot"))
    late_ns = 100 * HOUR_NS
    state = run(state, submit("prod", priority_class="production"), now_ns=late_ns)
    assert order(state, late_ns) == ["prod", "spot"]
    never = replace(tenants, preemption=Preemption(is_on=False))
    state = run(state, LoadTenants(never), now_ns=late_ns)
    assert order(state, late_ns) == ["spot", "prod"]


def preemptions(aging: Aging | None) -> int:
    """Two spot gangs of half the cluster each, and every four hours a production job of half,
    which runs until the next one comes."""
    tenants = replace(TWO, classes=SPOT, aging=aging)
    state = run(
        with_tenants(tenants), *(submit(f"s{i}", 4, priority_class="spot") for i in range(2))
    )
    state, evicted = settled(state), 0
    for turn in range(12):
        now_ns = (1 + 4 * turn) * HOUR_NS
        done = [name for name in state.index.running if name.startswith("p")]
        new = submit(f"p{turn}", 4, priority_class="production", limit_s=4 * HOUR)
        state = run(state, *map(end, done), new, now_ns=now_ns)
        before = running(state)
        state = settled(state, now_ns)
        evicted += len(before - running(state))
    return evicted


def test_aging_makes_no_churn_of_preemption() -> None:
    assert preemptions(None) == 1
    assert preemptions(Aging(HOUR, 100)) == 1


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
    assert isinstance(state.index.queue, NameList)
    state.index.queue.by_group(lambda name: state.jobs[name].tenant)  # from here on it is kept
    for step in range(300):
        state = run(state, submit(f"j{step}", tenant="ab"[step % 3 % 2], priority=step % 5))
        if step % 4 == 3:
            state = run(state, cancel(f"j{step - 3}"))
    assert isinstance(state.index.queue, NameList)
    kept = state.index.queue.by_group(str)
    anew = NameList(state.index.queue).by_group(lambda name: state.jobs[name].tenant)
    assert dict(kept) == dict(anew)
