"""docs/lifecycle.md is what the tables say."""

from scheduler.core.model.lifecycle import (
    HOST_MOVES,
    JOB_MOVES,
    HostMove,
    HostState,
    JobMove,
    JobState,
)
from scripts import lifecycle


def test_the_committed_page_is_current() -> None:
    assert lifecycle.PAGE.read_text(encoding="utf-8") == lifecycle.page()


def test_every_move_is_drawn() -> None:
    page = lifecycle.page()
    for table in (JOB_MOVES, HOST_MOVES):
        for state, moves in table.items():
            for move, then in moves.items():
                assert f"    {state} --> {then}: {move}\n" in page


def test_every_word_is_explained() -> None:
    assert set(lifecycle.JOB_STATES) == set(JobState)
    assert set(lifecycle.JOB_MOVES_SAID) == set(JobMove)
    assert set(lifecycle.HOST_STATES) == set(HostState)
    assert set(lifecycle.HOST_MOVES_SAID) == set(HostMove)
