"""Requests: whole hosts, spare rules, what a placement says of itself."""

import pytest

from placement.workload.request import AUTO, Placement, SpareRule, TierCut
from tests.build import llama3, request


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
