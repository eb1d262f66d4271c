"""Whatever happens to jobs, their accounts hold all of their time and no more."""

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core import State, Tenants, apply
from scheduler.core.fold.goodput import sum_accounts
from scheduler.core.model.events import Event
from scheduler.core.model.job_account import shown
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.records.goodput import NOTHING, PARTS
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.tenants import Preemption, PriorityClass
from tests.build import cancel, drain, end, exactly, fail, repair, submit
from tests.replays import machine, run_script

S = 10**9
HOSTS = 6
NAMES = ("a", "b", "c")
COSTS = st.builds(Costs, st.integers(0, 40), st.integers(0, 20), st.integers(0, 20))
COMMANDS = st.one_of(
    st.builds(
        lambda name, hosts, spares, spot: submit(
            name, hosts, gpus=1, spares=exactly(spares), priority_class="spot" if spot else ""
        ),
        *(st.sampled_from(NAMES), st.integers(1, 4), st.integers(0, 2), st.booleans()),
    ),
    st.builds(end, st.sampled_from(NAMES)),
    st.builds(lambda name: end(name, JobState.FAILED), st.sampled_from(NAMES)),
    st.builds(cancel, st.sampled_from(NAMES)),
    *(
        st.builds(move, st.sampled_from([f"z0-h{i}" for i in range(HOSTS)]))
        for move in (fail, repair, drain)
    ),
)
SCRIPTS = st.lists(st.tuples(st.integers(0, 300), COMMANDS), min_size=3, max_size=40)


@settings(max_examples=50)
@given(SCRIPTS, COSTS, st.integers(0, 7))
def test_the_parts_of_each_job_are_the_time_since_its_submit(
    script: list[tuple[int, object]], costs: Costs, decision_s: int
) -> None:
    """At every event, to the nanosecond; of hosts against a count of hosts held."""
    classes = (PriorityClass("spot", -1, is_preemptible=True),)
    tenants = Tenants(classes=classes, preemption=Preemption(min_run_s=0, costs=costs))
    timed = sorted(((at * S, command) for at, command in script), key=lambda item: item[0])
    log = run_script(machine(HOSTS), timed, tenants=tenants, decision_ns=decision_s * S)  # type: ignore[arg-type]
    count, state, before = _Count(), State.empty(), NOTHING
    for event in log:
        count.until(state, event)
        state = apply(state, event)
        now = sum_accounts(state, event.time_ns)
        assert all(getattr(now, part) >= getattr(before, part) for part in PARTS)
        before = now
    end_ns = log[-1].time_ns + 77
    ends = [(job, end_ns) for job in state.jobs.values()]
    ends += [(job, job.state_ns) for job in state.ended.values()]
    for job, until_ns in ends:
        account = shown(job, end_ns, costs)
        assert account.time.total == until_ns - job.submit_ns
        assert all(getattr(account.time, part) >= 0 for part in PARTS)
    live = sum((shown(job, log[-1].time_ns, costs).hosts for job in state.jobs.values()), NOTHING)
    whole = live + state.spent
    assert whole.holding == count.held_ns
    assert whole.running == count.running_ns
    assert whole.spare == count.spare_ns


class _Count:
    """Host time from the states between events, by a rule that knows no accounts."""

    def __init__(self) -> None:
        self.held_ns = self.running_ns = self.spare_ns = self._now_ns = 0

    def until(self, state: State, event: Event) -> None:
        elapsed_ns, self._now_ns = event.time_ns - self._now_ns, event.time_ns
        running = state.in_state(JobState.RUNNING)
        self.held_ns += elapsed_ns * state.index.held.bit_count()
        self.running_ns += elapsed_ns * sum(len(job.hosts) for job in running)
        self.spare_ns += elapsed_ns * sum(len(job.spares) for job in state.jobs.values())
