"""What would change for a job: true when tried in earnest, and the real state untouched."""

import pytest

from placement.errors import BadInput
from scheduler.core import JobState, SchedulingOptions, State
from scheduler.core.explain.whatif import WhatIf, what_if
from scheduler.core.queue.verdict import WaitReason
from tests.build import (
    HOUR_NS,
    cordon,
    drain,
    exactly,
    fabric,
    fail,
    hosts_of,
    loaded,
    run,
    started,
    submit,
)

HOUR = 3_600
TEN = loaded(fabric(1, 1, 10))
BUSY = started(TEN, submit("a", 6, limit_s=2 * HOUR), submit("b", 4, limit_s=HOUR))
WAITING = run(BUSY, submit("c", 4), submit("d", 2))


def asked(state: State, name: str, *conditions: str) -> WhatIf:
    return what_if(state, name, conditions, 0, SchedulingOptions())


def test_a_requeued_gang_leaves_its_hosts_to_who_is_ahead_of_it() -> None:
    before = run(BUSY, submit("c", 4, priority=9))
    answer = asked(before, "b", "requeue b")
    assert (answer.job.state, answer.starts) == (JobState.QUEUED, ("c",))
    assert asked(BUSY, "b", "requeue b").job.state is JobState.RUNNING


def test_a_wait_that_grows_shorter_or_longer() -> None:
    assert asked(WAITING, "d", "priority 9").sentence.startswith("would still wait: needs 2 hosts")
    longer = asked(run(BUSY, submit("c", 4)), "c", "drain z0-r0-h9")
    assert longer.sentence.startswith("would still wait, 1 h 00 min longer: needs 4 hosts")
    shorter = asked(run(BUSY, submit("c", 5, spares=exactly(1))), "c", "spares 0", "cancel a")
    assert shorter.sentence.startswith("would start now on 5 hosts")
    sooner = asked(run(BUSY, submit("c", 4, spares=exactly(1))), "c", "spares 0")
    assert sooner.sentence.startswith("would still wait, 1 h 00 min less: needs 4 hosts")
    assert sooner.after.start_ns == HOUR_NS


def test_a_wait_without_end() -> None:
    answer = asked(run(BUSY, submit("c", 10)), "c", "cordon z0-r0-h0")
    assert answer.sentence.startswith("would still wait, until a time that cannot be foreseen: ")
    back = asked(run(BUSY, cordon("z0-r0-h0"), submit("c", 10)), "c", "uncordon z0")
    assert back.sentence.startswith("would still wait, for at most 2 h 00 min: ")


def test_a_job_keeps_its_place_whatever_else_differs() -> None:
    state = run(BUSY, submit("c", 4), submit("d", 4), submit("e", 4))
    answer = asked(state, "d", "spares 0")
    assert answer.after.sentence.endswith("; 1 job ahead of it")


def test_whole_domains_leave_and_come_back() -> None:
    state = run(loaded(fabric(2, 2, 2)), submit("c", 6))
    assert asked(state, "c", "cordon z1").after.cause is WaitReason.HOSTS
    assert asked(state, "c", "cordon z1", "uncordon z1-r0").job.state is JobState.RUNNING
    assert asked(state, "c").sentence == "would start now on 6 hosts in z0, z1, as it does anyway"


def test_other_jobs_that_start_or_stop_are_named() -> None:
    answer = asked(WAITING, "c", "cancel b", "cancel a")
    assert answer.starts == ("d",)
    assert answer.stops == ("b", "a") or answer.stops == ("a", "b")


def test_a_running_job_would_swap_or_lose_its_hosts() -> None:
    state = started(TEN, submit("a", 6))
    moved = asked(state, "a", "fail z0-r0-h0")
    assert moved.sentence == "would run on 6 hosts in z0, attempt 2"
    lost = asked(BUSY, "a", f"fail {hosts_of(BUSY, 'a')[0]}")
    assert lost.sentence.startswith("would lose its hosts and wait: host ")
    assert asked(BUSY, "a", "end a").sentence == "would be completed"


def test_a_failed_host_is_left_out_when_its_domain_comes_back() -> None:
    state = run(TEN, fail("z0-r0-h0"), drain("z0-r0-h1"), submit("c", 10))
    assert asked(state, "c", "uncordon z0").after.free == 9
    assert asked(state, "c", "uncordon z0", "repair z0").job.state is JobState.RUNNING


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("", "is not a condition"),
        ("cordon", "is not a condition"),
        ("explode z0", "is not a condition"),
        ("cordon z9", "no host and no domain 'z9'"),
        ("cancel nobody", "no job 'nobody'"),
        ("uncordon z0-r0-h0", "z0-r0-h0 is failed: cannot uncordon"),
        ("end c", "job c is queued, not running"),
        ("spares some", "is not a number of hosts, a share such as 5%, or auto"),
        ("spares 1.5", "is not a number of hosts"),
        ("spares 101%", "a share must be 0 to 1"),
        ("spares " + "9" * 400, "more than 1,000,000"),
        ("spares 9", "needs 4 hosts and 9 spares; small has 10 in all"),
        ("priority high", "is not a whole number"),
        ("limit 2", "is not a time limit"),
        ("limit 0h", "must be at least 1"),
        ("tenant nobody", "no tenant 'nobody'"),
        ("class gold", "no class 'gold'"),
    ],
)
def test_a_condition_that_cannot_be(condition: str, message: str) -> None:
    state = run(WAITING, fail("z0-r0-h0"))
    with pytest.raises(BadInput) as caught:
        what_if(state, "c", ["cordon z0-r0-h1", condition], 0, SchedulingOptions())
    assert caught.value.field == "suppose[1]"
    assert message in caught.value.message


def test_only_a_waiting_job_can_differ() -> None:
    with pytest.raises(BadInput, match="a is not queued"):
        asked(BUSY, "a", "priority 5")


def test_an_unknown_job() -> None:
    with pytest.raises(KeyError):
        asked(BUSY, "nobody", "cordon z0")
