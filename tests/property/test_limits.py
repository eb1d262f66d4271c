"""Limits, and all constants of the searches, trade time for quality, never truth: halve or double
each, and answers stay valid."""

import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from importlib import import_module
from math import ceil
from pkgutil import walk_packages
from random import Random
from typing import Any

import pytest

from placement.bound.pathwidth import PartBound
from placement.bound.ring_width import least_around
from placement.bound.size_relaxation import least_sum
from placement.grid.block_grid import BlockGrid
from placement.proof.branch_and_price import Prover
from placement.search.graph_slicing import block_orders
from placement.workload.request import Collective, Limits, Placement, Request
from tests.build import everything, fabric, flat, place_checked, request
from tests.property.grids import graph_of, grid_of

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
    on = flat(*zones, gpus=8, tier="zone")
    return place_checked(on, everything(on), gang, limits)


@pytest.mark.parametrize(
    "name", [pytest.param("grid", marks=pytest.mark.slow), *(n for n in GANGS if n != "grid")]
)
def test_every_limit_may_be_halved_or_doubled(name: str) -> None:
    gang, zones = GANGS[name]
    usual = Limits()
    changed = [
        replace(usual, **{field.name: max(1, int(getattr(usual, field.name) * factor))})
        for field in fields(Limits)
        if field.name != "without"
        for factor in (0.01, 0.5, 2)
    ]
    placed = [answer(gang, zones, limits) for limits in (usual, *changed)]
    least = min(each.cut for each in placed)
    assert all(each.lower_bound <= least for each in placed)
    assert all(each.cut == least for each in placed if each.is_optimal)


def test_no_table_is_larger_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes and search alone are left to a grid whose patterns would take too many entries."""
    made = list[int]()

    def prover(grid: BlockGrid, capacities: Sequence[int], *rest: Any) -> Prover:
        made.append(grid.states(capacities))
        return Prover(grid, capacities, *rest)

    for module in ("tiers.grid_zones", "proof.split_groups"):
        monkeypatch.setattr(import_module(f"placement.{module}"), "Prover", prover)
    usual = answer(*GANGS["grid"], Limits(rounds=2, trees=300))
    assert made
    made.clear()
    without = answer(*GANGS["grid"], Limits(rounds=2, trees=300, states=100))
    assert not made
    assert 0 < without.lower_bound <= usual.cut


# --- constants -----------------------------------------------------------------

ROOMS = ("bound", "graph", "grid", "proof", "search", "tiers")
# Not budgets or thresholds: codes, what stands for "nothing" or "no end", parts of an algorithm,
# and what differs from 0 by rounding alone.
CODES = {
    *("WHOLE_GANG", "NOWHERE", "INFINITE", "WORD", "DRAWS", "MOVES"),
    *("ENTER", "TOUCH", "LEAVE", "SWAP", "TURN", "LEAN", "SHUFFLE", "GRAFT", "SHARED"),
    *("TAKEN", "OF", "FULL_PRICE", "RESOLUTION", "SHARES", "ONCE", "LAST_TURN"),
}


def constants() -> dict[str, tuple[str, Any]]:
    """The numbers that the modules of the rooms name, or take from others."""
    named = {}
    for room in ROOMS:
        package = import_module(f"placement.{room}")
        for module in walk_packages(package.__path__, f"placement.{room}."):
            for name, value in vars(import_module(module.name)).items():
                numbers = value if isinstance(value, tuple) else (value,)
                is_number = numbers and all(type(each) in (int, float) for each in numbers)
                if name.isupper() and name not in CODES and is_number:
                    named[f"{name} = {value}"] = (name, value)
    return named


def scaled(value: Any, factor: float) -> Any:
    if isinstance(value, tuple):
        return tuple(scaled(each, factor) for each in value)
    return max(1, int(value * factor)) if isinstance(value, int) else value * factor


def everywhere(patch: pytest.MonkeyPatch, name: str, value: Any, other: Any) -> None:
    """Change a constant in all modules that have taken it."""
    for module in list(sys.modules.values()):
        if module.__name__.startswith("placement") and vars(module).get(name) is value:
            patch.setattr(module, name, other)


def answers() -> dict[str, Placement]:
    """Of two gangs on zones, and of one on racks of one zone."""
    limits = Limits(rounds=2, trees=300)
    on, gang = fabric(1, 9, 2), request(tp=8, pp=3, dp=5, traffic={"pp": 7, "dp": 10})
    on_racks = place_checked(on, everything(on), gang, limits)
    return {"racks": on_racks} | {name: answer(*GANGS[name], limits) for name in ("grid", "stages")}


def proofs() -> dict[str, int]:
    """Bounds on the cuts of the two gangs, found without a layout of them."""
    gang, zones = GANGS["grid"]
    grid = grid_of(gang, 8)
    bounds = {"grid": ceil(grid.to_bytes(Prover(grid, zones, []).prove(10**6, 3)))}
    gang, zones = GANGS["stages"]
    graph, orders = graph_of(gang, 8), block_orders(gang, 8)
    around = least_around(graph, orders, max(zones), 10**6, -1, 10**9)
    assert around is not None
    parts = PartBound(graph, orders).least_cut(zones, 10**9)
    bounds["stages"] = max(parts, least_sum(graph.blocks, zones, around)) // 2
    return bounds


def test_every_constant_may_be_halved_or_doubled() -> None:
    """All together, and each by itself as a coin falls."""
    found, proved, coin = [answers()], [proofs()], Random(1)
    assert found[0]["racks"].inner is not None
    named = constants()
    assert len(named) > len(ROOMS)
    for factors in ((0.5,), (2,), (0.5, 1, 2), (0.5, 1, 2)):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in named.values():
                everywhere(patch, name, value, scaled(value, coin.choice(factors)))
            found.append(answers())
            proved.append(proofs())
    for name in found[0]:
        each = [answer[name] for answer in found]
        least = min(placed.cut for placed in each)
        assert all(placed.lower_bound <= least for placed in each)
        assert all(placed.cut == least for placed in each if placed.is_optimal)
        assert all(bounds.get(name, 0) <= least for bounds in proved)
        inside = min(placed.cuts[-1].bytes_per_step for placed in each)
        inner = [placed.inner.bytes_per_step for placed in each if placed.inner is not None]
        assert all(bound <= inside for bound in inner)
