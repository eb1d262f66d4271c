"""A forecast ends, whatever stands in the queue, and where the first that waits has no start in it,
it has no room as things are."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler.core import SchedulingOptions
from scheduler.core.explain.explain import Reasons
from scheduler.core.explain.forecast import forecast
from scheduler.core.model.commands import Command, HoldJob, LoadTenants
from scheduler.core.names import DEFAULT_TENANT
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.core.queue.policies import BUILT_IN
from tests.build import cordon, drain, fabric, fail, loaded, queue_order, run, submit
from tests.property.driver import reached
from tests.property.test_slots import CLASSES, COMMANDS, HOSTS, TREES
from tests.windows import set_window

MORE = st.one_of(
    COMMANDS,
    st.builds(
        lambda name, hosts, level, most: submit(
            name, hosts, priority_class=level, limit_s=600, min_dp=min(most, hosts)
        ),
        st.sampled_from("stuvwxyz"),
        st.integers(1, 12),
        st.sampled_from(("spot", "low", "")),
        st.integers(0, 2),
    ),
    st.builds(HoldJob, st.sampled_from("stuvwxyz")),
    st.builds(fail, st.sampled_from(HOSTS)),
    st.builds(drain, st.sampled_from(HOSTS)),
    st.builds(cordon, st.sampled_from(HOSTS)),
    st.builds(
        lambda name, start_s: set_window(name, name, start_s=start_s, end_s=start_s + 900),
        st.sampled_from(("z0", "z1-r1")),
        st.integers(1, 4_000),
    ),
)


@given(TREES, st.lists(MORE, min_size=4, max_size=24), st.sampled_from(sorted(BUILT_IN)))
def test_a_forecast_ends_and_has_the_start_of_the_first(
    tree: tuple[Tenant, ...], commands: list[Command], policy: str
) -> None:
    limits = SchedulingOptions(policy=policy)
    tenants = Tenants((*tree, Tenant(DEFAULT_TENANT)), classes=CLASSES)
    state = run(loaded(fabric(2, 3, 2)), LoadTenants(tenants))
    state = reached(state, commands, limits)
    ahead = forecast(state, 0, limits)
    assert ahead.waiting == {*state.index.queue, *state.index.deferred}
    assert ahead.starts.keys() <= ahead.waiting
    assert ahead.until_ns is None
    reasons = Reasons(state, 0, limits)
    for name, start in ahead.starts.items():
        assert 0 <= start.start_ns < start.end_ns
        assert ahead.chain(name)[-1] is start
    first = queue_order(state, 0, limits)[:1]
    for name in set(first) - ahead.starts.keys():
        assert reasons.of(name).start_ns is None, reasons.of(name).sentence
