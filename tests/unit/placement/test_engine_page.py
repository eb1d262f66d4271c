"""docs/engine.md names modules that exist and sections that modules name, and its example counts
right."""

import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from placement.bound.pricing import Pricer, pattern_cost
from placement.bound.rounding import attainable
from placement.bound.size_relaxation import by_sizes, size_bound
from placement.grid.block_grid import BlockGrid, block_grid
from placement.grid.layout import layout_cost
from placement.proof.branch_and_price import Prover
from placement.proof.branching import split
from placement.proof.master import Counter, Master, Range
from tests.build import request

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "engine.md").read_text()
ROOMS = ("grid", "graph", "search", "bound", "proof", "tiers", "replace")


def test_the_page_names_modules_that_exist() -> None:
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", PAGE))
    assert len(named) > 40
    folders = (ROOT / "placement", ROOT)
    assert [p for p in sorted(named) if not any((f / p).exists() for f in folders)] == []


def test_the_page_names_functions_that_exist() -> None:
    modules = {path.stem: path.read_text() for path in (ROOT / "placement").rglob("*.py")}
    found = re.findall(r"`(\w+)\.(?!py`)([A-Za-z_]+)`", PAGE)
    named = [(module, name) for module, name in found if module in modules]
    assert len(named) > 1
    for module, name in named:
        assert re.search(rf"(def|class) {name}\b|^{name} =", modules[module], re.MULTILINE), name


def test_every_module_names_a_section_of_the_page() -> None:
    sections = set(re.findall(r"^## (.+)$", PAGE, re.MULTILINE))
    for path in [p for room in ROOMS for p in (ROOT / "placement" / room).glob("*.py")]:
        named = re.search(r'See docs/engine.md, "(.+)"\.', path.read_text())
        assert named is not None, path
        assert named[1] in sections, path


def grid_of_the_example() -> BlockGrid:
    grid = block_grid(request(tp=2, pp=2, dp=5, traffic={"pp": 2, "dp": 3}), 2)
    assert grid is not None
    return grid


GRID = grid_of_the_example()
ROOM = [5, 4, 3]
SLOTS = np.arange(6)
FIRST, SECOND = Counter(0, 2), Counter(1, 2)  # zones with two slots or more of a row
STAIRS = {Counter(row, rise=1, run=2, top=1): (3, 9) for row in (0, 1)}


def master(more: dict[Counter, Range]) -> Master:
    """Of the root and more rows, over all patterns; costs are divided by what the prover takes."""
    root = Prover(GRID, ROOM, [])._root()
    program = Master(GRID, {**root.ranges, **more}, 1.0)
    program.add(p for p in product(range(6), repeat=2) if 1 <= sum(p) <= max(ROOM))
    return program


def lagrangian(
    scale: int, slots: tuple[int, int], zone: int, five: int, two: int = 0
) -> tuple[list[int], int]:
    """Least reduced costs of 1 to 5 hosts, and the bound, all times `scale`. `two`: the price of
    zones with two slots or more of the first row, of which there are two or more."""
    cost = GRID.step * scale - np.multiply.outer(slots, SLOTS)
    cost[0] -= two * (SLOTS >= 2)
    pricer = Pricer(2, 5, 5, [tuple((w * scale, n) for w, n in each) for each in GRID.slopes])
    pricer.price(cost, zone * (SLOTS >= 1) + five * (SLOTS >= 5))
    per_zone = sum(min(0, int(pricer.best[room])) for room in ROOM)
    bound = 5 * sum(slots) + 3 * zone + five + 2 * two + per_zone
    return pricer.by_used[1:].tolist(), bound


def test_costs_and_sizes() -> None:
    assert GRID.step.tolist() == [0, 6, 6, 6, 6, 0]
    assert GRID.joint.tolist() == [[0, 2, 4, 6, 8, 10]]
    assert size_bound(GRID).part_costs(5)[1:].tolist() == [8, 10, 12, 12, 10]
    assert [pattern_cost(GRID, p) for p in ((1, 0), (2, 0), (3, 0), (2, 2), (5, 0))] == [
        *(8, 10, 12, 12, 10)
    ]
    assert by_sizes(GRID, ROOM) == 30


def test_prices_of_the_root() -> None:
    assert lagrangian(3, (4, 4), 20, -10) == ([0, 2, 4, 0, 0], 90)
    assert lagrangian(1, (1, 1), 7, -2) == ([0, 1, 2, 1, 0], 29)
    assert attainable(GRID, 29) == 30
    program = master({})
    solution = program.solve()
    assert solution is not None
    assert solution.cost == pytest.approx(30)


def test_cuts_do_not_raise_the_root() -> None:
    program = master(STAIRS)
    solution = program.solve()
    assert solution is not None
    assert solution.cost == pytest.approx(30)
    assert split(program, solution, {}, 3, 2.0) == ((FIRST, (0, 1)), (FIRST, (2, 3)))


def test_both_children_are_closed() -> None:
    costs = [master(more).solve() for more in ({FIRST: (0, 1)}, {FIRST: (2, 3)})]
    assert [each and each.cost for each in costs] == pytest.approx([94 / 3, 92 / 3])
    both_ends = master({FIRST: (0, 1), SECOND: (0, 1)}).solve()
    assert both_ends is not None
    assert both_ends.cost == pytest.approx(32)
    reduced, bound = lagrangian(3, (2, 3), 21, -6, 5)
    assert min(reduced) == 0
    assert bound == 92
    assert attainable(GRID, -(-92 // 3)) == attainable(GRID, -(-94 // 3)) == 32


def test_the_proof_branches_once_and_a_layout_meets_it() -> None:
    layout = np.array([[0, 0, 0, 0, 0], [1, 1, 1, 1, 2]])
    assert layout_cost(GRID, layout) == 32
    prover = Prover(GRID, ROOM, [])
    assert prover.prove(32, 100) == 32
    assert prover.made > 1
