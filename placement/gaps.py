"""What a gap between two strips costs at least, beyond the cheapest borders of their areas.

Setting and words: `placement.curves`. In a gap lie regions that miss a stage each. What they cost
by their sizes alone (`piled`) knows nothing of the two curves that the gap lies between. Of a
gap and its curves together, by the area of each and the hosts between, three things are known:

- *A narrow gap* costs no less than all its hosts as one region, for what parts them pays more;
  but for runs of one host, which are tried (`_held`). Stage by stage that is told by both ends,
  and between stages by who is not in both (`narrow`).
- *A straight line* where zones end cheapest lies beyond each curve, less than a period from its
  furthest place. The gap's hosts on the near side of it, k of them, border on the strip as the
  curve does, and on what is beyond them as the line does. Without them the gap costs less by the
  curve's price less the line's, or more: whoever parts them from each other or from what is beyond
  pays for that on both sides, which is more than a run of one host may save. What is left
  costs what it does by sizes, and its curves are lines.
- *Where that is no way*, for both lines cross, it costs what it does by sizes; and where a
  curve is a whole period of each stage away from its line or more, it has to move there
  and back, which is dearer than the cheapest of its area (`lopsided`).
"""

from __future__ import annotations

import numpy as np

from placement.fabric import Ints
from placement.steps import MUCH

MOST_STATES = 40_000  # of narrow gaps
MOST_NARROW = 10  # hosts


def piled(piece: Ints, most: int) -> Ints:
    """The least cost of 0 to `most` hosts in pieces, by what a piece of 1, 2 .. hosts costs."""
    cost = np.full(most + 1, MUCH)
    cost[0] = 0
    for n in range(1, most + 1):
        sizes = min(n, len(piece))
        cost[n] = (piece[:sizes] + cost[n - sizes : n][::-1]).min()
    return cost


def lopsided(rows: int, ends: Ints, weight: int) -> Ints:
    """The least cost of curves that stay on one side of a line, and touch its first period, by the
    hosts between: the last for as many as there are areas, or more.

    `ends[p]`: of a place p away from the line, over a period; ends[0] is the least.
    """
    period = len(ends)
    areas = rows * period
    # A place further away than all areas is none the better for it.
    parted = np.resize(ends, areas + 1)
    cost = np.full((areas + 1, 2, areas + 1), MUCH)  # by place, whether it touched, hosts
    places = np.arange(areas + 1)
    cost[places, (places < period).astype(int), places] = parted
    for _ in range(rows - 1):
        for p in range(1, areas + 1):
            np.minimum(cost[p], cost[p - 1] + weight, out=cost[p])
        for p in range(areas - 1, -1, -1):
            np.minimum(cost[p], cost[p + 1] + weight, out=cost[p])
        for p in places.tolist():
            old = cost[p].copy()
            cost[p] = MUCH
            cost[p, :, p:] = old[:, : areas + 1 - p] + parted[p]
            cost[p, :, areas] = old[:, areas - p :].min(axis=1) + parted[p]
        cost[:period, 1] = cost[:period].min(axis=1)
        cost[:period, 0] = MUCH
    return np.asarray(cost[:, 1].min(axis=0))


def narrow(rows: int, ends: Ints, single: Ints, weight: int) -> Ints:
    """The least cost of two curves and of what lies between them as one region, by the area of
    the left one and the hosts between, of which there are few. Shape: (areas, hosts + 1).

    `ends[p]`: of a border at place p, `single[p]`: of a run of host p alone; over a period.
    """
    period = len(ends)
    areas = rows * period
    most = min(MOST_NARROW, int((MOST_STATES / (period * areas)) ** 0.5) - 1)
    if most < 1:
        return np.full((areas, 1), 0)
    # By the left place, how far the right one is from it, area and hosts. Moved by a period, a
    # curve of so many stages is another one of an area so many periods larger.
    left, apart = np.arange(period)[:, None], np.arange(most + 1)
    paid = ends[left] + ends[(left + apart) % period] + _held(ends, single, most)
    cost = np.full((period, most + 1, areas, most + 1), MUCH)
    cost[left, apart, left, apart] = paid
    for stages in range(1, rows):
        _move(cost, 2 * weight, stages * period)
        old, cost = cost, np.full_like(cost, MUCH)
        for p in range(period):
            for d in range(most + 1):
                held = np.roll(old[p, d], p, axis=0)
                cost[p, d, :, d:] = held[:, : most + 1 - d] + paid[p, d]
    return np.asarray(cost.min(axis=(0, 1)))


def _held(ends: Ints, single: Ints, most: int) -> Ints:
    """The least cost of 0 to `most` hosts in one place, in any runs. Shape: (period, hosts + 1)."""
    period = len(ends)
    place = np.arange(period)
    held = np.zeros((period, most + 1), dtype=np.int64)
    for n in range(1, most + 1):
        run = single if n == 1 else ends + ends[(place + n) % period]
        split = [held[:, k] + held[(place + k) % period, n - k] for k in range(1, n)]
        held[:, n] = np.min([run, *split], axis=0)
    return held


def _move(cost: Ints, weight: int, turn: int) -> None:
    """The two curves move on to the next stage: each pays for a host, and so does the region
    between them; or both together where nothing is between them. `turn`: what area a whole period
    adds so far."""
    while True:
        before = cost.copy()
        for wider in range(1, cost.shape[1]):
            _at_most(cost[:, wider], cost[:, wider - 1] + weight)
            _at_most(cost[:, wider - 1], _right(cost[:, wider], turn) + weight)
        for wider in range(cost.shape[1] - 1, 0, -1):
            _at_most(cost[:, wider - 1], cost[:, wider] + weight)
            _at_most(cost[:, wider], _left(cost[:, wider - 1], turn) + weight)
        _at_most(cost[:, 0], _right(cost[:, 0], turn) + weight)
        _at_most(cost[:, 0], _left(cost[:, 0], turn) + weight)
        if np.array_equal(cost, before):
            return


def _at_most(cost: Ints, other: Ints) -> None:
    np.minimum(cost, other, out=cost)


def _right(cost: Ints, turn: int) -> Ints:
    """From each place to the one right of it. Shape: (period, areas, hosts)."""
    moved = np.roll(cost, 1, axis=0)
    moved[0] = np.roll(cost[-1], -turn, axis=0)
    return moved


def _left(cost: Ints, turn: int) -> Ints:
    moved = np.roll(cost, -1, axis=0)
    moved[-1] = np.roll(cost[0], turn, axis=0)
    return moved


def gap_costs(rows: int, ring: tuple[Ints, Ints], weight: int, curves: Ints, by_size: Ints) -> Ints:
    """What 0, 1 .. hosts between two curves cost beside the cheapest curves of their areas, by the
    left area. Shape: (areas, hosts + 1).

    `ring`: `ends` and `single`, as of `narrow`; `curves`: their least cost, by area; `by_size`:
    of so many hosts in regions that miss a stage. All doubled.
    """
    ends, single = ring
    areas, hosts = len(curves), np.arange(len(by_size))
    best = int(ends.argmin())
    line = rows * int(ends[best])
    from_line = np.roll(ends, -best)
    left = lopsided(rows, from_line[-np.arange(len(ends))], weight)
    right = lopsided(rows, from_line, weight)
    between = narrow(rows, ends, single, weight)[:, : len(by_size)]
    cost = np.empty((areas, len(by_size)), dtype=np.int64)
    for area in range(areas):
        after = (area + hosts) % areas
        near, far = (rows * best - area) % areas, (after - rows * best) % areas
        both = left[near] + right[far]
        rest = hosts - near - far
        straight = np.where(rest >= 0, both - 2 * line + by_size[np.maximum(rest, 0)], 0)
        on_lines = both + np.maximum(by_size, straight)
        moved = np.minimum(left[-1] + curves[after], curves[area] + right[-1]) + by_size
        least = np.minimum(on_lines, moved)
        few = between.shape[1]
        least[:few] = np.maximum(least[:few], between[area])
        cost[area] = least - curves[area] - curves[after]
    return cost
