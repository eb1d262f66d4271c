"""The tables: complete, reachable, and without a way back from the end."""

from scheduler.core.model.lifecycle import (
    HOST_MOVES,
    JOB_MOVES,
    LIVE,
    HostMove,
    HostState,
    JobMove,
    JobState,
)
from tests.cases import case

STORED = set(HostState) - {HostState.UNKNOWN}  # that is only shown


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


def test_every_host_can_come_back() -> None:
    for state in STORED:
        with case(state=state):
            assert HostState.HEALTHY in reachable(HOST_MOVES, state)
