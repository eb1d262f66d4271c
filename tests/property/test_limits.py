"""Limits trade time for quality, never truth: halve or double each, and answers stay valid."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from placement import place
from placement.objective.check import violations
from placement.workload.request import Collective, Limits, Placement, Request
from tests.build import everything, flat, request

# A grid of two axes, groups on odd zones, staggered replicas, stages that end inside hosts.
GANGS = {
    "grid": (request(tp=8, pp=6, dp=7, traffic={"pp": 7, "dp": 10}), (17, 13, 9, 5)),
    "groups": (
        request(tp=8, cp=3, pp=2, dp=5, traffic={"cp": 40, "pp": 3, "dp": 10}),
        (11, 9, 8, 6),
    ),
    "hierarchical": (
        request(
            tp=8,
            pp=4,
            dp=9,
            traffic={"pp": 5, "dp": 9},
            collectives={"dp": Collective.HIERARCHICAL},
        ),
        (13, 11, 9, 7),
    ),
    "staggered": (
        request(
            tp=4,
            cp=3,
            pp=4,
            dp=4,
            traffic={"tp": 900, "cp": 40, "pp": 3, "dp": 10},
            order="tp-cp-pp-dp-ep",
        ),
        (9, 8, 7, 4),
    ),
    "stages": (
        request(tp=2, pp=6, dp=14, traffic={"tp": 900, "pp": 10, "dp": 30}, order="tp-dp-pp-cp-ep"),
        (8, 7, 6, 4),
    ),
}


def answer(gang: Request, zones: tuple[int, ...], limits: Limits) -> Placement:
    fabric = flat(*zones, gpus=8, tier="zone")
    placed = place(fabric, everything(fabric), gang, limits)
    assert isinstance(placed, Placement)
    assert not violations(fabric, everything(fabric), gang, placed)
    return placed


@pytest.mark.parametrize(
    "name", [pytest.param("grid", marks=pytest.mark.slow), *(n for n in GANGS if n != "grid")]
)
def test_every_limit_may_be_halved_or_doubled(name: str) -> None:
    gang, zones = GANGS[name]
    usual = Limits()
    changed = [
        replace(usual, **{field.name: max(1, int(getattr(usual, field.name) * factor))})
        for field in fields(Limits)
        for factor in (0.01, 0.5, 2)
    ]
    placed = [answer(gang, zones, limits) for limits in (usual, *changed)]
    least = min(each.cut for each in placed)
    assert all(each.lower_bound <= least for each in placed)
    assert all(each.cut == least for each in placed if each.is_optimal)
