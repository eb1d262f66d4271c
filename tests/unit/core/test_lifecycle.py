"""The tables: complete, reachable, and without a way back from the end."""

from itertools import product

import pytest

from scheduler.core.model.lifecycle import (
    HOST_MOVES,
    JOB_MOVES,
    LIVE,
    HostMove,
    HostState,
    JobMove,
    JobState,
    after,
)
from tests.cases import case

STORED = set(HostState) - {HostState.UNKNOWN}  # that is only shown
BROKEN = {HostState.FAILED, HostState.IN_REPAIR, HostState.RMA}


def reachable(table: dict, start: object) -> set[object]:  # type: ignore[type-arg]
    seen, new = {start}, [start]
    while new:
        for state in table[new.pop()].values():
            if state not in seen:
                seen.add(state)
                new.append(state)
    return seen


def test_every_state_has_a_row() -> None:
    assert set(JOB_MOVES) == set(JobState)
    assert set(HOST_MOVES) == STORED


def test_every_move_is_used() -> None:
    assert {move for row in JOB_MOVES.values() for move in row} == set(JobMove)
    assert {move for row in HOST_MOVES.values() for move in row} == set(HostMove)


def test_every_state_can_be_reached() -> None:
    assert reachable(JOB_MOVES, JobState.QUEUED) == set(JobState)
    assert reachable(HOST_MOVES, HostState.HEALTHY) == STORED


def test_ended_jobs_stay_ended() -> None:
    ended = {state for state, row in JOB_MOVES.items() if not row}
    assert ended == {JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED}
    assert set(JobState) - ended == LIVE


@pytest.mark.parametrize("state", sorted(LIVE))
def test_every_live_job_can_be_cancelled(state: JobState) -> None:
    assert JOB_MOVES[state][JobMove.CANCEL] is JobState.CANCELLED


def test_every_host_can_come_back() -> None:
    for state in STORED:
        with case(state=state):
            assert HostState.HEALTHY in reachable(HOST_MOVES, state)


@pytest.mark.parametrize("state", sorted(STORED - BROKEN))
def test_every_host_that_may_run_gangs_can_fail(state: HostState) -> None:
    assert HOST_MOVES[state][HostMove.FAIL] is HostState.FAILED


def test_after_follows_the_table_and_nothing_else() -> None:
    for state, move in product(JobState, JobMove):
        if move in JOB_MOVES[state]:
            assert after(JOB_MOVES, state, move) is JOB_MOVES[state][move]
        else:
            with pytest.raises(KeyError):
                after(JOB_MOVES, state, move)
