"""Neighbours in the queue that are passed over together would not have started one by one, and a
plan that says it is the last leaves nothing to start to the next decision."""

import gc
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.fabric.constraints import Constraints
from scheduler.core import Plan, SchedulingOptions, State, decide, replay
from scheduler.core.collections import name_list
from scheduler.core.collections.name_list import Chunk, NameList
from scheduler.core.model.commands import LoadTenants, UpdateJob
from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.model.plan import Start
from scheduler.core.policies.tenants import OPEN, Aging, PriorityClass, Tenant, Tenants
from scheduler.core.queue import cycle
from scheduler.core.queue.cycle import SchedulingCycle
from scheduler.core.queue.equivalence import EquivalenceCache, outermost
from tests.build import committed, end, fabric, fail, loaded, repair, run, spec, submit
from tests.property.driver import tried

EMPTY = loaded(fabric(2, 2, 4))
SPOT = PriorityClass("spot", -1, is_preemptible=True)
PLAIN = (
    OPEN,
    replace(OPEN, classes=(SPOT,)),
    Tenants((Tenant("a", limit_gpus=104),), "a", (SPOT,)),
    Tenants((Tenant("a"), Tenant("b", weight=2)), "a"),
    Tenants((Tenant("a", guaranteed_gpus=32), Tenant("b", limit_gpus=96)), "a", (SPOT,)),
    replace(OPEN, classes=(SPOT,), aging=Aging(10)),
    Tenants((Tenant("a"), Tenant("b", guaranteed_gpus=48)), "a", (SPOT,), aging=Aging(20)),
)

# (hosts, limit in s, priority or class, least replicas of an elastic one, tier that it must lie in)
JobDrawn = tuple[int, int | None, int | str, int, str]
JOB = st.tuples(
    st.integers(1, 16),
    st.sampled_from([None, 5, 20, 60, 300]),
    st.sampled_from([0, 0, 0, 1, "spot"]),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from(["", "", "", "zone", "rack"]),
)
ROUND = st.tuples(
    st.lists(JOB, max_size=14),
    st.integers(0, 4),  # gangs that end
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from([1, 60, 900])), max_size=2),
    st.sampled_from([None, None, None, 0, 7]),  # a host that fails, and is repaired
)


def arrived(state: State, now_s: int, at: int, job: JobDrawn) -> State:
    hosts, limit_s, level, min_dp, tier = job
    asked = spec(f"j{now_s}-{at}", hosts, limit_s=limit_s, min_dp=min_dp)
    if hosts <= (4 if tier == "rack" else 8):
        where = Constraints(same=tier)
        asked = replace(asked, request=replace(asked.request, where=where))
    if isinstance(level, str):
        asked = replace(asked, priority_class=level if state.tenants.has_preemptible else "")
    else:
        asked = replace(asked, priority=level)
    names = [tenant.name for tenant in state.tenants.tenants]
    asked = replace(asked, tenant=names[(at + hosts) % len(names)])
    return tried(state, now_s * SECOND_NS, replace(submit("x"), spec=asked, uid=asked.name))


def check_found(state: State) -> None:
    """What stands with each part of the queue is what would be found now."""
    assert isinstance(state.index.queue, NameList)
    for part in state.index.queue.parts:
        assert [name for block in part.blocks for name in block] == list(part)
        assert part.block_ends == [*accumulate(len(block) for block in part.blocks)]
        for limit_s in (None, 0, 5, 20, 59, 60, 300):
            limit_ns = None if limit_s is None else limit_s * SECOND_NS
            kept, fresh = outermost(part, state.jobs, limit_ns), Chunk(part)
            fresh._blocks = (fresh,)  # of all jobs at once
            assert shown(kept) == shown(outermost(fresh, state.jobs, limit_ns))


def shown(jobs: Iterable[Job]) -> list[Any]:
    """What a decision makes of jobs: who is who of those that are alike is all one."""
    return sorted(
        {repr((j.likeness, j.limit_ns, j.needed, j.sizes, bool(j.strikes))) for j in jobs}
    )


def every_job(desk: SchedulingCycle) -> Iterator[Job]:
    return desk.order.jobs(lambda *_: False)


def never(*_: object) -> bool:
    return False


@settings(max_examples=25)
@given(
    st.lists(ROUND, min_size=1, max_size=6),
    st.sampled_from(["production", "easy", "fifo"]),
    st.sampled_from([4, 128]),
    st.sampled_from([1, 3]),
    st.sampled_from(PLAIN),
)
def test_a_plan_is_the_same_as_one_by_one_and_after_the_last_nothing_starts(
    rounds: list[tuple[list[JobDrawn], int, list[tuple[int, int]], int | None]],
    policy: str,
    batch: int,
    few: int,
    tenants: Tenants,
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(name_list, "MOST", 8)
        patched.setattr(name_list, "BLOCK", 2)
        patched.setattr(cycle, "FEW_STARTABLE", few)
        patched.setattr(cycle, "MOST_STARTABLE", 2 * few)
        limits = SchedulingOptions(policy=policy, batch_hosts=batch)
        state = run(EMPTY, LoadTenants(tenants))
        for at, (jobs, ending, updates, host) in enumerate(rounds):
            now_s = 10 * at
            now_ns = now_s * SECOND_NS
            gone = [end(name) for name in state.index.running[:ending]]
            state = tried(state, now_ns, *gone)
            for number, job in enumerate(jobs):
                state = arrived(state, now_s, number, job)
            for number, limit_s in updates:
                queued = tuple(state.index.queue)
                if queued:
                    name = queued[number % len(queued)]
                    longer = UpdateJob(name, ("time_limit_s",), time_limit_s=limit_s)
                    state = tried(state, now_ns, longer)
            if host is not None:
                state = tried(
                    state, now_ns, fail(f"z0-r0-h{host % 4}"), repair(f"z0-r0-h{host % 4}")
                )
            plan = None
            while plan is None or plan.actions:
                check_found(state)
                plan = decide(state, now_ns, limits)
                with pytest.MonkeyPatch.context() as one_by_one:
                    one_by_one.setattr(SchedulingCycle, "_jobs_to_ask", every_job)
                    one_by_one.setattr(sys.modules[decide.__module__], "_lacks_hosts", never)
                    assert decide(state, now_ns, limits) == plan
                version = state.version
                state = replay(committed(state, plan, now_ns), state)
                if plan.is_fixpoint and plan.leaves_nothing(version, state.version):
                    again = decide(state, now_ns, limits)
                    assert not again.actions
                    assert again.next_decision_ns == plan.next_decision_ns


def started_by(plan: Plan) -> list[str]:
    return [action.name for action in plan.actions if isinstance(action, Start)]


def test_a_plan_is_the_last_when_all_of_a_queue_was_asked() -> None:
    jobs = [submit(f"j{at}", hosts, limit_s=60) for at, hosts in enumerate((10, 10, 2))]
    plan = decide(run(EMPTY, *jobs), 0, SchedulingOptions(policy="easy"))
    assert started_by(plan) == ["j0", "j2"]
    assert plan.is_fixpoint
    assert plan.leaves_nothing(plan.version, plan.version + 2)
    assert not plan.leaves_nothing(plan.version, plan.version + 1)  # one of them fell
    assert not plan.leaves_nothing(plan.version + 1, plan.version + 3)  # something came between
    assert not decide(run(EMPTY, *jobs), 0, SchedulingOptions(batch_hosts=2)).is_fixpoint


def test_where_another_job_is_first_then_a_plan_is_not_the_last() -> None:
    """While tenant a is first nobody may outlast its gang's start; once it has backfilled, tenant
    b is first, and its small job has no reservation before it."""
    tenants, later = Tenants((Tenant("a"), Tenant("b")), "a"), 10 * SECOND_NS
    early = [submit("e", 5, limit_s=30), submit("f", 6, limit_s=30, tenant="b")]
    late = [
        submit("g", 16, limit_s=60),
        submit("h", 1, limit_s=60, tenant="b"),
        submit("i", 4, limit_s=15),
    ]
    state = run(EMPTY, LoadTenants(tenants), *early)
    state = replay(committed(state, decide(state, 0, SchedulingOptions())), state)
    state = run(state, *late, now_ns=later)
    plan = decide(state, later, SchedulingOptions())
    assert started_by(plan) == ["i"]
    assert not plan.is_fixpoint
    state = replay(committed(state, plan, later), state)
    assert started_by(decide(state, later, SchedulingOptions())) == ["h"]


def test_of_a_long_queue_few_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sizes that are too large and one that would last too long, three thousand in all."""
    waiting = ((2, 60, 0, 0, ""), (5, 900, 0, 0, ""), (1, 7_200, 0, 0, ""))
    state = run(EMPTY, submit("long", 15, limit_s=3_600))
    state = replay(committed(state, decide(state, 0, SchedulingOptions())), state)
    state = run(state, submit("first", 16, limit_s=60))
    for at in range(3_000):
        state = arrived(state, 0, at, waiting[at % 3])
    asked = list[str]()
    each = SchedulingCycle._waits_again

    def counted(cycle: SchedulingCycle, job: Job) -> bool:
        asked.append(job.name)
        return each(cycle, job)

    monkeypatch.setattr(SchedulingCycle, "_waits_again", counted)
    plan = decide(state, 0, SchedulingOptions())

    assert not plan.actions
    assert len(asked) < 20


def desks() -> set[SchedulingCycle | EquivalenceCache]:
    # By type(): isinstance asks weak proxies of others, which may have lost what they stood for.
    return {
        found for found in gc.get_objects() if type(found) in (SchedulingCycle, EquivalenceCache)
    }


def test_nothing_of_a_decision_is_left_to_the_collector_of_cycles() -> None:
    """In a server that looks for cycles hardly ever, each decision would keep its state."""
    state = run(EMPTY, *(submit(f"j{at}", 9) for at in range(9)))
    gc.collect()
    gc.disable()
    try:
        before = desks()  # of whoever holds some
        assert decide(state, 0, SchedulingOptions()).actions
        assert desks() == before
    finally:
        gc.enable()
