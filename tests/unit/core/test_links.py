"""Links as state, what gangs make of them, and gangs that degraded links hold up."""

from dataclasses import replace
from functools import cache
from math import isinf
from typing import Any

import pytest

from placement.objective.step_time import step_time
from placement.workload.request import StepBound
from scheduler.core import Code, JobSpec, JobState, SchedulingOptions, State, admit, replay
from scheduler.core.admission.etag import link_etag
from scheduler.core.defrag.faster import propose_faster
from scheduler.core.defrag.request import carried_out, moves_etag
from scheduler.core.explain.explain import explain
from scheduler.core.model.commands import MoveLink, ReportLink, SetWindow, SubmitJob
from scheduler.core.model.events import Defragmented, GangSwapped
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import LinkMove, LinkUse
from scheduler.core.model.state import LinkRecord
from scheduler.core.model.window import Window, WindowKind
from scheduler.core.policies.costs import Costs
from scheduler.core.rules.network.gang_step import at_present, present_step
from scheduler.core.rules.network.links import fabric_between
from scheduler.core.rules.network.slow_gangs import slow_gang, slow_gangs
from scheduler.files.job import job_from_mapping
from tests.build import (
    HOUR_NS,
    admitted,
    fabric,
    hosts_of,
    job,
    loaded,
    refused,
    run,
    running,
    settled,
    started,
    submit,
)
from tests.windows import window

EMPTY = loaded(fabric(zones=2, racks=2, hosts=2))
HOUR = 3_600


def down(name: str) -> ReportLink:
    return ReportLink(name, 0.0, "cut by a digger")


def up(name: str) -> ReportLink:
    return ReportLink(name, 1.0)


def links_window(*names: str, share: float = 0.0, **keys: Any) -> SetWindow:
    return SetWindow(replace(window("w", **keys), links=names, share=share))


def test_a_report_is_kept_until_the_link_is_up() -> None:
    state = run(EMPTY, ReportLink("z1", 0.875, "2 of 16 cables"), now_ns=5)
    assert dict(state.links) == {"z1": LinkRecord(0.875, 5, "2 of 16 cables")}
    built = EMPTY.loaded_fabric.tiers[0].uplink_bytes_per_s
    assert state.loaded_fabric.tiers[0].uplink_bytes_per_s[1] == 0.875 * built[1]
    assert admit(state, ReportLink("z1", 0.875), 6) == ()
    state = run(state, up("z1"))
    assert not state.links
    assert state.loaded_fabric is EMPTY.loaded_fabric


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (ReportLink("z9", 0.5), Code.NOT_FOUND, "no domain 'z9' in this fabric has an uplink"),
        (ReportLink("z0", 1.5), Code.INVALID, "share: must be a share of the uplink"),
        (ReportLink("z0", -1), Code.INVALID, "share: must be a share of the uplink"),
        (ReportLink("z0", float("nan")), Code.INVALID, "share: must be a share of the uplink"),
        (ReportLink("z0-r0-h0", 0), Code.INVALID, "name: z0-r0-h0 is a host"),
        (MoveLink("z9", LinkMove.DRAIN), Code.NOT_FOUND, "no domain 'z9' in this fabric"),
        (MoveLink("z0", LinkMove.DRAIN, etag="x"), Code.STALE, "link z0 has changed"),
    ],
)
def test_what_no_link_can_be_is_refused(command: Any, code: Code, message: str) -> None:
    refusal = refused(EMPTY, command)
    assert refusal.code is code
    assert refusal.message.startswith(message)


def test_cordon_drain_uncordon() -> None:
    state = run(EMPTY, MoveLink("z1", LinkMove.CORDON, "optics"))
    assert state.links["z1"].use is LinkUse.CORDONED
    assert admit(state, MoveLink("z1", LinkMove.CORDON), 0) == ()
    state = run(state, MoveLink("z1", LinkMove.DRAIN))
    assert state.links["z1"].use is LinkUse.DRAINING
    etag = link_etag("z1", state.links["z1"])
    state = run(state, MoveLink("z1", LinkMove.UNCORDON, etag=etag))
    assert not state.links
    assert admit(state, MoveLink("z1", LinkMove.UNCORDON), 0) == ()


def test_a_window_on_a_link_takes_its_share_while_it_is_open() -> None:
    state = run(EMPTY, links_window("z1", share=0.5, start_s=HOUR, end_s=2 * HOUR))
    assert state.windows["w"].window.hosts == ()
    assert state.loaded_fabric is EMPTY.loaded_fabric
    state = settled(state, HOUR_NS)
    assert not state.index.closed
    built = EMPTY.loaded_fabric.tiers[0].uplink_bytes_per_s
    assert state.loaded_fabric.tiers[0].uplink_bytes_per_s[1] == built[1] / 2
    state = settled(state, 2 * HOUR_NS)
    assert state.loaded_fabric == EMPTY.loaded_fabric


def test_a_gang_that_would_run_into_it_sees_the_link_as_it_will_be() -> None:
    state = run(EMPTY, links_window("z1", start_s=HOUR, end_s=2 * HOUR))
    assert fabric_between(state, 0, HOUR_NS) == EMPTY.loaded_fabric
    assert fabric_between(state, 0, HOUR_NS + 1).barred
    assert not running(started(state, submit("a", 6, limit_s=HOUR + 1)))
    assert running(started(state, submit("a", 6, limit_s=HOUR))) == {"a"}
    assert running(started(state, submit("a", 4, limit_s=9 * HOUR))) == {"a"}


@pytest.mark.parametrize(("leave", "goes"), [("wait", False), ("move", False), ("requeue", True)])
def test_gangs_leave_a_link_as_the_window_says(leave: str, goes: bool) -> None:
    state = started(EMPTY, submit("a", 6, limit_s=HOUR))
    state = run(state, links_window("z1", start_s=HOUR, end_s=2 * HOUR, leave=leave))
    after = job(settled(state, HOUR_NS), "a")
    assert (after.state is JobState.QUEUED) is goes
    assert after.reason.startswith("window w opened") is goes


@pytest.mark.parametrize(
    ("command", "field"),
    [
        (links_window("z9"), "links.0"),
        (links_window("z1", share=1.5), "link_share"),
        (SetWindow(replace(window("w", "z0"), share=0.5)), "link_share"),
        (SetWindow(Window("w", WindowKind.MAINTENANCE, 0, HOUR_NS)), "hosts"),
        (SetWindow(replace(window("w", "z0", jobs=("a",)), links=("z1",))), "links"),
    ],
)
def test_windows_that_no_link_can_have(command: SetWindow, field: str) -> None:
    assert refused(EMPTY, command).violations[0].field == field


def test_links_outlast_a_restart() -> None:
    from scheduler.eventlog import snapshots

    state: State = run(EMPTY, down("z1"), MoveLink("z0", LinkMove.DRAIN, "optics"))
    state = run(state, links_window("z0-r1", share=0.5, end_s=HOUR), now_ns=SECOND_NS)
    back, _ = snapshots.decode(snapshots.encode(state, SECOND_NS))
    assert back == state
    assert back.loaded_fabric == state.loaded_fabric
    assert admitted(back, up("z1"))


# --- gangs that links hold up ----------------------------------------------------


LIMITS = SchedulingOptions()
THREE_ZONES = loaded(fabric(zones=3, racks=2, hosts=2))
MODEL = {
    "layers": 8, "hidden": 4096, "ffn": 16384, "heads": 32, "kv_heads": 8, "vocab": 32000,
    "sequence": 4096, "dtype": "bf16",
}  # fmt: skip


def trained(name: str, hosts: int) -> SubmitJob:
    spec: JobSpec = job_from_mapping(
        {
            "name": name, "parallelism": {"tp": 8, "dp": hosts}, "model": MODEL, "spares": 0,
            "batch": {"global_sequences": hosts, "micro_sequences": 1}, "time_limit_s": 86_400,
        }
    )  # fmt: skip
    return SubmitJob(spec, f"uid-{name}")


@cache
def spread() -> State:
    """a lies in two zones, of which one is about to lose most of its uplink; a third is free."""
    state = started(THREE_ZONES, trained("a", 6))
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
    state = run(
        started(THREE_ZONES, trained("a", 4)), ReportLink("z0", 0.01), ReportLink("z1", 0.01)
    )
    assert slow_gang(state, job(state, "a")) is None


def test_a_gang_across_a_dead_link_stands_still() -> None:
    state = spread()
    state = run(state, ReportLink(weak(state), 0))
    [slow] = slow_gangs(state, LIMITS)
    assert isinf(slow.slower)
    assert slow.text == f"stands still: the uplink of {weak(state)} down"


def test_without_a_step_time_nobody_knows() -> None:
    state = started(THREE_ZONES, submit("a", 6))
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
    state = run(spread(), ReportLink(weak(spread()), 0.1))
    late_ns = 86_300 * SECOND_NS  # it ends in 100 s
    found = propose_faster(state, late_ns, LIMITS, Costs(3_600, 600))
    assert not found.moves
    assert found.sentence == "1 gang is slow because of its links; no move pays"


# --- the step as it is now ------------------------------------------------------


def test_where_there_is_no_room_nobody_moves() -> None:
    state = started(THREE_ZONES, trained("a", 6), submit("b", 6))
    state = run(state, ReportLink(weak(state), 0.1))
    assert not propose_faster(state, HOUR_NS, LIMITS, Costs(600, 60)).moves


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
    state = run(THREE_ZONES, *(ReportLink(zone, 0.2) for zone in ("z0", "z1", "z2")))
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
