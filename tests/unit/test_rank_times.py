"""How long ranks computed: what they write down, and what an agent makes of it."""

from itertools import pairwise
from pathlib import Path

import pytest

from muster import progress
from scheduler.agent.ranks.rank_times import LOOK_S, TimesOfRanks


def written(monkeypatch: pytest.MonkeyPatch, folder: Path, rank: int, steps: range) -> None:
    """By a rank that computes step * 0.001 + rank seconds."""
    monkeypatch.setenv("MUSTER_RUN_DIR", str(folder))
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setattr(progress, "_times", None)
    for step in steps:
        progress.computed(step, step * 0.001 + rank)


def files(folder: Path, ranks: int) -> list[Path]:
    return [folder / f"times.{rank}" for rank in range(ranks)]


def test_slow_steps_are_all_sent_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    times = TimesOfRanks(files(tmp_path, 2))
    assert times.look(100) == []
    sent = []
    for look, last in enumerate((2, 5, 8), 1):
        for rank in range(2):
            written(monkeypatch, tmp_path, rank, range(1, last + 1 - rank))  # rank 1 is behind
        sent += times.look(100 + look * LOOK_S)
    assert [each.step for each in sent] == [1, 2, 3, 4, 5, 6, 7]
    assert sent[-1].seconds == pytest.approx((0.007, 1.007))
    assert times.look(100 + 3.5 * LOOK_S) == [], "it is not time yet"


def test_of_short_steps_agents_that_look_at_other_times_have_some_in_common(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Steps of 13 ms; one agent looks 4 s after the other, and their pauses differ."""
    looks = sorted([(n * 10.0, 0) for n in range(1, 8)] + [(4 + n * 11.0, 1) for n in range(1, 7)])
    agents = [TimesOfRanks(files(tmp_path, 1)) for _ in range(2)]
    sent: list[set[int]] = [set(), set()]
    done = 0
    for now_s, which in looks:
        written(monkeypatch, tmp_path, 0, range(done, int(now_s / 0.013)))
        done = int(now_s / 0.013)
        found = agents[which].look(1_000 + now_s)
        assert len(found) <= 8
        sent[which] |= {each.step for each in found}
    assert len(sent[0] & sent[1]) > 10
    apart = sorted(sent[0])
    assert min(b - a for a, b in pairwise(apart)) * 0.013 >= 2


def test_a_rank_that_says_nothing_or_nonsense_counts_as_0(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "times.1").write_bytes(b"\xff" * 3_000)
    (tmp_path / "times.2").symlink_to("/dev/zero")
    (tmp_path / "times.3").mkdir()
    times = TimesOfRanks(files(tmp_path, 5))
    written(monkeypatch, tmp_path, 0, range(1, 4))
    assert times.look(100) == []
    written(monkeypatch, tmp_path, 0, range(4, 6))
    found = times.look(200)
    assert [each.step for each in found] == [1, 2, 3, 4, 5]
    assert found[0].seconds == (0.001, 0.0, 0.0, 0.0, 0.0)


def test_nothing_is_written_outside_of_muster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MUSTER_RUN_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    with progress.computing(1):
        pass
    assert list(tmp_path.iterdir()) == []
