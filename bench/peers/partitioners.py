"""Graph partitioners: several presets and seeds each, in a process of their own.

Each gives candidates: the part of every block. What is missing raises ImportError or
FileNotFoundError, and the benchmark says so.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.graph import PartitioningTask
from placement.fabric.tree import Ints

# Tools that take capacities but fill in proportion do better on the fewest domains.
SEEDS = 3


def in_all(task: PartitioningTask, narrowed: PartitioningTask, part: Sequence[int] | Ints) -> Ints:
    """Convert parts of the narrowed task to parts of the whole one."""
    index = {d: i for i, d in enumerate(task.domains)}
    return np.array([index[d] for d in narrowed.domains])[np.asarray(part, dtype=np.int64)]


def _fractions(task: PartitioningTask) -> list[float]:
    return [capacity / sum(task.capacities) for capacity in task.capacities]


def metis(task: PartitioningTask) -> Iterator[Ints]:
    """Partition by pymetis with target fractions: k-way and recursive."""
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
            yield in_all(task, few, found.vertex_part)


def kaminpar(task: PartitioningTask) -> Iterator[Ints]:
    """Partition by KaMinPar; the largest weight of each part is its capacity, on all domains and on
    the fewest."""
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
                yield in_all(task, some, part)


def _both(task: PartitioningTask) -> list[PartitioningTask]:
    few = task.narrowed()
    return [few] if few.domains == task.domains else [few, task]


def _metis_file(task: PartitioningTask) -> str:
    start, neighbour, weight = task.csr()
    lines = [f"{task.blocks} {len(task.heads)} 1"]
    for v in range(task.blocks):
        row = range(start[v], start[v + 1])
        lines.append(" ".join(f"{neighbour[i] + 1} {weight[i]}" for i in row))
    return "\n".join(lines) + "\n"


def mt_kahypar(task: PartitioningTask) -> Iterator[Ints]:
    """Partition by Mt-KaHyPar; the largest weight of each part is its capacity, on all domains and
    on the fewest."""
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
            yield in_all(task, some, graph.partition(context).get_partition())


_KIT: list[Any] = []


def _mt_kahypar_once() -> Any:
    """Mt-KaHyPar may be initialised once in a process."""
    import mtkahypar

    if not _KIT:
        _KIT.append(mtkahypar.initialize(1, False))
    return _KIT[0]


def scotch(task: PartitioningTask) -> Iterator[Ints]:
    """Partition by Debian's scotch_gmap onto a complete graph with target weights."""
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
            yield in_all(task, few, part)


def _scotch_file(task: PartitioningTask) -> str:
    start, neighbour, weight = task.csr()
    lines = ["0", f"{task.blocks} {len(neighbour)}", "0 010"]
    for v in range(task.blocks):
        row = range(start[v], start[v + 1])
        pairs = " ".join(f"{weight[i]} {neighbour[i]}" for i in row)
        lines.append(f"{len(row)} {pairs}")
    return "\n".join(lines) + "\n"


def bands(task: PartitioningTask) -> list[Ints]:
    """Return the engine's own first layout, nothing searched: zones side by side."""
    from placement.grid.block_grid import block_grid
    from placement.search.graph_slicing import slice_grid

    grid = block_grid(task.request, task.gpus)
    if grid is None:
        raise ValueError("these blocks form no grid")
    layout = slice_grid(grid, task.capacities, 0, 0)
    part = np.empty(task.blocks, dtype=np.int64)
    part[grid.block] = layout
    return [part]
