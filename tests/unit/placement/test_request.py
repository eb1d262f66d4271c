"""Requests: whole hosts, spare rules, what a placement says of itself."""

from dataclasses import fields
from math import nan

import pytest

from placement.errors import BadInput
from placement.fabric.constraints import Constraints
from placement.workload.request import AUTO, Limits, Placement, SpareRule, TierCut
from tests.build import gang, llama3, request


@pytest.mark.parametrize("wrong", [{"turns": 0}, {"rounds": -1}, {"walk": -1}])
def test_limits_below_nothing_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(BadInput, match="must not be negative, and turns at least 1") as caught:
        Limits(**wrong)
    assert caught.value.field == "limits"


def test_hosts_needed() -> None:
    assert llama3(2).hosts_needed(8) == 2_048
    assert request(dp=12).hosts_needed(4) == 3


def test_a_host_filled_in_part_is_refused() -> None:
    says = "tp 4 x cp 1 x ep 1 x pp 1 x dp 3 = 12 ranks do not fill whole hosts of 8 GPUs"
    with pytest.raises(BadInput, match=says) as caught:
        request(tp=4, dp=3).hosts_needed(8)
    assert caught.value.field == "parallelism"


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


@pytest.mark.parametrize(
    "rule",
    [{"hosts": -1}, {"share": -0.1}, {"share": 1.5}, {"share": nan}, {"hosts": 1, "share": 0.1}],
)
def test_bad_spare_rules(rule: dict[str, float]) -> None:
    with pytest.raises(BadInput) as caught:
        SpareRule(**rule)  # type: ignore[arg-type]
    assert caught.value.field == "spares"


def test_gap() -> None:
    assert Placement((0,)).gap == 0
    assert Placement((0,)).cut == 0
    cuts = (TierCut("zone", 80), TierCut("rack", 200))
    placed = Placement((0,), cuts=cuts, lower_bound=60)
    assert (placed.cut, placed.gap) == (80, 0.25)


def test_requests_hash_and_compare() -> None:
    assert gang(4, pp=2) == gang(4, pp=2)
    assert len({gang(4), gang(4), gang(8)}) == 2


def test_values_are_frozen_while_the_program_runs() -> None:
    made = (
        TierCut("zone", 8),
        AUTO,
        Constraints(),
        Limits(),
        Placement((0,), (TierCut("zone", 8),)),
    )
    for value in made:
        with pytest.raises(AttributeError, match="immutable"):
            setattr(value, fields(value)[0].name, None)
