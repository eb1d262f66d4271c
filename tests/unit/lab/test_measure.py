"""Steps as programs of single ranks."""

import pytest

from lab.measure import check_over, predict, programs
from lab.ranks import Piece, RankStep
from network.step_tasks import step_tasks
from placement.workload.parallelism import Parallelism
from placement.workload.request import Collective, Request
from placement.workload.training import Batch
from scheduler.files.errors import InputError
from tests.build import regular

FABRIC = regular(("host", 8), gpus=1)


def test_ranks_send_the_bytes_of_their_edges_and_expect_as_many() -> None:
    sent = (("cp", 4_000_000), ("pp", 800_000), ("dp", 600_000))
    request = Request(Parallelism(cp=2, pp=2, dp=2), sent, batch=Batch(8), compute_s=1.0)
    made = programs(FABRIC, step_tasks(FABRIC, request, range(8), 1.0), 1 / 100)
    for program in made:
        out = sum(size for task in program["tasks"] for _, size, _ in task["out"])
        into = sum(size for task in program["tasks"] for _, size, _ in task["in"])
        # A ring's edge, half an edge of a chain in each direction, a ring's edge.
        assert out == pytest.approx(40_000 + 4_000 + 6_000, rel=0.01)
        assert into == pytest.approx(out, rel=0.01)
        assert {key for task in program["tasks"] for key, _, _ in task["out"]} == set(
            program["out"]
        )
        known = {task["id"] for task in program["tasks"]}
        assert all(before in known for task in program["tasks"] for before in task["after"])


@pytest.mark.parametrize("size", [3, 50_000, 50_001])
def test_a_ring_passes_on_no_more_than_came_in_and_never_stops(size: int) -> None:
    key, rounds = "0>1 cp wait", 3
    told = {"id": 0, "seconds": 0.0, "after": [], "out": [(key, size, rounds)], "in": []}
    step = RankStep([{**told, "in": [("2>0 cp wait", size, rounds)]}])
    (piece,), (came,) = step.order[key], step.expected["2>0 cp wait"]
    assert isinstance(piece, Piece)
    assert step.allowed(piece) == size // rounds
    while came.moved < size:
        assert step.allowed(piece) > came.moved or step.allowed(piece) == size
        came.moved = min(size, step.allowed(piece))
    assert step.allowed(piece) == size


def test_gloo_is_refused_where_torch_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.measure.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"over: gloo comes with torch.*pip install torch"):
        check_over("gloo")
    with pytest.raises(InputError, match="over: must be sockets or gloo, not 'mpi'"):
        check_over("mpi")
    check_over("sockets")


def test_a_schedule_sends_the_bytes_of_a_step_and_each_tree_over_connections_of_its_own() -> None:
    request = Request(
        Parallelism(dp=8), (("dp", 7_000_000),), (("dp", Collective.TREE),), compute_s=0.1
    )
    formula_s, simulated_s, tasks = predict(FABRIC, request, range(8), is_scheduled=True)
    assert formula_s <= simulated_s < 2 * formula_s
    made = programs(FABRIC, tasks, 1 / 100)
    sent = sum(size for each in made for task in each["tasks"] for _, size, _ in task["out"])
    assert sent == pytest.approx(8 * 70_000, rel=0.01)
    keys = {key for each in made for key in each["out"]}
    assert {key.split()[2] for key in keys} == {"0", "1"}
    assert len(keys) == 2 * 2 * 7
