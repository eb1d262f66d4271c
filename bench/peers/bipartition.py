"""Peers by dual recursive bipartition: domains and blocks are halved together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import product
from math import ceil

import numpy as np

from bench.peers.graph import PartitioningTask
from bench.peers.partitioners import in_all
from placement.fabric.hostset import Mask
from placement.fabric.tree import Ints

Halves = Callable[[PartitioningTask, Ints, int, int, int, int], Mask]
Sides = tuple[list[int], list[int]]


def _even(task: PartitioningTask, domains: list[int]) -> Sides:
    """As near to half as any subset comes: sums that are reached, as bits of an integer."""
    reached = [1]
    for d in domains:
        reached.append(reached[-1] | reached[-1] << task.capacities[d])
    half = sum(task.capacities[d] for d in domains) // 2
    left = (reached[-1] & ((2 << half) - 1)).bit_length() - 1
    sides: Sides = ([], [])
    for i in range(len(domains) - 1, -1, -1):
        is_left = not reached[i] >> left & 1
        sides[0 if is_left else 1].append(domains[i])
        left -= task.capacities[domains[i]] * is_left
    return sides


def _in_line(task: PartitioningTask, domains: list[int]) -> Sides:
    """The largest on one side, as near to half as can be."""
    order = sorted(domains, key=lambda d: -task.capacities[d])
    sums = np.cumsum([task.capacities[d] for d in order])[:-1]
    first = 1 + int(np.argmin(np.abs(2 * sums - sum(task.capacities[d] for d in order))))
    return order[:first], order[first:]


def _bisect(
    task: PartitioningTask,
    blocks: Ints,
    domains: list[int],
    part: Ints,
    halves: Halves,
    split: Callable[[PartitioningTask, list[int]], Sides] = _even,
) -> None:
    """Dual recursive bipartition: domains and blocks are halved together."""
    if len(domains) == 1:
        part[blocks] = domains[0]
        return
    left, right = split(task, domains)
    room = [sum(task.capacities[d] for d in side) for side in (left, right)]
    wish = min(room[0], max(len(blocks) - room[1], round(len(blocks) * room[0] / sum(room))))
    wish = min(max(wish, 0), len(blocks))
    if wish in (0, len(blocks)):
        _bisect(task, blocks, left if wish else right, part, halves, split)
        return
    in_left = halves(task, blocks, wish, len(blocks) - wish, *room)
    _bisect(task, blocks[in_left], left, part, halves, split)
    _bisect(task, blocks[~in_left], right, part, halves, split)


def _subgraph(task: PartitioningTask, blocks: Ints) -> tuple[Ints, Ints, Ints]:
    """Edges among `blocks`, renumbered."""
    number = np.full(task.blocks, -1, dtype=np.int64)
    number[blocks] = np.arange(len(blocks))
    kept = (number[task.heads] >= 0) & (number[task.tails] >= 0)
    return number[task.heads[kept]], number[task.tails[kept]], task.weights[kept]


def _kahip_halves(seed: int, use_slack: bool) -> Halves:
    import kahip as library

    def halves(
        task: PartitioningTask, blocks: Ints, left: int, right: int, room_left: int, room_right: int
    ) -> Mask:
        heads, tails, weights = _subgraph(task, blocks)
        dummy = abs(left - right)
        n = len(blocks) + (dummy > 0)
        ends = np.concatenate([heads, tails])
        order = np.lexsort((np.concatenate([tails, heads]), ends))
        start = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=n))])
        slack = max(0, min(room_left - left, room_right - right)) if use_slack else 0
        eps = slack / max(left, right)
        _, part = library.kaffpa(
            [1] * len(blocks) + [dummy] * (dummy > 0),
            start.tolist(),
            np.concatenate([weights, weights])[order].tolist(),
            np.concatenate([tails, heads])[order].tolist(),
            2,
            eps,
            True,
            seed,
            2,
        )
        side = np.array(part)
        # The dummy stands with the smaller half.
        small = int(side[-1]) if dummy else 1
        in_small = side[: len(blocks)] == small
        return np.asarray(in_small if left < right else ~in_small)

    return halves


def kahip(task: PartitioningTask) -> Iterator[Ints]:
    """Partition by KaHIP: direct k-way where domains are alike, else recursive bisection with a
    dummy vertex."""
    import kahip as library

    few = task.narrowed()
    start, neighbour, weight = (a.tolist() for a in few.csr())
    count = len(few.capacities)
    share = ceil(few.blocks / count)
    slack = min(few.capacities) / share - 1
    if slack >= 0:
        for mode in (1, 2):
            ones = [1] * few.blocks
            _, part = library.kaffpa(ones, start, weight, neighbour, count, slack, True, 0, mode)
            yield in_all(task, few, part)
    # With an imbalance of exactly 0 it balances by negative cycles, far better than by 1e-6.
    for seed, use_slack, split in product((0, 1), (False, True), (_even, _in_line)):
        part = np.empty(few.blocks, dtype=np.int64)
        _bisect(
            few,
            np.arange(few.blocks),
            list(range(count)),
            part,
            _kahip_halves(seed, use_slack),
            split,
        )
        yield in_all(task, few, part)


def kernighan_lin(task: PartitioningTask) -> Iterator[Ints]:
    """Partition by networkx' Kernighan-Lin, recursively. Its halves drift in size, so the result is
    always repaired."""
    import networkx

    def halves(
        task: PartitioningTask, blocks: Ints, left: int, right: int, room_left: int, room_right: int
    ) -> Mask:
        graph: networkx.Graph[int] = networkx.Graph()
        graph.add_nodes_from(range(len(blocks)))
        graph.add_weighted_edges_from(
            zip(*(a.tolist() for a in _subgraph(task, blocks)), strict=True)
        )
        start = (set(range(left)), set(range(left, len(blocks))))
        first, _ = networkx.community.kernighan_lin_bisection(graph, start, max_iter=3, seed=1)
        in_left = np.zeros(len(blocks), dtype=np.bool_)
        in_left[list(first)] = True
        return in_left

    few = task.narrowed()
    part = np.empty(few.blocks, dtype=np.int64)
    warnings.simplefilter("ignore")
    _bisect(few, np.arange(few.blocks), list(range(len(few.capacities))), part, halves)
    yield in_all(task, few, part)
