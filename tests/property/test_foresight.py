"""What is said beforehand of any cluster comes true: how many jobs of a size would start, when
those that wait would, and what if.

Where hosts are kept in the shape of cells the count is an estimate, and no more than what is free.
"""

from collections.abc import Callable
from itertools import count

from hypothesis import example, given, settings
from hypothesis import strategies as st

from placement.errors import BadInput
from scheduler.core import JobState, Rejected, SchedulingOptions, State, admit, replay
from scheduler.core.explain.explain import Reasons
from scheduler.core.explain.forecast import forecast
from scheduler.core.explain.slots import Asker, slots
from scheduler.core.explain.whatif import run_to_rest, what_if
from scheduler.core.model.commands import Command, HoldJob, LoadTenants
from scheduler.core.names import DEFAULT_TENANT
from scheduler.core.policies.tenants import GuaranteedCell, PriorityClass, Tenant, Tenants
from scheduler.core.queue.policies import BUILT_IN
from tests.build import (
    cancel,
    cordon,
    drain,
    end,
    fabric,
    fail,
    loaded,
    queue_order,
    run,
    submit,
    uncordon,
)
from tests.property.driver import reached, tried
from tests.windows import set_window

EMPTY = loaded(fabric(2, 3, 2))
HOSTS = st.sampled_from(EMPTY.loaded_fabric.hosts)
NAMES = st.sampled_from("stuvwxyz")
TENANTS = st.sampled_from(("a", "b", DEFAULT_TENANT))
POLICIES = st.sampled_from(sorted(BUILT_IN))
CLASSES = (PriorityClass("spot", -1, is_preemptible=True), PriorityClass("low", -1))
TREES = st.sampled_from(
    (
        (Tenant("a"), Tenant("b")),
        (Tenant("a", guaranteed_gpus=4 * 8), Tenant("b", limit_gpus=5 * 8)),
        (Tenant("a", cells=(GuaranteedCell("zone", 1, 3),)), Tenant("b", guaranteed_gpus=2 * 8)),
        (
            Tenant("a", cells=(GuaranteedCell("rack", 2),)),
            Tenant("b", cells=(GuaranteedCell("zone", 1, 4),)),
        ),
        (Tenant("p", limit_gpus=48), Tenant("a", "p", 16), Tenant("b", "p", 16, 24)),
    )
)
PLAIN = st.one_of(
    st.builds(
        submit,
        NAMES,
        st.integers(1, 8),
        tenant=TENANTS,
        limit_s=st.sampled_from((None, 60, 3_600)),
    ),
    st.builds(end, NAMES),
    st.builds(cordon, HOSTS),
)
ANY = st.one_of(
    PLAIN,
    st.builds(
        lambda name, hosts, level, least: submit(
            name, hosts, priority_class=level, limit_s=600, min_dp=min(least, hosts)
        ),
        NAMES,
        st.integers(1, 12),
        st.sampled_from(("spot", "low", "")),
        st.integers(0, 2),
    ),
    st.builds(HoldJob, NAMES),
    st.builds(fail, HOSTS),
    st.builds(drain, HOSTS),
    st.builds(
        lambda name, start_s: set_window(name, name, start_s=start_s, end_s=start_s + 900),
        st.sampled_from(("z0", "z1-r1")),
        st.integers(1, 4_000),
    ),
)


def cluster(tree: tuple[Tenant, ...], commands: list[Command], options: SchedulingOptions) -> State:
    tenants = Tenants((*tree, Tenant(DEFAULT_TENANT)), classes=CLASSES)
    return reached(run(EMPTY, LoadTenants(tenants)), commands, options)


def submitted(state: State, hosts: int, asker: Asker, options: SchedulingOptions) -> int:
    """Jobs that start, submitted one after the other until one does not."""
    for started in count():
        job = submit(
            f"probe-{started}",
            hosts,
            tenant=asker.tenant,
            priority_class=asker.priority_class,
            limit_s=asker.time_limit_s,
        )
        events = admit(state, job, 0)
        if isinstance(events, Rejected):
            return started
        state = run_to_rest(replay(events, state), 0, options)
        if state.jobs[f"probe-{started}"].state is not JobState.RUNNING:
            return started
    raise AssertionError


# A job that waits for a guarantee has its hosts from now on, under `conservative`.
@example(
    (Tenant("a", guaranteed_gpus=32), Tenant("b", limit_gpus=40)),
    [
        submit("s", 1, tenant="b", limit_s=60),
        submit("t", 1, tenant="b", limit_s=60),
        submit("u", 8, tenant=DEFAULT_TENANT),
    ],
    Asker("a", "low", None),
    "conservative",
)
# A gang of the tenant that ends before a job waits no longer counts against its guarantee then: the
# second start is covered once the first has been decided on, and not before.
@example(
    (Tenant("a", guaranteed_gpus=32), Tenant("b", limit_gpus=40)),
    [
        submit("s", 8, tenant="a", limit_s=60),
        *map(cordon, ("z0-r0-h0", "z0-r0-h1", "z0-r2-h1", "z1-r1-h1")),
        submit("t", 3, tenant="b"),
    ],
    Asker("a", "low", None),
    "easy",
)
@settings(max_examples=30)
@given(
    TREES,
    st.lists(PLAIN, max_size=8),
    st.builds(Asker, TENANTS, st.sampled_from(("low", "spot")), st.sampled_from((None, 60, 7_200))),
    POLICIES,
)
def test_slots_are_what_repeated_submits_start(
    tree: tuple[Tenant, ...], commands: list[Command], asker: Asker, policy: str
) -> None:
    """Where a guarantee covers the asker's jobs they are as many at least."""
    options = SchedulingOptions(policy=policy)
    state = cluster(tree, commands, options)
    found = slots(state, 0, options, asker, (8, 16, 24, 40))
    for slot in found.counts:
        assert slot.in_all * slot.hosts <= found.free_hosts
        if not any(tenant.cells for tenant in tree):
            started = submitted(state, slot.hosts, asker, options)
            path = state.tenants.path(asker.tenant)
            is_least = any(tenant.guaranteed_gpus for tenant in tree if tenant.name in path)
            assert slot.in_all <= started, slot
            assert is_least or slot.in_all == started, slot
    assert found.room == found.counts[0].in_all


@settings(max_examples=40)
@given(TREES, st.lists(ANY, min_size=4, max_size=24), POLICIES)
def test_a_forecast_ends_and_has_the_start_of_the_first(
    tree: tuple[Tenant, ...], commands: list[Command], policy: str
) -> None:
    """Where the first that waits has no start in it, it has no room as things are."""
    options = SchedulingOptions(policy=policy)
    state = cluster(tree, commands, options)
    ahead = forecast(state, 0, options)
    assert ahead.waiting == {*state.index.queue, *state.index.deferred}
    assert ahead.starts.keys() <= ahead.waiting
    assert ahead.until_ns is None
    reasons = Reasons(state, 0, options)
    for name, start in ahead.starts.items():
        assert 0 <= start.start_ns < start.end_ns
        assert ahead.chain(name)[-1] is start
    first = queue_order(state, 0, options)[:1]
    for name in set(first) - ahead.starts.keys():
        assert reasons.of(name).start_ns is None, reasons.of(name).sentence


IN_EARNEST: dict[str, Callable[[str], Command]] = {
    "cordon": cordon,
    "drain": drain,
    "uncordon": uncordon,
    "fail": lambda host: fail(host, "host-down"),
    "cancel": cancel,
}
CONDITIONS = st.one_of(
    st.tuples(st.sampled_from(("cordon", "drain", "uncordon", "fail")), HOSTS),
    st.tuples(st.just("cancel"), NAMES),
)


@settings(max_examples=40)
@given(
    TREES,
    st.lists(ANY, min_size=3, max_size=14),
    st.lists(CONDITIONS, min_size=1, max_size=3),
    POLICIES,
)
def test_a_what_if_changes_nothing_and_comes_true(
    tree: tuple[Tenant, ...],
    commands: list[Command],
    conditions: list[tuple[str, str]],
    policy: str,
) -> None:
    """Two thirds of the commands are decided on, the last third has only just come."""
    options, decided = SchedulingOptions(policy=policy), len(commands) * 2 // 3
    state, again = (
        tried(cluster(tree, commands[:decided], options), 0, *commands[decided:]) for _ in range(2)
    )
    for name in state.jobs:
        try:
            answer = what_if(state, name, [f"{v} {what}" for v, what in conditions], 0, options)
        except BadInput:
            assert state == again
            continue
        earnest = state
        for verb, what in conditions:
            events = admit(earnest, IN_EARNEST[verb](what), 0)
            assert not isinstance(events, Rejected)
            earnest = replay(events, earnest)
        assert answer.job == run_to_rest(earnest, 0, options).find(name)
        assert state == again
        is_running = answer.job.state is JobState.RUNNING
        assert answer.sentence.startswith(("would start now", "would run")) == is_running
