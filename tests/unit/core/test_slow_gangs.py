"""Gangs that degraded links hold up: named with the links, and moved where that pays."""

from dataclasses import replace
from functools import cache
from math import isinf

import pytest

from placement.objective.step_time import step_time
from placement.workload.request import StepBound
from scheduler.core import JobSpec, SchedulingOptions, State, replay
from scheduler.core.defrag.faster import propose_faster
from scheduler.core.defrag.request import carried_out, moves_etag
from scheduler.core.explain.explain import explain
from scheduler.core.model.commands import ChangeFabric, ReportLink, SetWindow, SubmitJob
from scheduler.core.model.events import Defragmented, GangSwapped
from scheduler.core.model.job import SECOND_NS
from scheduler.core.policies.costs import Costs
from scheduler.core.rules.network.gang_step import at_present, present_step
from scheduler.core.rules.network.slow_gangs import slow_gang, slow_gangs
from scheduler.files.job import job_from_mapping
from tests.build import (
    HOUR_NS,
    end,
    fabric,
    fabric_spec,
    hosts_of,
    job,
    loaded,
    run,
    settled,
    started,
    submit,
)
from tests.windows import window

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


@cache
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
    assert slow.slower == pytest.approx(now_s / gang.present.step.seconds - 1)  # type: ignore[union-attr]
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
    assert found.sentence.startswith("1 gang is slow because of its links; 1 move saves ")
    assert moves_etag(state, found)
    events = carried_out(found, "slow gangs", "r", state, HOUR_NS)
    assert isinstance(events, tuple)
    assert [type(event) for event in events] == [GangSwapped, Defragmented]
    after = replay(events, state)
    assert zone not in {host[:2] for host in hosts_of(after, "a")}
    assert not list(slow_gangs(after, LIMITS))
    assert job(after, "a").present.step.seconds == pytest.approx(move.then_s)  # type: ignore[union-attr]


def test_a_move_that_does_not_pay_is_left() -> None:
    state = started(EMPTY, trained("a", 6, limit_s=3_700))
    state = run(state, ReportLink(weak(state), 0.1))
    found = propose_faster(state, HOUR_NS, LIMITS, Costs(3_600, 600))  # it ends in 100 s
    assert not found.moves
    assert found.sentence == "1 gang is slow because of its links; no move pays"


def test_where_there_is_no_room_nobody_moves() -> None:
    state = started(EMPTY, trained("a", 6), submit("b", 6))
    state = run(state, ReportLink(weak(state), 0.1))
    assert not propose_faster(state, HOUR_NS, LIMITS, Costs(600, 60)).moves
    state = settled(run(state, end("b")), HOUR_NS)
    assert propose_faster(state, HOUR_NS, LIMITS, Costs(600, 60)).moves


def test_with_all_links_up_there_is_nothing_to_do() -> None:
    found = propose_faster(spread(), HOUR_NS, LIMITS, Costs(600, 60))
    assert (found.moves, found.sentence) == ((), "no gang is slow because of its links")


# --- the step as it is now ------------------------------------------------------


def step_of(state: State) -> StepBound:
    step = present_step(state, job(state, "a"))
    assert step is not None
    return step


def test_a_running_gang_has_the_step_that_links_leave_it_now() -> None:
    state = spread()
    built = step_of(state)
    assert built == job(state, "a").present.step
    state = run(state, ReportLink(weak(state), 0.2), now_ns=HOUR_NS)
    slow, gang = step_of(state), job(state, "a")
    assert slow.seconds == step_time(state.loaded_fabric, gang.request, gang.hosts).seconds
    assert slow.seconds > 1.1 * built.seconds
    assert slow.least_seconds == built.least_seconds  # links carry no more than they did
    assert at_present(state, gang).present.step == slow
    reason = explain(state, "a", HOUR_NS, LIMITS).sentence
    assert f"a step takes {slow.seconds:.3g} s" in reason
    assert f"% longer: the uplink of {weak(state)} at 20 %" in reason
    up = run(state, ReportLink(weak(state), 1), now_ns=2 * HOUR_NS)
    assert step_of(up) == built


def test_a_gang_placed_on_a_weak_link_is_faster_once_it_is_up() -> None:
    """The bound was of the weak links: nothing is known to be faster than now."""
    state = run(EMPTY, *(ReportLink(zone, 0.2) for zone in ("z0", "z1", "z2")))
    state = started(state, trained("a", 6))
    weak_s = step_of(state).seconds
    state = run(state, *(ReportLink(f"z{n}", 1) for n in range(3)), now_ns=HOUR_NS)
    assert not state.loaded_fabric.links
    assert step_of(state).seconds < weak_s
    assert step_of(state).least_seconds == 0


def test_a_gang_that_stands_still_has_no_step() -> None:
    state = spread()
    state = run(state, ReportLink(weak(state), 0), now_ns=HOUR_NS)
    assert present_step(state, job(state, "a")) is None
    sentence = explain(state, "a", HOUR_NS, LIMITS).sentence
    assert sentence == f"a is running; stands still: the uplink of {weak(state)} down"


def test_a_window_that_leaves_a_share_changes_the_step_while_it_is_open() -> None:
    state = spread()
    built, zone = step_of(state), weak(state)
    ahead = replace(window("w", start_s=60, end_s=3_600), links=(zone,), share=0.2)
    state = run(state, SetWindow(ahead))
    assert step_of(state) == built
    state = settled(state, 60 * SECOND_NS)
    assert step_of(state).seconds > built.seconds
    state = settled(state, 3_600 * SECOND_NS)
    assert step_of(state).seconds == pytest.approx(built.seconds)


def test_the_step_follows_the_bandwidth_of_a_changed_fabric() -> None:
    state = spread()
    built = step_of(state)
    spec = {**fabric_spec(zones=3, racks=2, hosts=2), "nic_gbps": 100}
    state = run(state, ChangeFabric(spec), now_ns=HOUR_NS)
    assert step_of(state).seconds > 1.1 * built.seconds
