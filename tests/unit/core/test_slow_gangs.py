"""Gangs that degraded links hold up: named with the links, and moved where that pays."""

from __future__ import annotations

from dataclasses import replace
from math import isinf

import pytest

from placement.objective.step_time import step_time
from scheduler.core import JobSpec, SchedulingOptions, State, replay
from scheduler.core.defrag.faster import propose_faster
from scheduler.core.defrag.request import carried_out, moves_etag
from scheduler.core.model.commands import ReportLink, SubmitJob
from scheduler.core.model.events import Defragmented, GangSwapped
from scheduler.core.policies.costs import Costs
from scheduler.core.rules.slow_gangs import slow_gang, slow_gangs
from scheduler.files.job import job_from_mapping
from tests.build import HOUR_NS, end, fabric, hosts_of, job, loaded, run, settled, started, submit

LIMITS = SchedulingOptions()
EMPTY = loaded(fabric(zones=3, racks=2, hosts=2))
MODEL = {
    "layers": 8, "hidden": 4096, "ffn": 16384, "heads": 32, "kv_heads": 8, "vocab": 32000,
    "sequence": 4096, "dtype": "bf16",
}  # fmt: skip


def trained(name: str, hosts: int, limit_s: int = 86_400) -> SubmitJob:
    spec: JobSpec = job_from_mapping(
        {
            "name": name, "parallelism": {"tp": 8, "dp": hosts}, "model": MODEL, "spares": 0,
            "batch": {"global_sequences": hosts, "micro_sequences": 1}, "time_limit_s": limit_s,
        }
    )  # fmt: skip
    return SubmitJob(spec, f"uid-{name}")


def spread() -> State:
    """a lies in two zones, of which one is about to lose most of its uplink; a third is free."""
    state = started(EMPTY, trained("a", 6))
    assert len({host[:2] for host in hosts_of(state, "a")}) == 2
    return state


def weak(state: State) -> str:
    """A zone that the gang lies in."""
    return hosts_of(state, "a")[0][:2]


def test_a_gang_is_slow_when_its_step_is_longer_than_with_all_links_up() -> None:
    state = spread()
    assert not list(slow_gangs(state, LIMITS))
    zone = weak(state)
    state = run(state, ReportLink(zone, 0.2))
    [slow] = slow_gangs(state, LIMITS)
    gang = job(state, "a")
    now_s = step_time(state.loaded_fabric, gang.request, gang.hosts).seconds
    assert slow.slower == pytest.approx(now_s / gang.step.seconds - 1)  # type: ignore[union-attr]
    assert slow.links == ((zone, 0.2),)
    assert slow.text.endswith(f"% longer: the uplink of {zone} at 20 %")
    assert not list(slow_gangs(state, replace(LIMITS, slow_percent=round(100 * slow.slower) + 1)))


def test_a_link_that_a_gang_does_not_cross_makes_no_gang_slow() -> None:
    state = run(spread(), ReportLink("z0-r0", 0.01))
    state = run(started(EMPTY, trained("a", 4)), ReportLink("z0", 0.01), ReportLink("z1", 0.01))
    assert slow_gang(state, job(state, "a")) is None


def test_a_gang_across_a_dead_link_stands_still() -> None:
    state = spread()
    state = run(state, ReportLink(weak(state), 0))
    [slow] = slow_gangs(state, LIMITS)
    assert isinf(slow.slower)
    assert slow.text == f"stands still: the uplink of {weak(state)} down"


def test_without_a_step_time_nobody_knows() -> None:
    state = started(EMPTY, submit("a", 6))
    state = run(state, ReportLink(weak(state), 0.1))
    assert not list(slow_gangs(state, LIMITS))


def test_a_move_that_pays_is_made() -> None:
    state = spread()
    zone = weak(state)
    state = run(state, ReportLink(zone, 0.1))
    found = propose_faster(state, HOUR_NS, LIMITS, Costs(600, 60))
    [move] = found.moves
    assert move.saved_gpu_s > move.lost_gpu_s > 0
    assert move.then_s < move.step_s
    assert found.sentence.startswith("1 gang is slow for its links; 1 move saves ")
    assert moves_etag(state, found)
    events = carried_out(found, "slow gangs", "r", state, HOUR_NS)
    assert isinstance(events, tuple)
    assert [type(event) for event in events] == [GangSwapped, Defragmented]
    after = replay(events, state)
    assert zone not in {host[:2] for host in hosts_of(after, "a")}
    assert not list(slow_gangs(after, LIMITS))
    assert job(after, "a").step.seconds == pytest.approx(move.then_s)  # type: ignore[union-attr]


def test_a_move_that_does_not_pay_is_left() -> None:
    state = started(EMPTY, trained("a", 6, limit_s=3_700))
    state = run(state, ReportLink(weak(state), 0.1))
    found = propose_faster(state, HOUR_NS, LIMITS, Costs(3_600, 600))  # it ends in 100 s
    assert not found.moves
    assert found.sentence == "1 gang is slow for its links; no move pays"


def test_where_there_is_no_room_nobody_moves() -> None:
    state = started(EMPTY, trained("a", 6), submit("b", 6))
    state = run(state, ReportLink(weak(state), 0.1))
    assert not propose_faster(state, HOUR_NS, LIMITS, Costs(600, 60)).moves
    state = settled(run(state, end("b")), HOUR_NS)
    assert propose_faster(state, HOUR_NS, LIMITS, Costs(600, 60)).moves


def test_with_all_links_up_there_is_nothing_to_do() -> None:
    found = propose_faster(spread(), HOUR_NS, LIMITS, Costs(600, 60))
    assert (found.moves, found.sentence) == ((), "no gang is slow for its links")
