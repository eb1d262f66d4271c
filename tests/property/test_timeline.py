"""The time page of any log, against states folded one by one."""

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.console.timeline import timeline
from scheduler.core import State
from scheduler.core.model.job import SECOND_NS
from tests.timelines import Shown, history, meant

ACTS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "cancel", "fail", "repair"]),
        st.integers(0, 7),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=25,
)


@given(ACTS, st.sampled_from(["", "a"]), st.integers(0, 80))
@settings(max_examples=20, deadline=None)
def test_at_each_time_it_shows_what_was_then(
    acts: list[tuple[str, int, int]], tenant: str, at: int
) -> None:
    events, states = history(acts)
    shown = Shown(timeline(State.empty(), events, tenant))
    then = [s for e, s in zip(events, states, strict=True) if e.time_ns <= at * SECOND_NS][-1]
    assert shown.seek(at).text == meant(then, tenant)
    later = Shown(timeline(states[len(states) // 2], events[len(states) // 2 + 1 :], tenant))
    assert later.seek(float("inf")).text == meant(states[-1], tenant)
