"""A what-if leaves the state as it was, and says what doing it would bring."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from placement.errors import BadInput
from scheduler.core import JobState, Rejected, SchedulingOptions, State, admit, replay
from scheduler.core.explain.whatif import run_to_rest, what_if
from scheduler.core.model.commands import Command
from scheduler.core.queue.policies import BUILT_IN
from tests.build import cancel, cordon, drain, end, fabric, fail, loaded, submit, uncordon
from tests.property.driver import reached, tried

EMPTY = loaded(fabric(2, 2, 2))
HOSTS = st.sampled_from(EMPTY.loaded_fabric.hosts)
NAMES = st.sampled_from("abcdef")
SUBMITS = st.builds(
    submit,
    NAMES,
    st.sampled_from((1, 2, 3, 4, 6, 8)),
    priority=st.integers(0, 2),
    limit_s=st.sampled_from((None, 60, 3_600)),
)
COMMANDS = st.one_of(
    SUBMITS,
    SUBMITS,
    st.builds(end, NAMES),
    st.builds(fail, HOSTS),
    st.builds(cordon, HOSTS),
    st.builds(drain, HOSTS),
)
CONDITIONS = st.one_of(
    st.tuples(st.sampled_from(("cordon", "drain", "uncordon", "fail")), HOSTS),
    st.tuples(st.sampled_from(("cancel",)), NAMES),
)
IN_EARNEST: dict[str, Callable[[str], Command]] = {
    "cordon": cordon,
    "drain": drain,
    "uncordon": uncordon,
    "fail": lambda host: fail(host, "host-down"),
    "cancel": cancel,
}


def come_to(commands: list[Command], options: SchedulingOptions) -> State:
    """Two thirds of the commands are decided on, the last third has only just come."""
    decided = len(commands) * 2 // 3
    return tried(reached(EMPTY, commands[:decided], options), 0, *commands[decided:])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(COMMANDS, min_size=3, max_size=14),
    st.lists(CONDITIONS, min_size=1, max_size=3),
    st.sampled_from(list(BUILT_IN)),
)
def test_it_changes_nothing_and_comes_true(
    commands: list[Command], conditions: list[tuple[str, str]], policy: str
) -> None:
    limits = SchedulingOptions(policy=policy)
    state, again = come_to(commands, limits), come_to(commands, limits)
    for name in state.jobs:
        try:
            answer = what_if(state, name, [f"{v} {what}" for v, what in conditions], 0, limits)
        except BadInput:
            assert state == again
            continue
        earnest = state
        for verb, what in conditions:
            events = admit(earnest, IN_EARNEST[verb](what), 0)
            assert not isinstance(events, Rejected)
            earnest = replay(events, earnest)
        assert answer.job == run_to_rest(earnest, 0, limits).find(name)
        assert state == again
        is_running = answer.job.state is JobState.RUNNING
        assert ("start now" in answer.sentence or "would run" in answer.sentence) == is_running
