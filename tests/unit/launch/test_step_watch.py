"""Steps that stop coming: what is taken for a hang, and what is not."""

from scheduler.launch.gangs.step_watch import StepWatch

AFTER_S = 60.0


def stepping(*moments_s: float) -> StepWatch:
    """A watch that has heard of a step at each of these times."""
    watch = StepWatch()
    for step, at_s in enumerate(moments_s, 1):
        watch.take(step, at_s)
    return watch


def test_a_gang_hangs_once_no_step_came_for_as_long_as_its_owner_says() -> None:
    watch = stepping(1, 2, 3)
    assert watch.step_s == 1
    assert not watch.is_overdue(AFTER_S, 63)
    assert watch.is_overdue(AFTER_S, 63.1)


def test_nothing_is_said_before_a_first_step() -> None:
    assert not StepWatch().is_overdue(AFTER_S, 10**6)


def test_an_evaluation_that_came_back_before_is_waited_for_again() -> None:
    watch = stepping(1, 2, 42, 43)  # the third step came after an evaluation of 40 s
    assert not watch.is_overdue(AFTER_S, 43 + 5 * 40)
    assert watch.is_overdue(AFTER_S, 43 + 5 * 40 + 1)


def test_a_long_save_that_ranks_speak_of_is_no_hang() -> None:
    watch = stepping(1, 2, 3)
    watch.take_busy("h0", "saving", 4)
    assert not watch.is_overdue(AFTER_S, 3 + 4 * AFTER_S)
    assert watch.is_overdue(AFTER_S, 3 + 4 * AFTER_S + 1)  # one that never ends is
    watch.take_busy("h0", "", 200)
    assert not watch.is_overdue(AFTER_S, 204)  # the next step is on its way
    watch.take(4, 205)
    assert not watch.is_overdue(AFTER_S, 205 + 5 * 200)  # the next save may take as long


def test_ranks_that_say_less_than_the_furthest_lag() -> None:
    watch = stepping(1, 2, 3)
    watch.take_ranks(0, [3, 2])
    watch.take_ranks(2, [0, 3])  # one does not say
    assert watch.lagging() == [1]


def test_a_rank_lags_for_which_others_wait_in_a_step() -> None:
    watch = stepping(1, 2, 3)
    watch.take_ranks(0, [3, 0])
    assert (watch.lagging(), watch.awaited_step) == ([], None)
    watch.computed.update({0: 4, 1: 4, 2: 3, 3: 0})
    assert (watch.lagging(), watch.awaited_step) == ([2], 4)
    watch.take(4, 9)
    assert (watch.lagging(), watch.awaited_step) == ([0], None), "it came on"
