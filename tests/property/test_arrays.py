"""Arrays under any acts: never more tasks run than may, and none is forgotten."""

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core import JobState
from scheduler.core.fold.apply import replay
from scheduler.core.model.commands import HoldJob, ReleaseJob, RequeueJob
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.job_array import ArrayTurns
from tests.build import admitted, cancel, end, loaded, run, running, settled, submit_array

EMPTY = loaded()


NOW = 100 * SECOND_NS


ACTS = st.lists(
    st.tuples(st.sampled_from(["hold", "release", "cancel", "end", "requeue"]), st.integers(0, 5)),
    max_size=25,
)


@given(st.integers(1, 3), ACTS)
@settings(max_examples=60)
def test_never_more_run_than_may_and_none_is_forgotten(
    most: int, acts: list[tuple[str, int]]
) -> None:
    state = settled(run(EMPTY, submit_array("a", f"0-5%{most}"), now_ns=NOW), NOW)
    for act, number in acts:
        name = f"a-{number}"
        job = state.jobs.get(name)
        if job is None:
            continue
        is_running = job.state is JobState.RUNNING
        command = {
            "hold": HoldJob(name),
            "release": ReleaseJob(name),
            "cancel": cancel(name),
            "end": end(name) if is_running else cancel(name),
            "requeue": RequeueJob(name),
        }[act]
        state = settled(replay(admitted(state, command, NOW), state), NOW)
        names = running(state)
        assert len(names) <= most
        turns = next(iter(state.arrays.values()), ArrayTurns())
        free = [job for job in state.jobs.values() if job.hold is None and job.name not in names]
        assert len(names) == most or not free
        assert set(turns.waiting) == {job.name for job in state.jobs.values() if job.awaits_turn}
        assert turns.let_in + len(turns.waiting) == len(state.jobs)
