"""Who slows a gang, over gangs of which it is known."""

from pathlib import Path

import pytest

from scheduler.observe.step_times import load_times
from scheduler.observe.stragglers import MeasuredGang, Measurement, SuspectKind, stragglers
from tests.refusals import file_refusal
from tests.stragglers_made import GPUS, case, gang, quality


@pytest.mark.slow
@pytest.mark.parametrize("groups", [False, True])
def test_most_that_are_slow_are_found_and_hardly_anybody_else(groups: bool) -> None:
    """The tables of docs/stragglers.md have more: bench/steps/stragglers.py."""
    cases = [case(seed, 16, 0.1, 0.03, groups=groups) for seed in range(12)]
    precision, recall = quality(cases)
    assert precision >= 0.95
    assert recall >= 0.95


@pytest.mark.slow
def test_nobody_is_named_where_all_are_well() -> None:
    """One false name in some hundred gangs at most."""
    well = [case(seed, 16, 0.0, 0.03, groups=True) for seed in range(20)]
    assert sum(len(stragglers(each.gang, each.measurements)) for each in well) <= 1


def measured(slow: dict[int, float], steps: int = 10) -> list[Measurement]:
    return [
        Measurement(step, (rank,), slow.get(rank, 1.0) * (1 + 0.001 * ((rank * 7 + step) % 5)))
        for step in range(steps)
        for rank in range(4 * GPUS)
    ]


def test_a_gpu_of_a_part_of_a_host_has_the_number_that_it_has_there() -> None:
    part = MeasuredGang(("h7",), 4, {}, gpus=(2, 3, 6, 7))
    slow = [each for each in measured({2: 1.3}) if each.ranks[0] < 4]
    (suspect,) = stragglers(part, slow)
    assert (suspect.kind, suspect.name, suspect.gpu) == (SuspectKind.GPU, "h7", 6)


def test_a_gpu_is_told_from_its_host_where_enough_was_measured() -> None:
    made = gang(4, 2)
    assert stragglers(made, [Measurement(0, (0,), 1.0), Measurement(0, (1,), 9.0)]) == []
    (one,) = stragglers(made, measured({9: 1.2}))
    assert (one.kind, one.name, one.gpu) == (SuspectKind.GPU, "h001", 1)
    assert one.slower == pytest.approx(0.2, abs=0.01)
    (host,) = stragglers(made, measured(dict.fromkeys(range(8, 16), 1.1)))
    assert (host.kind, host.name, host.gpu) == (SuspectKind.HOST, "h001", None)


def test_what_was_always_measured_together_shares_the_confidence() -> None:
    """Two hosts that are in the same groups alone cannot be told apart."""
    made = gang(8, 8)
    groups = [(0, 8), *((GPUS * a, GPUS * b) for a in range(2, 8) for b in range(2, a))]
    times = [
        Measurement(step, ranks, 1.3 if ranks == (0, 8) else 1.0 + 0.001 * (step % 3), "dp")
        for step in range(5)
        for ranks in groups
    ]
    (found,) = stragglers(made, times)
    assert found.name in ("h000", "h001")
    assert found.confidence == pytest.approx(0.5, abs=0.01)


def test_a_file_is_read_and_what_is_wrong_with_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('seconds, step,ranks,kind\n0.5,3,0-2,dp\n\n1e-1,4,"9,1",\n')
    assert load_times(str(path)) == [
        Measurement(3, (0, 1, 2), 0.5, "dp"),
        Measurement(4, (1, 9), 0.1, ""),
    ]
    for text, words in {
        "step,rank\n": "t.csv:1: seconds: is not a column",
        "step,rank,seconds\n": "holds no time",
        "step,rank,seconds\n1,0,1\n1,x,1\n": "t.csv:3: rank: must be ranks",
        "step,ranks,seconds\n1,7-2,1\n": "t.csv:2: ranks: must be ranks",
        "step,rank,seconds\n1,0,nan\n": "t.csv:2: seconds: must be seconds above 0",
        "step,rank,seconds\n-1,0,1\n": "t.csv:2: step: must be a whole number",
        "step,rank,seconds\n1,0\n": "t.csv:2: seconds: must be seconds",
    }.items():
        assert words in file_refusal(load_times, path, text)
