"""Graph partitioners: several presets and seeds each, in a process of their own.

Each gives candidates: the part of every block. What is missing raises ImportError or
FileNotFoundError, and the benchmark says so.
"""

from __future__ import annotations

import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from placement.fabric import Ints
from tests.bench.graph import Task

# Tools that take capacities but fill in proportion do better on the fewest domains.
SEEDS = 3


def _in_all(task: Task, narrowed: Task, part: Sequence[int] | Ints) -> Ints:
    """Parts of the narrowed task as parts of the whole one."""
    index = {d: i for i, d in enumerate(task.domains)}
    return np.array([index[d] for d in narrowed.domains])[np.asarray(part, dtype=np.int64)]


def _fractions(task: Task) -> list[float]:
    return (np.array(task.capacities) / sum(task.capacities)).tolist()


def metis(task: Task) -> Iterator[Ints]:
    """pymetis with target fractions: k-way and recursive."""
    import pymetis

    few = task.narrowed()
    start, neighbour, weight = few.csr()
    graph = pymetis.CSRAdjacency(adj_starts=start, adjacent=neighbour)
    slack = sum(few.capacities) / few.blocks - 1
    for recursive in (False, True):
        for seed in range(SEEDS):
            options = pymetis.Options(seed=seed, ncuts=4, ufactor=max(1, int(1000 * slack)))
            found = pymetis.part_graph(
                len(few.capacities),
                adjacency=graph,
                eweights=weight,
                tpwgts=_fractions(few),
                recursive=recursive,
                options=options,
            )
            yield _in_all(task, few, found.vertex_part)


def kahip(task: Task) -> Iterator[Ints]:
    """Direct k-way where domains are alike; recursive bisection with a dummy vertex else."""
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
            yield _in_all(task, few, part)
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
        yield _in_all(task, few, part)


Halves = Callable[[Task, Ints, int, int, int, int], Ints]
Sides = tuple[list[int], list[int]]


def _even(task: Task, domains: list[int]) -> Sides:
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


def _in_line(task: Task, domains: list[int]) -> Sides:
    """The largest on one side, as near to half as can be."""
    order = sorted(domains, key=lambda d: -task.capacities[d])
    sums = np.cumsum([task.capacities[d] for d in order])[:-1]
    first = 1 + int(np.argmin(np.abs(2 * sums - sum(task.capacities[d] for d in order))))
    return order[:first], order[first:]


def _bisect(
    task: Task,
    blocks: Ints,
    domains: list[int],
    part: Ints,
    halves: Halves,
    split: Callable[[Task, list[int]], Sides] = _even,
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


def _subgraph(task: Task, blocks: Ints) -> tuple[Ints, Ints, Ints]:
    """Edges among `blocks`, renumbered."""
    number = np.full(task.blocks, -1, dtype=np.int64)
    number[blocks] = np.arange(len(blocks))
    kept = (number[task.heads] >= 0) & (number[task.tails] >= 0)
    return number[task.heads[kept]], number[task.tails[kept]], task.weights[kept]


def _kahip_halves(seed: int, use_slack: bool) -> Halves:
    import kahip as library

    def halves(
        task: Task, blocks: Ints, left: int, right: int, room_left: int, room_right: int
    ) -> Ints:
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
        return in_small if left < right else ~in_small

    return halves


def kaminpar(task: Task) -> Iterator[Ints]:
    """The largest weight of each part is its capacity, on all domains and on the fewest."""
    import kaminpar as library

    for some in _both(task):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "job.graph"
            path.write_text(_metis_file(some))
            graph = library.load_graph(str(path), library.GraphFileFormat.METIS)
        for context in (library.default_context(), library.strong_context()):
            for seed in range(SEEDS):
                library.reseed(seed)
                solver = library.KaMinPar(1, context)
                caps = [int(c) for c in some.capacities]
                part = solver.compute_partition(graph, max_block_weights=caps)
                yield _in_all(task, some, part)


def _both(task: Task) -> list[Task]:
    few = task.narrowed()
    return [few] if few.domains == task.domains else [few, task]


def _metis_file(task: Task) -> str:
    start, neighbour, weight = task.csr()
    lines = [f"{task.blocks} {len(task.heads)} 1"]
    for v in range(task.blocks):
        row = range(start[v], start[v + 1])
        lines.append(" ".join(f"{neighbour[i] + 1} {weight[i]}" for i in row))
    return "\n".join(lines) + "\n"


def mt_kahypar(task: Task) -> Iterator[Ints]:
    """The largest weight of each part is its capacity, on all domains and on the fewest."""
    import mtkahypar

    kit = _mt_kahypar_once()
    presets = mtkahypar.PresetType
    tries = product((1, 2), (presets.DEFAULT, presets.DETERMINISTIC, presets.QUALITY))
    for seed, preset in tries:
        for some in _both(task):
            mtkahypar.set_seed(seed)
            context = kit.context_from_preset(preset)
            context.logging = False
            count = len(some.capacities)
            context.set_partitioning_parameters(count, 0.03, mtkahypar.Objective.CUT)
            context.set_individual_target_block_weights(list(some.capacities))
            edges = list(zip(some.heads.tolist(), some.tails.tolist(), strict=True))
            ones = [1] * some.blocks
            graph = kit.create_graph(
                context, some.blocks, len(edges), edges, ones, some.weights.tolist()
            )
            yield _in_all(task, some, graph.partition(context).get_partition())


_KIT: list[Any] = []


def _mt_kahypar_once() -> Any:
    """Mt-KaHyPar may be initialised once in a process."""
    import mtkahypar

    if not _KIT:
        _KIT.append(mtkahypar.initialize(1, False))
    return _KIT[0]


def scotch(task: Task) -> Iterator[Ints]:
    """Debian's scotch_gmap onto a complete graph with target weights."""
    few = task.narrowed()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job.src").write_text(_scotch_file(few))
        weights = " ".join(str(c) for c in few.capacities)
        (folder / "zones.tgt").write_text(f"cmpltw {len(few.capacities)} {weights}\n")
        slack = sum(few.capacities) / few.blocks - 1
        for options in ([], ["-cbq"], ["-cq", f"-b{max(0.01, slack):.3f}"]):
            command = ["scotch_gmap", "job.src", "zones.tgt", "job.map", *options]
            subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=10)
            rows = np.loadtxt(folder / "job.map", dtype=np.int64, skiprows=1, ndmin=2)
            part = np.empty(few.blocks, dtype=np.int64)
            part[rows[:, 0]] = rows[:, 1]
            yield _in_all(task, few, part)


def _scotch_file(task: Task) -> str:
    start, neighbour, weight = task.csr()
    lines = ["0", f"{task.blocks} {len(neighbour)}", "0 010"]
    for v in range(task.blocks):
        row = range(start[v], start[v + 1])
        pairs = " ".join(f"{weight[i]} {neighbour[i]}" for i in row)
        lines.append(f"{len(row)} {pairs}")
    return "\n".join(lines) + "\n"


def kernighan_lin(task: Task) -> Iterator[Ints]:
    """networkx, recursively; its halves drift, so it is always repaired in the end."""
    import networkx

    def halves(
        task: Task, blocks: Ints, left: int, right: int, room_left: int, room_right: int
    ) -> Ints:
        graph = networkx.Graph()
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
    yield _in_all(task, few, part)


def bands(task: Task) -> list[Ints]:
    """The engine's own first layouts, nothing searched: bands of stages over zones."""
    from placement.bands import band_trees
    from placement.grid import block_grid
    from placement.slicing import slice_grid

    grid = block_grid(task.request, task.gpus)
    if grid is None:
        raise ValueError("these blocks form no grid")
    _, layout = slice_grid(grid, task.capacities, band_trees(grid, task.capacities), 0, 0)
    part = np.empty(task.blocks, dtype=np.int64)
    part[grid.block] = layout
    return [part]
