"""Constraints over random commands: what every gang wanted of its hosts, it has, and keeps.

Kept is judged from the definition, host by host, and not by the functions that decide.
"""

from fnmatch import fnmatchcase
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from placement.fabric.constraints import Constraints
from placement.fabric.reader import from_spec
from placement.workload.request import AUTO
from scheduler.core import (
    Conflict,
    Job,
    JobState,
    Rejected,
    SchedulingOptions,
    State,
    admit,
    commit,
    decide,
    explain,
    replay,
)
from scheduler.core.model.commands import Command
from scheduler.core.model.events import Event, FabricLoaded
from scheduler.core.model.job import SECOND_NS
from scheduler.core.policies.affinity import Affinity
from scheduler.core.queue.policies import BUILT_IN
from scheduler.eventlog.codec import decode, encode
from tests.build import cancel, drain, end, exactly, fabric_spec, fail, repair, submit, uncordon

SPEC = {
    **fabric_spec(zones=3, racks=2, hosts=2),
    "labels": {"z[0-1]": {"gpu": "a"}, "z2": {"gpu": "b"}, "z0-r0": {"gpu": "b"}},
}
FABRIC = from_spec(SPEC)
NAMES = st.sampled_from(("a1", "a2", "b1", "b2", "c1", "c2"))
HOSTS = st.sampled_from(FABRIC.hosts)
TIERS = st.sampled_from(("", "zone", "rack"))
WHERE = st.builds(
    Constraints,
    st.sampled_from((0, 0, 1, 2)),
    TIERS,
    st.sampled_from(((), (), (("gpu", "a"),), (("gpu", "b"),))),
)
AVOID = st.sampled_from(((), (), (("zone", ("a*",)),), (("rack", ("b1", "c?")),)))
NEIGHBOURS = st.builds(Affinity, TIERS, AVOID, st.sampled_from(("", "", "a1", "b2")))
SUBMITS = st.builds(
    submit,
    NAMES,
    st.sampled_from((1, 2, 3, 4, 6)),
    limit_s=st.sampled_from((None, 10, 100)),
    priority=st.integers(0, 1),
    spares=st.sampled_from((exactly(0), exactly(1), AUTO)),
    where=WHERE,
    affinity=NEIGHBOURS,
)
COMMANDS = st.one_of(
    SUBMITS,
    SUBMITS,
    SUBMITS,
    st.builds(cancel, NAMES),
    st.builds(end, NAMES),
    st.builds(fail, HOSTS),
    st.builds(repair, HOSTS),
    st.builds(drain, HOSTS),
    st.builds(uncordon, HOSTS),
)
STEPS = st.lists(st.tuples(COMMANDS, st.integers(0, 2), st.integers(0, 20)), max_size=25)


def domains(job: Job, tier: str) -> set[str]:
    depth = {"zone": 0, "rack": 1}[tier]
    return {FABRIC.domain(host, depth) for host in job.hosts + job.spares}


def check_own(job: Job) -> None:
    """Labels, one domain, few zones."""
    where = job.spec.request.where
    for key, value in where.labels:
        for host in job.hosts + job.spares:
            assert FABRIC.labels[key][value] >> host & 1
    if where.same:
        assert len(domains(job, where.same)) == 1
    if where.max_zones:
        assert len(domains(job, "zone")) <= where.max_zones


def check_pair(one: Job, other: Job) -> None:
    """Alone means alone, and who is avoided is elsewhere."""
    for a, b in ((one, other), (other, one)):
        wants = a.spec.affinity
        if wants.exclusive:
            assert not domains(a, wants.exclusive) & domains(b, wants.exclusive)
        for tier, patterns in wants.avoid:
            if any(fnmatchcase(b.name, pattern) for pattern in patterns):
                assert not domains(a, tier) & domains(b, tier)


def check(state: State) -> None:
    running = [job for job in state.jobs.values() if job.state is JobState.RUNNING]
    for job in running:
        check_own(job)
    for one, other in combinations(running, 2):
        check_pair(one, other)


def sent(state: State, command: Command, now_ns: int) -> tuple[Event, ...]:
    answer = admit(state, command, now_ns)
    return () if isinstance(answer, Rejected) else answer


def decided(state: State, now_ns: int, options: SchedulingOptions) -> tuple[Event, ...]:
    """A plan on its own version commits whole."""
    plan = decide(state, now_ns, options)
    events = commit(state, plan, now_ns)
    assert not isinstance(events, Conflict), events
    assert len(events) == len(plan.actions)
    return events


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from(list(BUILT_IN)))
def test_constraints_hold_in_every_state(
    steps: list[tuple[Command, int, int]], policy: str
) -> None:
    limits, now_ns = SchedulingOptions(policy=policy), 0
    log: list[Event] = [FabricLoaded(0, SPEC)]
    state = replay(log)
    for command, decisions, wait_s in steps:
        now_ns += wait_s * SECOND_NS
        for events in [sent(state, command, now_ns)]:
            log += events
            state = replay(events, state)
        for _ in range(decisions):
            events = decided(state, now_ns, limits)
            log += events
            state = replay(events, state)
            check(state)
        for name in state.index.queue:
            assert explain(state, name, now_ns, limits).sentence
    assert replay(decode(*encode(event)) for event in log) == state
