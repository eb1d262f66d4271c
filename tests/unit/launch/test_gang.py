"""One attempt as the server sees it: ranges of ranks, causes and followers, suspects, and steps
that stop coming."""

from dataclasses import replace

from scheduler.core.policies.job_terms import RunSpec
from scheduler.launch.gangs import orders
from scheduler.launch.gangs.gang import LaunchedGang, RankRange
from scheduler.launch.gangs.step_watch import StepWatch
from tests.build import fabric, placed, regular


def gang(hosts: int = 4, world: int = 32, per_host: int = 0) -> LaunchedGang:
    names = tuple(f"h{n}" for n in range(hosts))
    return LaunchedGang(placed("a", names), RunSpec(("x",), per_host=per_host), world, 8, 0.0)


def test_each_host_carries_the_ranks_of_its_block() -> None:
    assert gang().ranks_of("h2") == RankRange(2, 16, 8)
    assert gang(2, 12).ranks_of("h1") == RankRange(1, 8, 4)


def test_ranks_are_told_what_their_gpus_are_held_to() -> None:
    run, small = placed("a", fabric().hosts[:1]), fabric()
    for watts, told in ((0, {}), (500, {"MUSTER_GPU_WATTS": "500"})):
        held = LaunchedGang(
            replace(run, job=run.job.with_power_limit(watts)), RunSpec(("x",)), 8, 8, 0.0
        )
        order = orders.prepare(held, small.hosts[0], orders.NO_TERMS, small)
        assert dict(order.prepare.env) == told


def test_a_gang_is_complete_when_every_process_has_ended_well() -> None:
    one, each = gang(2, 16, per_host=1), gang(2, 16)
    for rank in (0, 8):
        one.exited("h", rank, 0, 0, 1.0, "")
        each.exited("h", rank, 0, 0, 1.0, "")
    assert one.is_complete
    assert not each.is_complete
    told = each.hang_text(60.0, regular(("host", 2)))
    assert told.endswith("; ended well: rank 0 on h0, rank 8 on h1")


def test_the_earliest_failure_is_the_cause_whoever_was_heard_first() -> None:
    failed = gang()
    failed.exited("h0", 0, 1, 0, 5.00, "trace\nConnectionReset\n\n")
    failed.exited("h3", 24, 0, 9, 4.98, "")
    failed.exited("h3", 24, 1, 0, 4.00, "said twice")
    first = failed.first_failure()
    assert (first.rank, first.host, first.reason) == (24, "h3", "was killed by signal 9")
    assert failed.failures[0].reason == "exited with code 1: ConnectionReset"


def test_few_that_are_gone_are_suspects_and_many_are_not() -> None:
    for hosts, gone, suspects in [
        (4, ["h1"], ["h1"]),
        (4, ["h1", "h2"], []),
        (16, ["h1", "h2", "h3"], ["h1", "h2", "h3"]),
        (4, ["other"], []),
    ]:
        assert gang(hosts, hosts * 8).suspects(gone) == suspects


# --- steps that stop coming -------------------------------------------------------------------

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


def test_ranks_lag_that_say_less_than_the_furthest_or_for_which_others_wait_in_a_step() -> None:
    watch = stepping(1, 2, 3)
    watch.take_ranks(0, [3, 2])
    watch.take_ranks(2, [0, 3])  # one does not say
    assert watch.lagging() == [1]
    watch = stepping(1, 2, 3)
    watch.take_ranks(0, [3, 0])
    assert (watch.lagging(), watch.awaited_step) == ([], None)
    watch.computed.update({0: 4, 1: 4, 2: 3, 3: 0})
    assert (watch.lagging(), watch.awaited_step) == ([2], 4)
    watch.take(4, 9)
    assert (watch.lagging(), watch.awaited_step) == ([0], None), "it came on"
