"""The inner loops of slicing trees over flat arrays: `part_grid`, `part_graph`, `grid_cost`."""

from __future__ import annotations

from typing import NamedTuple

from placement.compiled import Kernel
from placement.fabric import Ints
from placement.trees import Plan

RING, HIERARCHICAL, ALL_TO_ALL = range(3)


class Cells(NamedTuple):
    """Cells of a region by number, in reading order and group of slots by group of slots; both
    are sorted anew in place. `row` and `slot` of each cell of the grid. `grains`: slots that
    belong together, the most first; `width`: of the grid. Room to work in: `is_first` of each
    cell of the grid, `other`, `lines`; `begin` and `end` of each node, and a `path` of nodes."""

    by_row: Ints
    by_slot: Ints
    row: Ints
    slot: Ints
    grains: Ints
    width: int
    is_first: Ints
    other: Ints
    lines: Ints
    begin: Ints
    end: Ints
    path: Ints


def _nearest(sizes: Ints, every: int, least: int, most: int, wish: int) -> int:
    """Of each `every`-th size, which ascend: the one in [least, most] closest to `wish`, 0
    included; -1 when there is none. least <= wish <= most."""
    lower, upper = -1, most + 1
    for k in range(every - 1, len(sizes), every):
        if sizes[k] > wish:
            upper = sizes[k]
            break
        lower = sizes[k]
    if lower < least:
        if upper > most:
            return -1 if least else 0
        return 0 if not least and wish < upper - wish else upper
    return lower if upper > most or wish - lower <= upper - wish else upper


def _multiple(grain: int, least: int, most: int, wish: int) -> int:
    """The multiple of `grain` in [least, most] closest to `wish`; -1 when there is none."""
    low, high = (least + grain - 1) // grain * grain, most // grain * grain
    return min(max(wish // grain * grain, low), high) if low <= high else -1


def _line_sizes(cells: Cells, begin: int, end: int, is_across_rows: bool) -> Ints:
    """How many cells come up to the end of each row, or slot."""
    width, rows = cells.width, len(cells.is_first) // cells.width
    lines = cells.lines[: rows if is_across_rows else width]
    for k in range(len(lines)):
        lines[k] = 0
    line = cells.row if is_across_rows else cells.slot
    for k in range(begin, end):
        lines[line[cells.by_row[k]]] += 1
    for k in range(1, len(lines)):
        lines[k] += lines[k - 1]
    return lines


def _size(
    cells: Cells, begin: int, end: int, is_across_rows: bool, least: int, most: int, wish: int
) -> int:
    """How many cells to cut off, `least` to `most`: whole groups if that goes, and ended by a
    straight line if one is in reach."""
    lines = _line_sizes(cells, begin, end, is_across_rows)
    for grain in cells.grains:
        size = _nearest(lines, 1 if is_across_rows else grain, least, most, wish)
        if size < 0:
            size = _multiple(grain, least, most, wish)
        if size >= 0:
            return size
    return least  # a grain of 1 always fits


def _parted(cells: Cells, begin: int, end: int, is_across_rows: bool, size: int) -> None:
    """The first `size` cells in one order come first in the other as well."""
    mine, other = cells.by_row, cells.by_slot
    if not is_across_rows:
        mine, other = other, mine
    for k in range(begin, end):
        cells.is_first[mine[k]] = 1 if k < begin + size else 0
    to, rest = begin, 0
    for k in range(begin, end):
        if cells.is_first[other[k]]:
            other[to] = other[k]
            to += 1
        else:
            cells.other[rest] = other[k]
            rest += 1
    for k in range(rest):
        other[to + k] = cells.other[k]


def _part_grid(plan: Plan, cells: Cells, top: int, layout: Ints) -> None:
    """The zone of each cell of the node `top`, which has its `begin` and `end`."""
    path = cells.path
    path[0], open_ = top, 1
    while open_:
        open_ -= 1
        node = path[open_]
        begin, end = cells.begin[node], cells.end[node]
        if plan.zone[node] >= 0:
            for k in range(begin, end):
                layout[cells.by_row[k]] = plan.zone[node]
            continue
        first, second, count = plan.first[node], plan.second[node], end - begin
        least, most = max(0, count - plan.held[second]), min(plan.held[first], count)
        wish = least
        if plan.lean[node] == 1:
            wish = count * plan.held[first] // (plan.held[first] + plan.held[second])
        elif plan.lean[node] == 2:
            wish = most
        size = 0
        if count:
            is_across_rows = plan.axis[node] == 1
            size = _size(cells, begin, end, is_across_rows, least, most, wish)
            if 0 < size < count:
                _parted(cells, begin, end, is_across_rows, size)
        cells.begin[first], cells.end[first] = begin, begin + size
        cells.begin[second], cells.end[second] = begin + size, end
        path[open_], path[open_ + 1] = first, second
        open_ += 2


class Axes(NamedTuple):
    """Axes of a grid: `kind` of each, `size` in blocks, `stride`, and `weight`."""

    kind: Ints
    size: Ints
    stride: Ints
    weight: Ints


def _line_cuts(layout: Ints, kind: int, first: int, size: int, stride: int, held: Ints) -> int:
    """Edges cut on one line of cells. `held`: zeros, for each zone and for none, and again
    zeros afterwards."""
    cuts = 0
    if kind == RING:
        before = layout[first + (size - 1) * stride]
        for k in range(size):
            zone = layout[first + k * stride]
            cuts += zone != before
            before = zone
        return cuts
    for k in range(size):
        zone = layout[first + k * stride]
        if kind == ALL_TO_ALL:
            cuts -= 2 * held[zone + 1] + 1
        elif not held[zone + 1]:
            cuts += 1
        held[zone + 1] += 1
    for k in range(size):
        held[layout[first + k * stride] + 1] = 0
    return cuts + size * size if kind == ALL_TO_ALL else cuts - 1


def _grid_cost(
    layout: Ints, width: int, row_weight: int, row_wrap: int, axes: Axes, held: Ints
) -> int:
    cells, cost = len(layout), 0
    for cell in range(width, cells):
        if layout[cell] != layout[cell - width]:
            cost += row_weight
    if row_wrap:
        for slot in range(width):
            if layout[slot] != layout[cells - width + slot]:
                cost += row_wrap
    for axis in range(len(axes.kind)):
        size, stride, cuts = axes.size[axis], axes.stride[axis], 0
        for begin in range(0, cells, size * stride):
            for offset in range(stride):
                cuts += _line_cuts(layout, axes.kind[axis], begin + offset, size, stride, held)
        cost += axes.weight[axis] * cuts
    return 2 * cost


class Links(NamedTuple):
    """A graph of blocks. Neighbours of block b stand at begin[b] to begin[b + 1], with the
    weight of the edge; its groups from in_begin[b]. `orders`: of all blocks, one after the
    other."""

    begin: Ints
    to: Ints
    weight: Ints
    in_begin: Ints
    in_group: Ints
    group_weight: Ints
    orders: Ints


class Sweeps(NamedTuple):
    """Room to work in. By block: `blocks`, those of a node side by side; `node`, `place` on the
    way across it. By group: its node, and its last member on the way. `curve`: what a first
    part of so many blocks cuts. `begin`, `end`: of each node; `path`: of nodes."""

    blocks: Ints
    node: Ints
    place: Ints
    group_node: Ints
    last: Ints
    curve: Ints
    begin: Ints
    end: Ints
    path: Ints


def _curve(links: Links, sweeps: Sweeps, node: int, begin: int, end: int) -> None:
    """Bytes between the first n blocks of a node and its others."""
    curve, place = sweeps.curve, sweeps.place
    for n in range(end - begin + 2):
        curve[n] = 0
    for at in range(end - begin):
        block = sweeps.blocks[begin + at]
        for link in range(links.begin[block], links.begin[block + 1]):
            other = links.to[link]
            if sweeps.node[other] == node and place[other] > at:
                curve[at + 1] += links.weight[link]
                curve[place[other] + 1] -= links.weight[link]
        for k in range(links.in_begin[block], links.in_begin[block + 1]):
            group = links.in_group[k]
            if sweeps.group_node[group] == node:
                curve[sweeps.last[group] + 1] += links.group_weight[group]
                curve[at + 1] -= links.group_weight[group]
            sweeps.group_node[group] = node
            sweeps.last[group] = at
    for n in range(1, end - begin + 1):
        curve[n] += curve[n - 1]


def _cheapest(curve: Ints, least: int, most: int, wish: int) -> int:
    """Where in [least, most] least is cut; ties to what is closest to `wish`."""
    best = least
    for n in range(least + 1, most + 1):
        if curve[n] < curve[best] or (curve[n] == curve[best] and abs(n - wish) < abs(best - wish)):
            best = n
    return best


def _swept(links: Links, sweeps: Sweeps, node: int, axis: int, begin: int, end: int) -> None:
    """The blocks of a node in the order of an axis."""
    for k in range(begin, end):
        sweeps.node[sweeps.blocks[k]] = node
    count, at = len(sweeps.blocks), 0
    for block in links.orders[axis * count : (axis + 1) * count]:
        if sweeps.node[block] == node:
            sweeps.blocks[begin + at] = block
            sweeps.place[block] = at
            at += 1


def _part_graph(plan: Plan, links: Links, sweeps: Sweeps, window: int, layout: Ints) -> None:
    """The zone of each block, every cut where it is cheapest; a lean to one side looks at one
    part in `window` of the places allowed."""
    count = len(layout)
    for block in range(count):
        sweeps.blocks[block], sweeps.node[block] = block, -1
    for group in range(len(links.group_weight)):
        sweeps.group_node[group] = -1
    sweeps.begin[0], sweeps.end[0] = 0, count
    path = sweeps.path
    path[0], open_ = 0, 1
    while open_:
        open_ -= 1
        node = path[open_]
        begin, end = sweeps.begin[node], sweeps.end[node]
        if plan.zone[node] >= 0:
            for k in range(begin, end):
                layout[sweeps.blocks[k]] = plan.zone[node]
            continue
        first, second, held = plan.first[node], plan.second[node], end - begin
        least, most = max(0, held - plan.held[second]), min(plan.held[first], held)
        wish = held * plan.held[first] // (plan.held[first] + plan.held[second])
        some = (most - least) // window
        if plan.lean[node] == 0:
            most = least + some
        elif plan.lean[node] == 2:
            least = most - some
        size = 0
        if held:
            _swept(links, sweeps, node, plan.axis[node], begin, end)
            _curve(links, sweeps, node, begin, end)
            size = _cheapest(sweeps.curve, least, most, wish)
        sweeps.begin[first], sweeps.end[first] = begin, begin + size
        sweeps.begin[second], sweeps.end[second] = begin + size, end
        path[open_], path[open_ + 1] = first, second
        open_ += 2


GRID_PARTS = (_nearest, _multiple, _line_sizes, _size, _parted, _line_cuts)
part_grid = Kernel(_part_grid, *GRID_PARTS, inlines=False)
grid_cost = Kernel(_grid_cost, *GRID_PARTS, inlines=False)
part_graph = Kernel(_part_graph, _curve, _cheapest, _swept)
