"""What a placement minimises: the cut, the step, or the spread of groups.

Layouts are ordered by their spread; the cut breaks ties. The layout of least cut is
always among those compared, so asking for another objective never makes that one worse.
Scores are floats that the search compares, never what is reported: the referee counts that.
See docs/engine.md, "The tiers".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from placement.fabric.constraints import with_gang_view
from placement.fabric.tree import Fabric, Ints
from placement.grid.block_grid import BlockGrid, group_grid
from placement.grid.layout import Layout, layout_cost
from placement.objective.cut import cut
from placement.search.graph_slicing import best_of_trees, by_room, comb_trees, grid_sweeper
from placement.search.portfolio import Incumbent
from placement.search.slicing_trees import TreeArrays
from placement.tiers.grid_zones import solve_zones
from placement.tiers.spread import spread, spread_layouts, spread_note
from placement.tiers.step_clock import step_clock
from placement.workload.request import Limits, Objective, Request, TierCut

Score = Callable[[Layout], float]
TIE = 1e-6  # weight of the cut beside what comes first
SCORED = 10  # slicing trees that one stands for whose layout is scored


@with_gang_view
def measure(
    fabric: Fabric, request: Request, hosts: Sequence[int], cuts: Sequence[TierCut]
) -> float | int:
    """Count what the request minimises, as the referee does; 0 on a fabric without tiers. Of the
    step, how much longer it is than `cut_slack` allows: steps below that are equal."""
    if not cuts:
        return 0
    if request.objective is Objective.TIME:
        return step_clock(fabric, request).excess(hosts)
    if request.objective is Objective.SPREAD:
        grid = group_grid(request, fabric.gpus_per_host)
        if grid is not None:
            return spread(grid, _zones(fabric, grid, hosts), request.spread_alpha)
    return cuts[0].bytes_per_step


def like_zones(fabric: Fabric, request: Request) -> Ints:
    """Return a number by zone, equal for zones that can be exchanged without a change in what the
    request minimises."""
    uplink = fabric.tiers[0].uplink_bytes_per_s if fabric.tiers else np.zeros(1)
    if request.objective is Objective.TIME:
        return np.asarray(np.unique(uplink, return_inverse=True)[1], dtype=np.int64)
    return np.zeros(len(uplink), dtype=np.int64)


def spread_notes(fabric: Fabric, request: Request, free: Ints, hosts: Sequence[int]) -> list[str]:
    """State how far groups are spread; nothing where no grid or tier says so."""
    grid = group_grid(request, fabric.gpus_per_host)
    if grid is None or not fabric.tiers:
        return []
    tier = fabric.tiers[0]
    room = tier.count(free).tolist()
    layout = _zones(fabric, grid, hosts)
    return [spread_note(grid, layout, room, request.spread_alpha, tier.name)]


def trade_notes(
    fabric: Fabric, request: Request, hosts: tuple[int, ...], others: Sequence[tuple[int, ...]]
) -> list[str]:
    """State seconds of the step that the placement on `hosts` gives up for fewer bytes between
    domains of the outermost tier than one of `others` sends, or bytes that it gives up for
    seconds."""
    if not fabric.tiers:
        return []
    clock, tier = step_clock(fabric, request), fabric.tiers[0].name
    cut_of = {each: cut(fabric, request, each)[0].bytes_per_step for each in dict.fromkeys(others)}
    mine, least = cut_of[hosts], min(cut_of.values())
    fastest = min(cut_of, key=lambda each: (clock.delay(each), cut_of[each]))
    if clock.delay(hosts) > clock.delay(fastest) and mine < cut_of[fastest]:
        longer = 100 * (clock.step(hosts).seconds / clock.step(fastest).seconds - 1)
        return [
            f"{longer:.1f} % longer than the fastest step that was found,"
            f" {100 * (1 - mine / cut_of[fastest]):.0f} % fewer bytes between {tier}s"
            f" (cut_slack {clock.cut_slack:g})"
        ]
    if least < mine:
        smallest = min((each for each in cut_of if cut_of[each] == least), key=clock.delay)
        longer = 100 * (clock.step(smallest).seconds / clock.step(hosts).seconds - 1)
        return [
            f"{100 * (1 - least / mine):.0f} % fewer bytes between {tier}s would make a step"
            f" {longer:.1f} % longer, more than cut_slack ({clock.cut_slack:g})"
        ]
    return []


def _zones(fabric: Fabric, grid: BlockGrid, hosts: Sequence[int]) -> Layout:
    return np.asarray(fabric.tiers[0].domain_by_host[np.asarray(hosts)[grid.block]])


def solve_spread(
    request: Request,
    grid: BlockGrid,
    capacities: Sequence[int],
    reserved: Sequence[int],
    limits: Limits,
) -> Incumbent:
    """Return the layout of the least spread met, of these the one with the least cut; never worse
    than what `solve_zones` gives.

    Spares that `reserved` keeps are kept unless the spread is less without. The bound is on the
    cut, as everywhere.
    """

    def score(layout: Layout) -> float:
        return spread(grid, layout, request.spread_alpha)

    by_cut = solve_zones(grid, capacities, reserved, limits)
    layouts = [by_cut.layout]
    for room in [reserved, capacities] if list(reserved) != list(capacities) else [capacities]:
        if sum(room) < grid.size:
            continue
        layouts += spread_layouts(grid, room, request.spread_alpha)
        layouts.append(_searched(grid, room, limits, score))
    costs = [layout_cost(grid, layout) for layout in layouts]
    best = min(range(len(layouts)), key=lambda i: (score(layouts[i]), costs[i], i))
    return Incumbent(layouts[best], costs[best], by_cut.bound)


def _searched(grid: BlockGrid, room: Sequence[int], limits: Limits, score: Score) -> Layout:
    """By slicing trees. The cut never makes up for a worse score."""
    tie = TIE / max(1, 2 * sum(grid.weights) * grid.size)

    def value(layout: Layout) -> float:
        return score(layout) + tie * layout_cost(grid, layout)

    sweeper = grid_sweeper(grid)

    def build(plan: TreeArrays) -> Layout:
        return sweeper.layout(plan).reshape(grid.rows, grid.width)

    starts, tries = comb_trees(by_room(room), room, sweeper.axes), limits.trees // SCORED
    return best_of_trees(build, value, starts, room, tries, -1, sweeper.axes)
