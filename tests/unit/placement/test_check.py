"""Every way a placement can be wrong is found, and a right one passes; what requests need."""

from dataclasses import replace

import pytest

from placement.fabric import hostset
from placement.objective.check import host_violations, violations
from placement.workload.request import AUTO, Placement, SpareRule, TierCut
from tests.build import everything, exactly, fabric, gang, llama3, on, request

FABRIC = fabric(2, 2, 2)  # z0: hosts 0..3, z1: 4..7
REQUEST = gang(4, spares=exactly(1))
RIGHT = replace(on(FABRIC, REQUEST, 0, 1, 4, 5, spares=(2,)), lower_bound=100)


def found(placement: Placement, free: int = everything(FABRIC)) -> list[str]:
    return violations(FABRIC, free, REQUEST, placement)


def test_a_right_placement_passes() -> None:
    assert RIGHT.cut == 160
    assert found(RIGHT) == []
    assert found(RIGHT, hostset.of((0, 1, 2, 4, 5))) == []
    assert found(replace(RIGHT, spares=(2, 3, 7))) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hosts": (0, 1, 4)}, "the gang has 4 blocks, 3 are placed"),
        ({"hosts": ()}, "the gang has 4 blocks, 0 are placed"),
        ({"hosts": (0, 1, 4, 5, 6)}, "the gang has 4 blocks, 5 are placed"),
        ({"hosts": (0, 1, 4, 4)}, "a host is named twice"),
        ({"spares": (0,)}, "a host is named twice"),
        ({"spares": (2, 2)}, "a host is named twice"),
        ({"hosts": (0, 1, 4, 8)}, "a host is not of this fabric"),
        ({"hosts": (0, 1, 4, -1)}, "a host is not of this fabric"),
        ({"spares": (8,)}, "a host is not of this fabric"),
        ({"spares": ()}, "1 spares are required, 0 are held"),
        ({"lower_bound": 161}, "lower bound 161 exceeds the cut 160"),
        ({"is_optimal": True}, "called optimal with a gap"),
        ({"cuts": ()}, "cut is "),
        ({"cuts": (TierCut("zone", 160), TierCut("rack", 0))}, "cut is "),
        ({"hosts": (0, 4, 1, 5)}, "cut is "),  # the same hosts in another order cut more
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, object], says: str) -> None:
    wrong = found(replace(RIGHT, **changes))  # type: ignore[arg-type]
    assert [w for w in wrong if w.startswith(says)], wrong


def test_hosts_that_are_not_free_are_named_and_host_violations_leave_the_bytes_alone() -> None:
    free = hostset.of((1, 4, 6, 7))
    assert found(RIGHT, free) == ["3 hosts are not free: z0-r0-h0, z0-r1-h0, z1-r0-h1"]
    assert found(RIGHT, everything(FABRIC) & ~(1 << 2)) == ["1 hosts are not free: z0-r1-h0"]
    # Host violations leave the bytes alone.
    forged = replace(RIGHT, cuts=(), lower_bound=999)
    assert host_violations(FABRIC, everything(FABRIC), REQUEST, forged) == []
    assert host_violations(FABRIC, 0, REQUEST, forged) != []


def test_hosts_needed() -> None:
    assert llama3(2).hosts_needed(8) == 2_048
    assert request(dp=12).hosts_needed(4) == 3


@pytest.mark.parametrize(
    ("rule", "gang_hosts", "required", "text"),
    [
        (AUTO, 100, 0, "auto"),
        (SpareRule(hosts=3), 100, 3, "3"),
        (SpareRule(hosts=0), 100, 0, "0"),
        (SpareRule(share=0.02), 50, 1, "2%"),  # 1.0000000000000002 is one host
        (SpareRule(share=0.02), 51, 2, "2%"),
        (SpareRule(share=0.0), 51, 0, "0%"),
        (SpareRule(share=0.005), 1, 1, "0.5%"),
        (SpareRule(share=1.0), 7, 7, "100%"),
    ],
)
def test_spares_required(rule: SpareRule, gang_hosts: int, required: int, text: str) -> None:
    assert rule.required(gang_hosts) == required
    assert str(rule) == text
    assert rule.is_auto == (text == "auto")


def test_gap() -> None:
    assert Placement((0,)).gap == 0
    assert Placement((0,)).cut == 0
    cuts = (TierCut("zone", 80), TierCut("rack", 200))
    placed = Placement((0,), cuts=cuts, lower_bound=60)
    assert (placed.cut, placed.gap) == (80, 0.25)
