"""Writes of checkpoints: bounded by the cards of hosts, and slower where gangs share the store."""

from __future__ import annotations

import pytest

from simulator.timing import load_time_model
from simulator.timing.store import CheckpointStore, Crowding
from tests.build import request
from tests.replays import World, machine, replayed, trace_job

# 96 s of work and 4 s of writing by turns, of a gang of two hosts with a GPU each.
TIMES = (
    "default,checkpoint.interval_s=96,checkpoint.gb_per_gpu=1,checkpoint.write_gb_per_s=0.5,"
    "checkpoint.load_gb_per_s=0.5,checkpoint.stall_s=0"
)


def store(gpus: int, changes: str) -> CheckpointStore:
    return CheckpointStore(machine(4, gpus), load_time_model(f"default{changes}").checkpoint)


def shared(gangs: int, run_s: float, changes: str = "") -> World:
    jobs = [trace_job(f"j{i}", 0, run_s, 2) for i in range(gangs)]
    return replayed(machine(2 * gangs), jobs, times=load_time_model(TIMES + changes))


@pytest.mark.parametrize(
    ("hosts", "kind", "write_s"),
    [
        (1, "remote", 20.0),  # 8 TB by eight cards of 50 GB/s; the store would take 4 s
        (2, "remote", 20.0),
        (8, "remote", 32.0),  # 64 TB: the store is slower than 64 cards
        (2, "peer", 20.0),
        (2, "local", 4.0),  # its own disks, 2 TB/s each
    ],
)
def test_a_host_writes_no_faster_than_its_cards(hosts: int, kind: str, write_s: float) -> None:
    point = store(8, f",checkpoint.gb_per_gpu=1000,checkpoint.kind={kind}")
    assert point.write_s(request(tp=8, dp=hosts)) == pytest.approx(write_s)


def test_a_gang_alone_waits_for_no_store() -> None:
    assert shared(1, 961).ends_s() == {"j0": 961 + 10 * 4}


def test_gangs_that_share_the_store_write_longer() -> None:
    """The other one writes 4 % of the time: a write takes 4.16 s."""
    world = shared(2, 961)
    end_s = world.ends_s()["j0"]

    assert end_s == pytest.approx(1_001 * 100.16 / 100, abs=0.1)
    assert world.modelled is not None
    assert world.modelled.host_time.checkpoint / 1e9 == pytest.approx(4 * (end_s - 961), abs=0.1)
    assert world.modelled.host_time.network == 0


def test_a_store_that_is_asked_for_more_than_it_has_bounds_all() -> None:
    """Fifty gangs each ask for 4 %, two stores' worth: 100 s of the clock take 200 s."""
    assert shared(50, 961).ends_s()["j0"] == pytest.approx(2 * 1_001, abs=1)


def test_a_gang_goes_on_at_full_pace_when_the_others_have_ended() -> None:
    jobs = [trace_job("a", 0, 961, 2), trace_job("b", 0, 193, 2)]
    world = replayed(machine(4), jobs, times=load_time_model(TIMES))
    ends_s = world.ends_s()

    assert ends_s["b"] == pytest.approx(201 * 1.0016, abs=0.01)
    assert ends_s["a"] - 1_001 == pytest.approx(ends_s["b"] - 201, abs=0.01)


def test_a_gang_that_writes_nothing_is_neither_slowed_nor_in_the_way() -> None:
    """The runs of all but one are shorter than the interval."""
    jobs = [trace_job("a", 0, 961, 2), *(trace_job(f"j{i}", 0, 90, 2) for i in range(9))]
    ends_s = replayed(machine(20), jobs, times=load_time_model(TIMES)).ends_s()

    assert ends_s["a"] == 1_001
    assert set(ends_s.values()) == {1_001, 90}


def test_who_is_crowded_is_named_as_writers_come_and_go() -> None:
    half = store(
        1, ",checkpoint.interval_s=1,checkpoint.gb_per_gpu=25,checkpoint.write_gb_per_s=50"
    )
    gang = request(tp=1, dp=1)  # writes for half a second, a third of its time

    assert half.crowding("nobody") == Crowding()
    assert list(half.begin("a", gang)) == ["a"]
    assert half.crowding("a").stretch == pytest.approx(1)
    assert list(half.begin("b", gang)) == ["a", "b"]
    assert half.crowding("a").stretch == pytest.approx(4 / 3)
    assert half.load_stretch(gang) == pytest.approx(5 / 3)
    assert list(half.end("b")) == ["a"]
    assert half.end("b") == ()
    assert half.crowding("a") == Crowding(1.0, pytest.approx(1 / 3))
