"""Caps on the power of racks, rows and halls: which hosts run together, and who waits."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from placement import BadInput
from placement.fabric import hostset
from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from placement.objective.step_time import step_time
from scheduler.core import Conflict, commit, decide, explain, replay
from scheduler.core.model.commands import SubmitJob
from scheduler.core.model.events import JobRequeued
from scheduler.core.model.lifecycle import RequeueCause
from scheduler.core.model.scheduling_options import SchedulingOptions
from scheduler.core.queue.verdict import WaitReason
from scheduler.core.rules.affinity_index import AffinityIndex
from scheduler.files.errors import InputError
from scheduler.files.inputs import load_fabric
from scheduler.files.job import job_from_mapping
from tests.build import (
    end,
    fabric,
    fabric_spec,
    fail,
    hosts_of,
    job,
    llama3,
    loaded,
    refused,
    run,
    running,
    schedule,
    submit,
)

KW = 10.2


def capped(caps: Any, draw: Any = KW, **more: Any) -> Fabric:
    """Two zones of two racks of two hosts."""
    return from_spec(fabric_spec() | {"power_kw": draw, "power_caps_kw": caps} | more)


def test_a_gang_waits_for_power_and_starts_when_there_is_some() -> None:
    small = capped({"zone": 31})
    state = loaded(small)
    for name, hosts in (("a", 3), ("b", 2), ("c", 2)):
        state = run(state, submit(name, hosts, limit_s=3600))
    state = schedule(state)
    assert running(state) == {"a", "b"}
    reason = explain(state, "c", 0, SchedulingOptions())
    assert reason.cause is WaitReason.CONSTRAINTS
    assert "3 are free, 2 of them beyond the power caps" in reason.sentence
    state = schedule(run(state, end("b")))
    assert running(state) == {"a", "c"}


def test_caps_of_racks_rows_and_halls_hold_at_once() -> None:
    labels = {"z0": {"row": "north"}, "z1": {"row": "south"}}
    small = capped({"rack": 11, "row": {"north": 15}}, labels=labels)
    power = small.power
    assert [cap.name for cap in power.caps][-1] == "row=north"
    may = power.within(hostset.full(8), 0)
    assert small.names(hostset.members(may)) == ("z0-r0-h0", "z1-r0-h0", "z1-r1-h0")


def test_hosts_left_are_those_of_the_emptiest_racks() -> None:
    small = capped({"zone": 21})
    busy = 1  # the first host of the first rack
    may = small.power.within(hostset.full(8) & ~busy, busy)
    assert small.names(hostset.members(may))[0] == "z0-r1-h0"
    assert may.bit_count() == 1 + 2


def test_slower_cards_draw_less_so_more_of_them_run() -> None:
    labels = {"z0": {"gpu": "H100"}, "z1": {"gpu": "H100-500W"}}
    small = capped({"zone": 33}, {"H100": 10.2, "H100-500W": 8.2}, labels=labels)
    assert small.power is not None
    may = small.power.within(hostset.full(8), 0)
    assert [(may & mask).bit_count() for mask in (0b1111, 0b11110000)] == [3, 4]


def test_a_gang_that_no_power_suffices_for_is_refused() -> None:
    small = capped({"zone": 31})
    told = refused(loaded(small), submit("a", 7))
    assert "needs 7 hosts; the power caps of small let 6 run" in str(told)


def test_a_plan_that_exceeds_a_cap_is_stale() -> None:
    plan = decide(run(loaded(fabric()), submit("a", 4)), 1, SchedulingOptions())
    answer = commit(run(loaded(capped({"zone": 31})), submit("a", 4)), plan, 1)
    assert "the power of zone z0 (31 kW) is used up" in str(answer.stale)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "power_caps_kw: {rak: 31}",
            "power_caps_kw.rak: no tier or label 'rak'; there are zone, rack",
        ),
        ("power_caps_kw: {zone: {z7: 31}}", "power_caps_kw.zone.z7: no zone 'z7'"),
        ("power_caps_kw: {zone: -1}", "power_caps_kw.zone: must be a number of kW above 0, not -1"),
        ("power_caps_kw: 4", "power_caps_kw: must map tiers or labels to kW; there are zone, rack"),
    ],
)
def test_bad_caps_are_refused_with_their_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "fabric.yaml"
    path.write_text(
        "name: f\ngpus_per_host: 8\npower_kw: 10.2\n"
        f"{line}\ntiers: [{{name: zone, count: 2}}, {{name: rack, count: 2}},"
        " {name: host, count: 2}]\n"
    )
    with pytest.raises(InputError) as told:
        load_fabric(str(path))
    assert f"fabric.yaml:4: {message}" in str(told.value)


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"power_kw": 3}, "power_kw", "is of use with power_caps_kw alone, which is missing"),
        (
            {"power_caps_kw": {"zone": 1}},
            "power_kw",
            "is required with power_caps_kw: what a host draws",
        ),
        (
            {"power_caps_kw": {"zone": 1}, "power_kw": {"A100": 1}},
            "power_kw.A100",
            "no host has it; there are H100",
        ),
    ],
)
def test_draws_and_caps_go_together(changes: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(BadInput) as told:
        from_spec(fabric_spec() | changes)
    assert (told.value.field, told.value.message) == (field, message)


def gpus(name: str, count: int, **job: Any) -> SubmitJob:
    """A job on so many GPUs of one host."""
    return submit(name, gpus=count, **job)


def test_gpus_that_nobody_has_of_a_shared_host_draw_nothing() -> None:
    small = capped({"zone": {"z0": 10.3, "z1": 1}})  # six of eight GPUs spared: 6 kW, 4.2 kW less
    state = schedule(run(loaded(small), gpus("a", 2)))
    assert running(state) == {"a"}
    state = schedule(run(state, gpus("b", 2), gpus("c", 4)))
    assert running(state) == {"a", "b", "c"}
    held = state.index.held
    assert small.power.draw(held) == pytest.approx(KW)
    (host,) = hostset.members(held)
    assert small.power.draw(held, {host: 6}) == pytest.approx(KW - 6 * 0.7)
    measured = capped({"zone": 9}, draw=2).power  # less than the makers say of its GPUs
    assert measured.draw(held, {host: 6}) == 0


def test_a_part_of_a_host_waits_for_power_that_its_gpus_would_exceed() -> None:
    small = capped({"zone": {"z0": 8, "z1": 1}})
    state = schedule(run(loaded(small), gpus("a", 4)))  # 10.2 - 4 x 0.7 = 7.4
    assert running(state) == {"a"}
    state = schedule(run(state, gpus("b", 1), gpus("c", 1)))
    assert running(state) == {"a"}
    assert "beyond the power caps" in explain(state, "b", 0, SchedulingOptions()).sentence
    state = schedule(run(state, end("a")))
    assert running(state) == {"b", "c"}


def test_a_gang_on_a_host_that_jobs_shared_draws_all_of_it() -> None:
    state = schedule(run(loaded(capped({"zone": {"z0": 18, "z1": 1}})), gpus("a", 2)))
    index = AffinityIndex(state).without({"a"})
    whole = job(run(state, submit("b")), "b")
    index.record_allocation(whole, state.index.held)
    assert not index.powered(whole, state.free)


def test_parts_of_hosts_and_gangs_never_draw_more_than_the_caps() -> None:
    small = capped({"rack": 16, "zone": 26})
    for seed in range(3):
        draw, state = random.Random(seed), loaded(small)
        for number in range(25):
            if (names := sorted(running(state))) and draw.random() < 0.4:
                state = run(state, end(draw.choice(names)))
            else:
                count = draw.choice([1, 2, 4, 8])
                state = run(state, gpus(f"j{number}", count) if count < 8 else submit(f"j{number}"))
            state = schedule(state)
            idle = {host: 8 - len(state.gpus_taken(host)) for host in state.index.shared}
            for cap in small.power.caps:
                assert small.power.draw(state.index.held & cap.hosts, idle) <= cap.kw


def cappable(name: str, hosts: int, watts: int = 500) -> SubmitJob:
    """A job whose GPUs may be held to so many watts."""
    command = submit(name, hosts)
    return replace(command, spec=replace(command.spec, power_cap_w=watts))


def test_a_gang_starts_with_its_gpus_held_where_power_leaves_it_no_room_otherwise() -> None:
    small = capped({"zone": {"z0": 36.5, "z1": 1}})  # three hosts of 10.2 kW, or four of 8.6
    state = schedule(run(loaded(small), cappable("a", 1), cappable("b", 3), cappable("c", 1)))
    assert {name: state.jobs[name].gpu_watts for name in running(state)} == {"a": 0, "b": 500}
    assert state.jobs["b"].present.notes[-1].endswith("each GPU is held to 500 W")
    sentence = explain(state, "b", 0, SchedulingOptions()).sentence
    assert sentence == "b is running; each of its GPUs is held to 500 W"
    state = schedule(run(state, end("a")))
    assert {name: state.jobs[name].gpu_watts for name in running(state)} == {"b": 500, "c": 0}
    again = replay([JobRequeued(1, "b", "moves", RequeueCause.MAINTENANCE)], state)
    assert again.jobs["b"].gpu_watts == 0


def test_a_gang_whose_gpus_are_held_swaps_within_what_it_draws() -> None:
    state = schedule(run(loaded(capped({"zone": {"z0": 27, "z1": 1}})), cappable("a", 3)))
    lost = hosts_of(state, "a")[1]
    state = schedule(run(state, fail(lost)))  # 9.8 kW are left: for a host with GPUs held alone
    assert (running(state), state.jobs["a"].gpu_watts) == ({"a"}, 500)
    assert lost not in hosts_of(state, "a")


def test_a_plan_to_hold_gpus_is_checked_with_what_they_draw_then() -> None:
    small = capped({"zone": {"z0": 20, "z1": 1}})
    state = run(loaded(small), cappable("a", 2))
    plan = decide(state, 0, SchedulingOptions())
    events = commit(state, plan, 1)
    assert isinstance(events, tuple)
    (event,) = events
    assert event.gpu_watts == 500
    taken = schedule(run(loaded(small), submit("b")))
    assert isinstance(commit(run(taken, cappable("a", 2)), plan, 1), Conflict)


def test_a_step_with_gpus_held_is_that_of_slower_gpus() -> None:
    gang, large = llama3(), fabric(8, 64, 4)
    free_s, held_s, sold_s = (
        step_time(on, each, range(2048)).compute_s
        for on, each in (
            (large, gang),
            (large, gang.with_power_limit(500)),
            (from_spec({**large.spec, "gpu": "H100-500W"}), gang),
        )
    )
    assert held_s == sold_s > free_s


@pytest.mark.parametrize(
    ("watts", "message"),
    [(349, "must be at least 350 and below 700 for H100, not 349"), (700, "not 700")],
)
def test_a_limit_that_no_gpu_can_be_held_to_is_refused(watts: int, message: str) -> None:
    told = refused(loaded(fabric()), cappable("a", 1, watts))
    assert [each.field for each in told.violations] == ["power_cap_w"]
    assert message in told.violations[0].message


def test_gpus_are_held_only_where_the_step_is_modelled() -> None:
    mapping = {"name": "job", "parallelism": {"tp": 8}, "power_cap_w": 500, "compute_time_s": 2}
    with pytest.raises(InputError, match="power_cap_w: conflicts with compute_time_s"):
        job_from_mapping(mapping)
