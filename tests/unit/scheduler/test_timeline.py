"""The timeline of a log shows at each time what the map would have shown then."""

from scheduler.console.cluster_map import STATES
from scheduler.console.timeline import timeline
from scheduler.core import State
from scheduler.core.model.job import SECOND_NS
from tests.timelines import Shown, history, meant


def test_many_moments_are_taken_together_and_the_last_is_right() -> None:
    events, states = history([("submit", n % 8, 1) for n in range(20)] + [("fail", 3, 1)])
    few = Shown(timeline(State.empty(), events, most_frames=4))
    assert len({at_s for at_s, _, _ in few.frames}) <= 6
    assert few.seek(few.head["end"]).text == meant(states[-1], "")


def test_marks_say_what_went_wrong_and_to_whom_that_is_said() -> None:
    acts = [("submit", 0, 1), ("submit", 1, 1), *(("fail", n, 1) for n in range(8))]
    events, _ = history(acts)
    every = Shown(timeline(State.empty(), events)).head["marks"]
    own = Shown(timeline(State.empty(), events, "a")).head["marks"]
    jobs = {mark["subject"] for mark in every if mark["kind"] != "host_failed"}
    assert {"j0", "j1"} <= jobs
    assert {mark["subject"] for mark in own if mark["kind"] != "host_failed"} == {"j0"}
    assert not any(mark["detail"] for mark in own)


def test_a_log_is_begun_where_it_is_asked_for() -> None:
    events, _ = history([("submit", 0, 10), ("fail", 7, 10)])
    shown = Shown(timeline(State.empty(), events, begin_ns=15 * SECOND_NS))
    assert shown.head["begin"] == 20
    assert STATES[shown.seek(20).text[7][2]].value == "failed"
