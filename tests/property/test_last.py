"""A plan that says it is the last leaves nothing to start to the next decision."""

from hypothesis import given, settings
from hypothesis import strategies as st

from placement.fabric.constraints import ANYWHERE, Constraints
from scheduler.core import SchedulingOptions, State, decide, replay
from scheduler.core.model.commands import LoadTenants
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.plan import Start
from scheduler.core.policies.tenants import OPEN, Aging, Tenant, Tenants
from tests.build import committed, end, fabric, loaded, run, submit

EMPTY = loaded(fabric(2, 2, 4))
PAIR = (Tenant("a"), Tenant("b", weight=2))
PLAIN = (OPEN, Tenants(PAIR, "a"), Tenants(PAIR, "a", aging=Aging(10)))

# (hosts, limit in s, priority, the tier that it must lie inside)
JOB = st.tuples(
    st.integers(1, 12),
    st.integers(1, 60),
    st.integers(0, 2),
    st.sampled_from([None, None, None, "zone", "rack"]),
)
BATCH = st.lists(JOB, min_size=1, max_size=12)


def arrived(state: State, batch: list[tuple[int, int, int, str | None]], now_s: int) -> State:
    for at, (hosts, limit_s, priority, tier) in enumerate(batch):
        where = Constraints(same=tier or "") if hosts <= (4 if tier == "rack" else 8) else ANYWHERE
        name = f"j{now_s}-{at}"
        tenant = "b" if len(state.tenants.tenants) > 1 and at % 3 == 1 else ""
        asked = submit(name, hosts, limit_s=limit_s, priority=priority, where=where, tenant=tenant)
        state = run(state, asked, now_ns=now_s * SECOND_NS)
    return state


@settings(max_examples=50)
@given(
    st.lists(st.tuples(BATCH, st.integers(0, 5)), min_size=1, max_size=5),
    st.sampled_from(["production", "easy", "fifo"]),
    st.sampled_from([4, 128]),
    st.sampled_from(PLAIN),
)
def test_after_a_last_plan_nothing_starts(
    rounds: list[tuple[list[tuple[int, int, int, str | None]], int]],
    policy: str,
    batch: int,
    tenants: Tenants,
) -> None:
    limits = SchedulingOptions(policy=policy, batch_hosts=batch)
    state = run(EMPTY, LoadTenants(tenants))
    for now_s, (jobs, ending) in enumerate(rounds):
        now_ns = now_s * 10 * SECOND_NS
        for name in state.index.running[:ending]:
            state = run(state, end(name), now_ns=now_ns)
        state, plan = arrived(state, jobs, now_s * 10), None
        while plan is None or plan.actions:
            plan = decide(state, now_ns, limits)
            before, state = state, replay(committed(state, plan, now_ns), state)
            if plan.is_fixpoint and plan.leaves_nothing(before.version, state.version):
                assert decide(state, now_ns, limits).actions == ()


def test_a_plan_is_the_last_when_all_of_a_queue_was_asked() -> None:
    state = arrived(EMPTY, [(10, 60, 0, None), (10, 60, 0, None), (2, 60, 0, None)], 0)
    plan = decide(state, 0, SchedulingOptions(policy="easy"))
    assert [action.name for action in plan.actions if isinstance(action, Start)] == ["j0-0", "j0-2"]
    assert plan.is_fixpoint
    assert plan.leaves_nothing(plan.version, plan.version + 2)
    assert not plan.leaves_nothing(plan.version, plan.version + 1)  # one of them fell
    assert not plan.leaves_nothing(plan.version + 1, plan.version + 3)  # something came between


def test_where_another_job_is_first_then_a_plan_is_not_the_last() -> None:
    """While tenant a is first nobody may outlast its gang's start; once it has backfilled, tenant
    b is first, and its small job has no reservation before it."""
    tenants = Tenants((Tenant("a"), Tenant("b")), "a")
    state = arrived(run(EMPTY, LoadTenants(tenants)), [(5, 30, 0, None), (6, 30, 0, None)], 0)
    state = replay(committed(state, decide(state, 0, SchedulingOptions())), state)
    state = arrived(state, [(16, 60, 0, None), (1, 60, 0, None), (4, 15, 0, None)], 10)
    plan = decide(state, 10 * SECOND_NS, SchedulingOptions())
    assert [action.name for action in plan.actions if isinstance(action, Start)] == ["j10-2"]
    assert not plan.is_fixpoint
    state = replay(committed(state, plan, 10 * SECOND_NS), state)
    again = decide(state, 10 * SECOND_NS, SchedulingOptions())
    assert [action.name for action in again.actions if isinstance(action, Start)] == ["j10-1"]


def test_a_plan_that_stopped_early_is_not_the_last() -> None:
    state = arrived(EMPTY, [(2, 60, 0, None)] * 3, 0)
    assert not decide(state, 0, SchedulingOptions(batch_hosts=2)).is_fixpoint
