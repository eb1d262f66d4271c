"""What has gone wrong of late."""

from __future__ import annotations

from pathlib import Path

from scheduler.core import JobState
from scheduler.core.model.events import FabricLoaded, GangSwapped, HostMoved, HostSwap, JobEnded
from scheduler.core.model.lifecycle import HostMove, Mover
from scheduler.eventlog.store import open_store
from scheduler.observe.incidents import KEPT, IncidentKind, Incidents, look_back
from tests.build import fabric_spec
from tests.serving import url


def _failure(version: int) -> HostMoved:
    return HostMoved(
        version, f"h{version}", HostMove.FAIL, "nic-down", "", Mover.SIGNAL, "nic-down"
    )


def test_the_newest_come_first_and_old_ones_go() -> None:
    found = Incidents()
    for version in range(KEPT + 5):
        found.feed(version, _failure(version))
    newest = found.newest()
    assert len(newest) == KEPT
    assert (newest[0].version, newest[-1].version) == (KEPT + 4, 5)
    assert (newest[0].subject, newest[0].detail) == (f"h{KEPT + 4}", "nic-down")


def test_what_is_as_it_should_be_is_no_incident() -> None:
    found = Incidents()
    found.feed(1, JobEnded(1, "a", JobState.COMPLETED))
    found.feed(2, HostMoved(2, "h", HostMove.CORDON))
    assert found.newest() == []


def test_a_swap_names_its_hosts() -> None:
    found = Incidents()
    found.feed(1, GangSwapped(1, "a", 2, (HostSwap(0, "h0", "h5"), HostSwap(1, "h1", "h6")), ()))
    (one,) = found.newest()
    assert (one.kind, one.detail) == (IncidentKind.GANG_SWAPPED, "h0 by h5, h1 by h6")


def test_a_restart_remembers_what_went_before(tmp_path: Path) -> None:
    store = open_store(url(tmp_path))
    try:
        store.append(0, [FabricLoaded(0, fabric_spec()), _failure(2), _failure(3)])
        found = look_back(store, 3)
    finally:
        store.close()
    assert [one.version for one in found.newest()] == [3, 2]
