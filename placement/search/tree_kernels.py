"""How a slicing tree parts a grid, over flat arrays; a part of the search kernel.

See docs/engine.md, "The search".
"""

from __future__ import annotations

from typing import NamedTuple

from placement.fabric.tree import Ints
from placement.search.slicing_trees import Plan


class GridCells(NamedTuple):
    """GridCells of a region by number, in reading order and group of slots by group of slots; both
    are sorted anew in place. Of each cell of the grid: its `row`, its `slot`, the `group` of that,
    and its `place` group by group. `grains`: slots that belong together, the most first; `width`:
    of the grid. Room to work in: `other`, `lines`; `begin` and `end` of each node, and a `path` of
    nodes."""

    by_row: Ints
    by_slot: Ints
    row: Ints
    slot: Ints
    group: Ints
    place: Ints
    grains: Ints
    width: int
    other: Ints
    lines: Ints
    begin: Ints
    end: Ints
    path: Ints


def _closest(lower: int, upper: int, least: int, most: int, wish: int) -> int:
    """Of two sizes, lower <= wish < upper, and 0: the one in [least, most] closest to `wish`; -1
    when there is none. A lower size of -1 is none."""
    if lower < least:
        if upper > most:
            return -1 if least else 0
        return 0 if not least and wish < upper - wish else upper
    return lower if upper > most or wish - lower <= upper - wish else upper


def _nearest(sizes: Ints, every: int, least: int, most: int, wish: int) -> int:
    """The same of each `every`-th size; they ascend. least <= wish <= most."""
    lower, upper = -1, most + 1
    for k in range(every - 1, len(sizes), every):
        if sizes[k] > wish:
            upper = sizes[k]
            break
        lower = sizes[k]
    return _closest(lower, upper, least, most, wish)


def _multiple(grain: int, least: int, most: int, wish: int) -> int:
    """The multiple of `grain` in [least, most] closest to `wish`; -1 when there is none."""
    low, high = (least + grain - 1) // grain * grain, most // grain * grain
    return min(max(wish // grain * grain, low), high) if low <= high else -1


def _up_to(cells: Ints, line: Ints, begin: int, end: int, most: int) -> int:
    """Where the cells end whose line is at most that. They are in the order of lines."""
    while begin < end:
        middle = (begin + end) // 2
        if line[cells[middle]] > most:
            end = middle
        else:
            begin = middle + 1
    return begin


def _straight(
    cells: Ints, line: Ints, begin: int, end: int, least: int, most: int, wish: int
) -> int:
    """The size, as in `_closest`, of a part that ends with a whole line."""
    if begin + wish == end:
        return wish
    at = line[cells[begin + wish]]
    lower = _up_to(cells, line, begin, begin + wish, at - 1) - begin if at else -1
    upper = _up_to(cells, line, begin + wish, end, at) - begin
    return _closest(lower, upper, least, most, wish)


def _slot_sizes(cells: GridCells, begin: int, end: int) -> None:
    """How many cells come up to the end of each slot, in `lines`."""
    lines = cells.lines[: cells.width]
    for k in range(len(lines)):
        lines[k] = 0
    for k in range(begin, end):
        lines[cells.slot[cells.by_row[k]]] += 1
    for k in range(1, len(lines)):
        lines[k] += lines[k - 1]


def _size(
    cells: GridCells, begin: int, end: int, is_across_rows: bool, least: int, most: int, wish: int
) -> int:
    """How many cells to cut off, `least` to `most`: whole groups if that goes, and ended by a
    straight line if one is in reach."""
    if is_across_rows:
        straight = _straight(cells.by_row, cells.row, begin, end, least, most, wish)
    else:
        straight = _straight(cells.by_slot, cells.group, begin, end, least, most, wish)
    for k in range(len(cells.grains)):
        grain = cells.grains[k]
        if k and not is_across_rows:
            _slot_sizes(cells, begin, end)
            straight = _nearest(cells.lines[: cells.width], grain, least, most, wish)
        size = straight if straight >= 0 else _multiple(grain, least, most, wish)
        if size >= 0:
            return size
    return least  # a grain of 1 always fits


def _parted(cells: GridCells, begin: int, end: int, is_across_rows: bool, size: int) -> None:
    """The first `size` cells in one order come first in the other as well."""
    other = cells.by_slot if is_across_rows else cells.by_row
    first = (
        cells.by_row[begin + size] if is_across_rows else cells.place[cells.by_slot[begin + size]]
    )
    to, rest = begin, 0
    for k in range(begin, end):  # without a branch: which part a cell is in is hard to foretell
        cell = other[k]
        is_first = (cell if is_across_rows else cells.place[cell]) < first
        other[to] = cell
        cells.other[rest] = cell
        to += is_first
        rest += 1 - is_first
    for k in range(rest):
        other[to + k] = cells.other[k]


def _filled(layout: Ints, cells: Ints, begin: int, end: int, zone: int) -> None:
    for k in range(begin, end):
        layout[cells[k]] = zone


def _part_grid(plan: Plan, cells: GridCells, top: int, layout: Ints) -> None:
    """The zone of each cell of the node `top`, which has its `begin` and `end`."""
    path = cells.path
    path[0], open_ = top, 1
    while open_:
        open_ -= 1
        node = path[open_]
        begin, end = cells.begin[node], cells.end[node]
        if plan.zone[node] >= 0:
            _filled(layout, cells.by_row, begin, end, plan.zone[node])
            continue
        first, second, count = plan.first[node], plan.second[node], end - begin
        least, most = max(0, count - plan.held[second]), min(plan.held[first], count)
        wish = least
        if plan.lean[node] == 1:
            wish = count * plan.held[first] // (plan.held[first] + plan.held[second])
        elif plan.lean[node] == 2:
            wish = most
        size, is_across_rows = 0, plan.axis[node] == 1
        if count:
            size = _size(cells, begin, end, is_across_rows, least, most, wish)
        if plan.zone[first] >= 0 and plan.zone[second] >= 0:
            order = cells.by_row if is_across_rows else cells.by_slot
            _filled(layout, order, begin, begin + size, plan.zone[first])
            _filled(layout, order, begin + size, end, plan.zone[second])
            continue
        if 0 < size < count:
            _parted(cells, begin, end, is_across_rows, size)
        cells.begin[first], cells.end[first] = begin, begin + size
        cells.begin[second], cells.end[second] = begin + size, end
        path[open_], path[open_ + 1] = first, second
        open_ += 2


GRID_PARTS = (
    _closest,
    _nearest,
    _multiple,
    _up_to,
    _straight,
    _slot_sizes,
    _size,
    _parted,
    _filled,
)
