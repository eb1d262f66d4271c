"""Jobs whose blocks form no grid: sizes that hosts split unevenly.

With tp 2, pp 13 and hosts of 8 GPUs a block holds parts of two replicas, and no straight
line parts the job. Blocks are then vertices of an explicit graph. Several orders of the
blocks are filled into the zones one after the other, and the best is polished by moves
and exchanges of single blocks under a tabu rule (Glover 1989), which accepts the least
bad change and forbids undoing it for a while.

The bound counts lines: a zone with part of a group cuts it, and n blocks can hold only
so many groups in whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations
from math import gcd

import numpy as np
import numpy.typing as npt

from placement.bounds import Prover
from placement.cut import cut_by_axis
from placement.fabric import Ints
from placement.grid import BlockGrid, min_plus_power
from placement.request import Limits, Request
from placement.traffic import AxisTraffic, Pattern, axis_traffic
from placement.zones import ZoneStep

Floats = npt.NDArray[np.float64]
MOST_LINKS = 400_000  # explicit edges; beyond that the orders alone decide
TENURE = 12  # changes during which a moved block stays put


def solve_ragged(
    request: Request, gpus: int, capacities: Sequence[int], limits: Limits
) -> tuple[BlockGrid, ZoneStep]:
    """A layout of one row of blocks, its doubled cut in bytes, and a bound."""
    grid = _line_grid(request, gpus)
    layout = _best_order(request, gpus, capacities, grid.width)
    links = _links(request, gpus)
    if links is not None and limits.trees:
        polished = _polished(links, layout, np.asarray(capacities), limits.trees)
        layout = min(layout, polished, key=lambda zones: _bytes(request, gpus, zones))
    cost = 2 * _bytes(request, gpus, layout)
    bound = 0
    if cost and limits.rounds and grid.step.any():
        bound = min(cost, Prover(grid, capacities, []).prove(cost, limits.rounds))
    return grid, ZoneStep(layout[None, :], cost, bound)


def _bytes(request: Request, gpus: int, zones: Ints) -> int:
    return sum(b for _, b in cut_by_axis(request, gpus, zones))


def _line_grid(request: Request, gpus: int) -> BlockGrid:
    """One row of all blocks, with what n of them cost a zone at least."""
    blocks = request.parallelism.world_size // gpus
    step = np.zeros(blocks + 1, dtype=np.int64)
    for traffic in axis_traffic(request):
        step += _least(traffic, blocks, gpus)
    step[0] = step[-1] = 0
    number = np.arange(blocks, dtype=np.int64)[None, :]
    return BlockGrid(1, blocks, 0, 0, (), step, 0, Fraction(1), number)


def _least(traffic: AxisTraffic, blocks: int, gpus: int) -> Ints:
    """Doubled bytes that a zone of m = 0 .. blocks blocks cuts along one axis, at least."""
    n, stride = traffic.size, traffic.stride
    span = stride * n
    each = {
        Pattern.RING: 2 * traffic.edge_bytes,
        Pattern.CHAIN: traffic.edge_bytes,
        Pattern.ALL_TO_ALL: 2 * traffic.edge_bytes * (n - 1),
        # One more domain in a group is w n/(n-1), of which either side pays a half.
        Pattern.HIERARCHICAL: traffic.edge_bytes,
    }[traffic.pattern]
    if stride >= gpus and span % gpus == 0:
        partial = min_plus_power(_partial_lines(n, stride, gpus), blocks * gpus // span)
    else:
        ranks = np.arange(blocks + 1) * gpus
        partial = (ranks % n != 0).astype(np.int64)  # all groups in whole, or one is not
    return np.asarray(each * partial)


def _partial_lines(n: int, stride: int, gpus: int) -> Ints:
    """Groups that m blocks hold in part, at least, out of `stride` interleaved groups.

    A block covers `gpus` neighbouring groups, one rank of each. So m blocks that keep to
    t groups number at most n gcd / gpus for each of the (t - gpus) / gcd + 1 windows
    inside, gcd = gcd(stride, gpus); and a group in whole takes n blocks.
    """
    m = np.arange(stride * n // gpus + 1)
    held = -(-m * gpus // n)
    touched = np.minimum(stride, held + gpus - gcd(stride, gpus))
    whole = np.where(m >= n, m * gpus // n, 0)
    partial = np.maximum(0, touched - whole)
    partial[0] = partial[-1] = 0
    return np.asarray(partial, dtype=np.int64)


def _best_order(request: Request, gpus: int, capacities: Sequence[int], blocks: int) -> Ints:
    """Zones filled one after the other with blocks in the order of some axes."""
    first = np.arange(blocks) * gpus
    at = {
        t.axis: first // t.stride % t.size
        for t in axis_traffic(request)
        if t.stride * t.size > gpus
    }
    orders = [np.arange(blocks)]
    for axes in list(permutations(at))[:24]:
        orders.append(np.lexsort((first, *(at[axis] for axis in axes))))
    largest = sorted(range(len(capacities)), key=lambda z: (-capacities[z], z))
    filled = np.repeat(largest, [capacities[z] for z in largest])[:blocks]
    layouts = []
    for order in orders:
        layout = np.empty(blocks, dtype=np.int64)
        layout[order] = filled
        layouts.append(layout)
    return min(layouts, key=lambda zones: _bytes(request, gpus, zones))


def _links(request: Request, gpus: int) -> tuple[Ints, Ints, Floats] | None:
    """Block edges (tail, head, bytes), both ways; None when there are too many.

    Hierarchical axes stand in as rings: the polish needs a direction, and the referee
    decides which layout is kept.
    """
    world = request.parallelism.world_size
    ranks = np.arange(world)
    tails, heads, weights = [], [], []
    for t in axis_traffic(request):
        index = ranks // t.stride % t.size
        steps = range(1, t.size) if t.pattern is Pattern.ALL_TO_ALL else (1,)
        if world * len(steps) > MOST_LINKS:
            return None
        for step in steps:
            other = (index + step) % t.size
            use = other == index + step if t.pattern is Pattern.CHAIN else np.ones(world, bool)
            tails.append(ranks[use] // gpus)
            heads.append((ranks + (other - index) * t.stride)[use] // gpus)
            weights.append(np.full(int(use.sum()), float(t.edge_bytes)))
    tail, head, weight = np.concatenate(tails), np.concatenate(heads), np.concatenate(weights)
    apart = tail != head
    key = tail[apart] * world + head[apart]
    unique, inverse = np.unique(key, return_inverse=True)
    total = np.bincount(inverse, weights=weight[apart])
    a, b = unique // world, unique % world
    return np.concatenate([a, b]), np.concatenate([b, a]), np.concatenate([total, total])


def _polished(
    links: tuple[Ints, Ints, Floats], layout: Ints, capacities: Ints, changes: int
) -> Ints:
    """The best layout met in so many single moves and exchanges."""
    tail, head, weight = links
    blocks, zones = len(layout), len(capacities)
    order = np.argsort(tail, kind="stable")  # links are unique, so are a block's heads
    tail, head, weight = tail[order], head[order], weight[order]
    start = np.searchsorted(tail, np.arange(blocks + 1))
    now = layout.copy()
    to_zone = np.bincount(tail * zones + now[head], weights=weight, minlength=blocks * zones)
    pull = to_zone.reshape(blocks, zones)
    slack = capacities - np.bincount(now, minlength=zones)
    free_at = np.zeros(blocks, dtype=np.int64)
    best, cost, best_cost = now.copy(), 0.0, 0.0

    def move(block: int, zone: int) -> None:
        mine = slice(start[block], start[block + 1])
        pull[head[mine], now[block]] -= weight[mine]
        pull[head[mine], zone] += weight[mine]
        slack[now[block]] += 1
        slack[zone] -= 1
        now[block] = zone

    for change in range(changes):
        gain = np.array(pull - pull[np.arange(blocks), now][:, None], dtype=np.float64)
        gain[np.arange(blocks), now] = -np.inf
        gain[free_at > change] = -np.inf
        block, zone = _step(gain, now, slack, zones)
        if block < 0:
            break
        moved = [(block, zone)]
        cost -= gain[block, zone]
        old = int(now[block])
        move(block, zone)
        if slack[zone] < 0:  # full: somebody has to make room, at best whom it suits
            back = pull[:, old] - pull[np.arange(blocks), now]
            back[(now != zone) | (free_at > change)] = -np.inf
            back[block] = -np.inf
            other = int(np.argmax(back))
            if back[other] == -np.inf:
                break
            cost -= back[other]
            move(other, old)
            moved.append((other, old))
        for each, _ in moved:
            free_at[each] = change + TENURE
        if cost < best_cost - 1e-6:
            best, best_cost = now.copy(), cost
    return best


def _step(gain: Floats, now: Ints, slack: Ints, zones: int) -> tuple[int, int]:
    """The block to move and where: the best move, counting who would be moved back."""
    open_to = gain + np.where(slack > 0, 0.0, -np.inf)[None, :]
    # Exchanges: best block of each zone towards each other zone.
    towards = np.full((zones, zones), -np.inf)
    np.maximum.at(towards, now, gain)
    exchange = towards + towards.T
    flat = int(np.argmax(open_to))
    best_move = open_to.ravel()[flat]
    pair = int(np.argmax(exchange))
    if best_move == -np.inf and exchange.ravel()[pair] == -np.inf:
        return -1, -1
    if best_move >= exchange.ravel()[pair]:
        return flat // zones, flat % zones
    here, there = pair // zones, pair % zones
    members = np.where(now == here, gain[:, there], -np.inf)
    return int(np.argmax(members)), there
