"""The windows file: what it says, and what is said of one that is wrong."""

from pathlib import Path

import pytest

from placement.fabric.hostset import HostSet
from placement.fabric.reader import PRESETS, from_spec
from scheduler.core import SchedulingOptions, Tenants
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.scheduling_options import time_limit_ns
from scheduler.core.model.window import Leave, WindowKind
from scheduler.core.names import DEFAULT_TENANT
from scheduler.core.policies.tenants import Tenant
from scheduler.core.rules.calendar import Calendar
from scheduler.files.windows import WindowsFile, load_windows
from tests.build import fabric, run, submit
from tests.refusals import refusal

HOUR_NS = 3_600 * SECOND_NS
NOW_NS = 1_700_000_000 * SECOND_NS  # 2023-11-14T22:13:20Z
EXAMPLE = Path(__file__).parents[2] / "examples" / "windows.yaml"


def written(tmp_path: Path, *entries: str) -> WindowsFile:
    path = tmp_path / "windows.yaml"
    path.write_text("windows:\n" + "".join(f"  - {{{entry}}}\n" for entry in entries))
    return load_windows(str(path))


def test_the_example_can_be_had() -> None:
    _, windows = load_windows(str(EXAMPLE)).booked(from_spec(PRESETS["roce-24k"]), None, NOW_NS)
    firmware, demo = windows
    assert (firmware.kind, firmware.leave) == (WindowKind.MAINTENANCE, Leave.REQUEUE)
    assert len(firmware.hosts) == 384 + 24
    assert firmware.end_ns - firmware.start_ns == 4 * HOUR_NS
    assert demo.start_ns == NOW_NS + 48 * HOUR_NS
    assert len(demo.hosts) == 48


def test_times_are_absolute_or_counted(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "name: a, kind: maintenance, hosts: [z0], start: +90m, end: +1d2h",
        'name: b, kind: maintenance, hosts: [z0], start: "2026-11-21T06:00+01:00", duration: 30s',
    )
    a, b = file.windows(NOW_NS)
    assert (a.start_ns - NOW_NS, a.end_ns - NOW_NS) == (90 * 60 * SECOND_NS, 26 * HOUR_NS)
    assert b.start_ns == 1_795_237_200 * SECOND_NS
    assert b.end_ns == b.start_ns + 30 * SECOND_NS


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("kind: maintenance, hosts: [z0], start: +1h, end: +2h", "windows.0.name"),
        ("name: a, kind: repair, hosts: [z0], start: +1h, end: +2h", "windows.0.kind"),
        ("name: a, kind: maintenance, hosts: [z0], start: soon, end: +2h", "windows.0.start"),
        ("name: a, kind: maintenance, hosts: [z0], start: +1h", "give either end or duration"),
        ("name: a, kind: maintenance, hosts: [z0], start: +1h, end: +2h, x: 1", "windows.0.x"),
        ("name: a, kind: maintenance, hosts: [z0, z9], start: +1h, end: +2h", "windows.0.hosts.1"),
        ("name: a, kind: maintenance, hosts: [z0], start: +2h, end: +1h", "windows.0.end"),
        ("name: a, kind: reservation, hosts: [z0], start: +1h, end: +2h", "windows.0.tenant"),
        ("name: a, kind: reservation, count: 9, jobs: [j], start: +1h, end: +2h", "needs 9 hosts"),
        (
            "name: a, kind: reservation, hosts: [z0], tenant: u, start: +1h, end: +2h",
            "no tenant 'u'",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, entry: str, said: str) -> None:
    told = refusal(lambda: written(tmp_path, entry).booked(fabric(), None, NOW_NS))
    assert said in told
    assert f"{tmp_path}/windows.yaml:2: " in told


def test_a_name_is_given_once(tmp_path: Path) -> None:
    entry = "name: a, kind: maintenance, hosts: [z0], start: +1h, end: +2h"
    assert "window a is given twice" in refusal(written, tmp_path, entry, entry)


def closed(file: WindowsFile, limit_s: int | None, **job: str) -> HostSet:
    """Hosts on which such a job could not start now, for it would reach into a window."""
    tenants = Tenants((Tenant("t"), Tenant(DEFAULT_TENANT)))
    state = run(file.booked(fabric(), tenants, NOW_NS)[0], submit("a", 1, limit_s=limit_s, **job))
    asked, limits = state.jobs["a"], SchedulingOptions(assumed_limit_s=7_200)
    return Calendar(state).closed(asked, NOW_NS, NOW_NS + time_limit_ns(asked, limits))


def test_what_a_job_would_reach_into_is_closed_to_it(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "name: a, kind: maintenance, hosts: [z0-r0],"
        ' start: "2023-11-14T23:13:20Z", end: "2023-11-15T00:13:20Z"',
        "name: b, kind: reservation, hosts: [z1-r0], tenant: t,"
        ' start: "2023-11-14T23:13:20Z", end: "2023-11-15T00:13:20Z"',
    )
    both, maintained = 0b110011, 0b11
    assert closed(file, 3_600) == 0
    assert closed(file, 3_601) == both
    assert closed(file, None) == both, "two hours are assumed"
    assert closed(file, 3_601, tenant="t") == maintained
