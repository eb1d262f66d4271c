"""Numbers as people read them: a unit that fits, three or four digits."""

from __future__ import annotations

import pytest

from scheduler.cli.render.messages import tenants_table
from scheduler.cli.render.text import gbps_text, seconds_text
from scheduler.v1 import tenant_pb2


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0 s"),
        (4e-9, "< 0.01 us"),
        (2.5e-6, "2.5 us"),
        (0.0123, "12.3 ms"),
        (0.99949, "999 ms"),
        (0.99951, "1 s"),
        (999.4, "999 s"),
        (999.6, "16.7 min"),
        (7_199, "120 min"),
        (7_200, "2 h"),
        (44_800, "12.4 h"),
        (172_800, "2 d"),
        (4.48e10, "518,519 d"),
    ],
)
def test_seconds(seconds: float, told: str) -> None:
    assert seconds_text(seconds) == told


@pytest.mark.parametrize(
    ("gbps", "told"),
    [
        (400, "400 Gbit/s"),
        (999.96, "1,000 Gbit/s"),
        (3_200, "3.2 Tbit/s"),
        (409_600, "409.6 Tbit/s"),
        (4_915_200, "4,915 Tbit/s"),
    ],
)
def test_bandwidths(gbps: float, told: str) -> None:
    assert gbps_text(gbps) == told


def test_a_tenant_whose_parent_a_filter_leaves_out_stands_at_the_left() -> None:
    found = [
        tenant_pb2.Tenant(name="vision", parent="research"),
        tenant_pb2.Tenant(name="video", parent="vision"),
    ]
    rows = tenants_table(found, "default").text(found).splitlines()

    assert [row.partition("  0 ")[0].rstrip() for row in rows[1:]] == ["vision", "  video"]
