"""Links as state: reports, cordons, drains and windows, and what gangs make of them."""

from dataclasses import replace
from typing import Any

import pytest

from placement.objective.step_time import step_time
from scheduler.core import Code, SchedulingOptions, State, admit, decide, replay
from scheduler.core.admission.etag import link_etag
from scheduler.core.fold.apply import effects
from scheduler.core.fold.effects import LinkChange
from scheduler.core.model.commands import MoveLink, ReportLink, SetWindow
from scheduler.core.model.events import JobRequeued, LinkReported
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import LinkMove, LinkUse, RequeueCause
from scheduler.core.model.state import PLAIN_LINK, LinkRecord
from scheduler.core.model.window import Window, WindowKind
from scheduler.core.rules.network.links import fabric_between
from tests.build import (
    HOUR_NS,
    admitted,
    committed,
    fabric,
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


# --- reports ----------------------------------------------------------------------


def test_a_report_is_kept_until_the_link_is_up() -> None:
    state = run(EMPTY, ReportLink("z1", 0.875, "2 of 16 cables"), now_ns=5)
    assert dict(state.links) == {"z1": LinkRecord(0.875, 5, "2 of 16 cables")}
    built = EMPTY.loaded_fabric.tiers[0].uplink_bytes_per_s
    assert state.loaded_fabric.tiers[0].uplink_bytes_per_s[1] == 0.875 * built[1]
    assert admit(state, ReportLink("z1", 0.875), 6) == ()
    state = run(state, up("z1"))
    assert not state.links
    assert state.loaded_fabric is EMPTY.loaded_fabric


def test_the_event_says_what_changed() -> None:
    event = LinkReported(5, "z1", 0.5)
    after = replay([event], EMPTY)
    [change] = effects(EMPTY, event, after)
    assert change == LinkChange(2, 5, "z1", PLAIN_LINK, LinkRecord(0.5, 5), after)


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


# --- gangs ------------------------------------------------------------------------


def test_a_drained_link_is_waited_for_where_there_is_none() -> None:
    state = started(EMPTY, submit("a", 6))
    state = run(state, MoveLink("z0", LinkMove.DRAIN))
    assert settled(state) == state
    alone = step_time(state.loaded_fabric, job(state, "a").request, job(state, "a").hosts)
    assert alone.seconds < float("inf")  # it carries what it carries


# --- windows ----------------------------------------------------------------------


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
    plan = decide(settled(state, 1), HOUR_NS, SchedulingOptions())
    state = replay(committed(state, plan, HOUR_NS), state)
    events = committed(state, decide(state, HOUR_NS, SchedulingOptions()), HOUR_NS)
    gone = [e for e in events if isinstance(e, JobRequeued)]
    assert bool(gone) is goes
    for event in gone:
        assert event.cause is RequeueCause.MAINTENANCE
        assert event.reason.startswith("window w opened")


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
