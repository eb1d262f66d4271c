"""As many slots are counted as jobs of that size start when they are submitted. Where hosts
are kept in the shape of cells the count is an estimate, and no more than what is free."""

from itertools import count

from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduler.core import JobState, Rejected, SchedulingOptions, State, admit, replay
from scheduler.core.explain.slots import Asker, slots
from scheduler.core.explain.whatif import run_to_rest
from scheduler.core.model.commands import Command, LoadTenants
from scheduler.core.names import DEFAULT_TENANT
from scheduler.core.policies.tenants import GuaranteedCell, PriorityClass, Tenant, Tenants
from scheduler.core.queue.policies import BUILT_IN
from tests.build import cordon, end, fabric, loaded, run, submit
from tests.property.driver import reached

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
HOSTS = loaded(fabric(2, 3, 2)).loaded_fabric.hosts
COMMANDS = st.one_of(
    st.builds(
        lambda name, hosts, tenant, limit_s: submit(name, hosts, tenant=tenant, limit_s=limit_s),
        st.sampled_from("stuvwxyz"),
        st.integers(1, 8),
        st.sampled_from(("a", "b", DEFAULT_TENANT)),
        st.sampled_from((None, 60, 3_600)),
    ),
    st.builds(end, st.sampled_from("stuvwxyz")),
    st.builds(cordon, st.sampled_from(HOSTS)),
)


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
@settings(max_examples=60, deadline=None)
@given(
    TREES,
    st.lists(COMMANDS, max_size=8),
    st.builds(
        Asker,
        st.sampled_from(("a", "b", DEFAULT_TENANT)),
        st.sampled_from(("low", "spot")),
        st.sampled_from((None, 60, 7_200)),
    ),
    st.sampled_from(list(BUILT_IN)),
)
def test_slots_are_what_repeated_submits_start(
    tree: tuple[Tenant, ...], commands: list[Command], asker: Asker, policy: str
) -> None:
    limits = SchedulingOptions(policy=policy)
    tenants = Tenants((*tree, Tenant(DEFAULT_TENANT)), classes=CLASSES)
    state = run(loaded(fabric(2, 3, 2)), LoadTenants(tenants))
    state = reached(state, commands, limits)
    found = slots(state, 0, limits, asker, (8, 16, 24, 40))
    for slot in found.counts:
        assert slot.in_all * slot.hosts <= found.free_hosts
        if not any(tenant.cells for tenant in tree):
            assert slot.in_all == submitted(state, slot.hosts, asker, limits), slot
    assert found.room == found.counts[0].in_all
