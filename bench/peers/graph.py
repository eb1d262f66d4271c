"""What peers are given: blocks as vertices, bytes between them as edge weights.

Built from ranks, as the referee is, and not from the engine's grid. A hierarchical
collective has no edges of its own: graph tools see a ring of n/(n-1) times its weight,
the score stays the referee's. All-to-all groups are cliques (64 ranks at most here).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bench.placement.instances import Instance
from placement.fabric import hostset
from placement.fabric.tree import Ints
from placement.objective.cut import cut_by_axis
from placement.workload.request import Request
from placement.workload.traffic import AxisTraffic, Pattern, axis_traffic

HEAVIEST = 10_000  # of a scaled edge: several tools hold sums in 32 bits
TOTAL = 500_000_000


@dataclass(frozen=True, slots=True, eq=False)
class PartitioningTask:
    """Blocks to put into domains of one tier, as a graph. Edges: `heads`[i] < `tails`[i],
    merged."""

    request: Request
    gpus: int
    blocks: int
    domains: tuple[int, ...]
    capacities: tuple[int, ...]
    heads: Ints
    tails: Ints
    weights: Ints
    seed: int

    def score(self, part: Ints) -> int:
        """Count the referee's bytes over this tier, `part` being an index into `capacities`."""
        return sum(b for _, b in cut_by_axis(self.request, self.gpus, part))

    def csr(self) -> tuple[Ints, Ints, Ints]:
        """(start of each vertex, neighbours, weights), both directions."""
        ends = np.concatenate([self.heads, self.tails])
        others = np.concatenate([self.tails, self.heads])
        weights = np.concatenate([self.weights, self.weights])
        order = np.lexsort((others, ends))
        start = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=self.blocks))])
        return start.astype(np.int64), others[order], weights[order]

    def narrowed(self) -> PartitioningTask:
        """Return the task on the fewest largest domains that hold the job, for most tools fill all
        domains that they are given."""
        order = sorted(range(len(self.capacities)), key=lambda i: -self.capacities[i])
        total, kept = 0, 0
        while total < self.blocks:
            total += self.capacities[order[kept]]
            kept += 1
        chosen = sorted(order[:kept])
        return replace(
            self,
            domains=tuple(self.domains[i] for i in chosen),
            capacities=tuple(self.capacities[i] for i in chosen),
        )


def deciding_tier(inst: Instance) -> int | None:
    """Return the outermost tier that the gang has to cut; None when a rack holds it all."""
    for depth in range(len(inst.fabric.tiers)):
        if int(inst.free_by_domain(depth).max()) < inst.gang:
            return depth
    return None


def tasks(inst: Instance) -> list[PartitioningTask]:
    """Return one task, or inside single domains one for the tightest and one for the roomiest."""
    depth = deciding_tier(inst)
    if depth is None:
        return []
    mask = hostset.to_mask(inst.free, inst.fabric.host_count)
    hosts = np.flatnonzero(mask)
    groups = [hosts]
    if depth:
        outer = inst.fabric.tiers[depth - 1].domain_by_host[hosts]
        free = np.bincount(outer)
        fitting = np.flatnonzero(free >= inst.gang)
        ends = {int(fitting[np.argmin(free[fitting])]), int(fitting[np.argmax(free[fitting])])}
        groups = [hosts[outer == domain] for domain in sorted(ends)]
    edges = block_edges(inst.request, inst.fabric.gpus_per_host, inst.gang)
    return [_task(inst, depth, group, edges) for group in groups]


def _task(
    inst: Instance, depth: int, hosts: Ints, edges: tuple[Ints, Ints, Ints]
) -> PartitioningTask:
    free = np.bincount(inst.fabric.tiers[depth].domain_by_host[hosts])
    domains = tuple(int(d) for d in np.flatnonzero(free))
    capacities = tuple(int(free[d]) for d in domains)
    gpus = inst.fabric.gpus_per_host
    return PartitioningTask(inst.request, gpus, inst.gang, domains, capacities, *edges, inst.index)


def block_edges(request: Request, gpus: int, blocks: int) -> tuple[Ints, Ints, Ints]:
    """Return edges (head, tail, scaled weight), head < tail, each pair once."""
    ranks = np.arange(request.parallelism.world_size)
    grid = ranks.reshape(tuple(reversed(request.parallelism.sizes)))
    pairs, bytes_ = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
    for traffic in axis_traffic(request):
        axes = request.parallelism.axes
        position = len(axes) - 1 - axes.index(traffic.axis)
        groups = np.moveaxis(grid, position, -1).reshape(-1, traffic.size)
        for a, b, w in _edges(traffic, groups):
            one, other = np.minimum(a, b) // gpus, np.maximum(a, b) // gpus
            apart = one != other
            pairs.append(one[apart] * blocks + other[apart])
            bytes_.append(np.full(int(apart.sum()), w))
    keys, where = np.unique(np.concatenate(pairs), return_inverse=True)
    total = np.bincount(where, np.concatenate(bytes_), len(keys))
    keys, total = keys[total > 0], total[total > 0]
    return keys // blocks, keys % blocks, _scaled(total)


def _edges(traffic: AxisTraffic, groups: Ints) -> list[tuple[Ints, Ints, float]]:
    w, n = float(traffic.edge_bytes), traffic.size
    if traffic.pattern is Pattern.ALL_TO_ALL:
        return [(groups[:, i:].ravel(), groups[:, : n - i].ravel(), 2 * w) for i in range(1, n)]
    steps = [(groups[:, 1:].ravel(), groups[:, :-1].ravel(), w)]
    if traffic.pattern is Pattern.CHAIN:
        return [*steps, (groups[:, 0], groups[:, -1], float(traffic.wrap_bytes))]
    if traffic.pattern is Pattern.HIERARCHICAL:
        w *= n / (n - 1)
    return [(a, b, w) for a, b, _ in steps] + [(groups[:, 0], groups[:, -1], w)]


def _scaled(weights: np.ndarray) -> Ints:
    """Whole numbers of at least 1, the heaviest and the sum bounded."""
    if not len(weights):
        return weights.astype(np.int64)
    scale = min(HEAVIEST / weights.max(), TOTAL / weights.sum())
    if scale > 1 and (weights == weights.astype(np.int64)).all():
        scale = 1.0
    return np.asarray(np.maximum(1, np.rint(weights * scale)), dtype=np.int64)
