"""The flows of a job: who sends how many bytes to whom in a step.

Built from the same axes, patterns and bytes as the cut, so the two can be compared:
what crosses a tier here is what the referee counts there. Bytes between GPUs of one
host, or of one scale-up domain, go over NVLink and are no flow.

    ring          each rank to the next of its group
    chain         both ways between neighbours, half an edge's bytes each
    all-to-all    every ordered pair
    tree          along the edges of both trees, and the chains inside hosts, both ways
    hierarchical  inside each domain, a ring over the domains (hosts, at last) that the
                  group touches there, carried by the members of each in equal parts:
                  S (c-1)/c leave each of c domains, S (c-1) in all
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from muster.structs import struct
from network.wiring import Floats, Links, Mask
from placement.fabric.constraints import with_gang_view
from placement.fabric.tree import Fabric, Ints
from placement.workload.request import Request
from placement.workload.traffic import AxisTraffic, Pattern, axis_traffic, groups_of
from placement.workload.trees import tree_edges


@struct(frozen=True, slots=True, eq=False)
class Flows:
    """Flows between GPUs: one row for each pair that talks along an axis. GPU g is slot g mod G of
    host g // G.

    `src_gpu`, `dst_gpu`, `bytes`, `axis`: shape (flows,); bytes per step, in whole bytes except
    where a hierarchical collective divides unevenly. `axis` indexes `axes`.
    """

    src_gpu: Ints
    dst_gpu: Ints
    bytes: Floats
    axis: Ints
    axes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.src_gpu)

    def part(self, rows: Ints | Mask | slice) -> Flows:
        """Return the flows of these rows."""
        src, dst, axis = self.src_gpu[rows], self.dst_gpu[rows], self.axis[rows]
        return Flows(src, dst, self.bytes[rows], axis, self.axes)

    def leaves(self, links: Links) -> tuple[Ints, Ints]:
        """The leaf switches at the source and at the target of each flow."""
        return links.leaf_by_gpu[self.src_gpu], links.leaf_by_gpu[self.dst_gpu]


@with_gang_view
def flows_of(fabric: Fabric, request: Request, hosts: Sequence[int]) -> Flows:
    """Return the flows of a gang on these hosts, block by block.

    Cost: O(flows); 50 ms for 16,384 GPUs in rings.
    """
    rank = np.arange(request.parallelism.world_size)
    host = np.asarray(hosts, dtype=np.int64)[rank // fabric.gpus_per_host]
    gpu = host * fabric.gpus_per_host + rank % fabric.gpus_per_host
    traffics = axis_traffic(request, request.ranks_per_host(fabric.gpus_per_host))
    axes = tuple(traffic.axis for traffic in traffics)
    none = np.empty(0, dtype=np.int64)
    parts = [Flows(none, none, np.empty(0), none, axes)]
    for index, traffic in enumerate(traffics):
        for source, target, size in edges_of(fabric, traffic, groups_of(gpu, traffic)):
            sizes = np.broadcast_to(np.asarray(size, dtype=np.float64), source.shape)
            parts.append(Flows(source, target, sizes, np.full(source.shape, index), axes))
    flows = merge_flows(*parts)
    joined = fabric.scale_up_by_host
    source, target = (
        joined[gpus // fabric.gpus_per_host] for gpus in (flows.src_gpu, flows.dst_gpu)
    )
    return flows.part((source != target) & (flows.bytes > 0))


def merge_flows(*jobs: Flows) -> Flows:
    """Join the flows of several jobs on one fabric; axes of the same name are joined."""
    axes = tuple(dict.fromkeys(axis for flows in jobs for axis in flows.axes))
    renamed = [np.array([axes.index(a) for a in f.axes], dtype=np.int64)[f.axis] for f in jobs]
    return Flows(
        np.concatenate([flows.src_gpu for flows in jobs]),
        np.concatenate([flows.dst_gpu for flows in jobs]),
        np.concatenate([flows.bytes for flows in jobs]),
        np.concatenate(renamed),
        axes,
    )


Edge = tuple[Ints, Ints, Floats | float]


def edges_of(fabric: Fabric, traffic: AxisTraffic, groups: Ints) -> Iterator[Edge]:
    """List the sources, targets and bytes of one axis. Shape of `groups`: (groups, GPUs)."""
    w = traffic.edge_bytes
    match traffic.pattern:
        case Pattern.RING:
            yield groups.ravel(), np.roll(groups, -1, axis=1).ravel(), w
        case Pattern.CHAIN:
            yield from _both_ways(groups[:, :-1].ravel(), groups[:, 1:].ravel(), w)
            yield from _both_ways(groups[:, -1], groups[:, 0], traffic.wrap_bytes)
        case Pattern.ALL_TO_ALL:
            for step in range(1, traffic.size):
                yield groups.ravel(), np.roll(groups, -step, axis=1).ravel(), w
        case Pattern.PAIRS:
            near, far = np.split(groups[0], [traffic.ranks])
            yield np.repeat(near, len(far)), np.tile(far, len(near)), w
        case Pattern.TREE:
            tail, head, parts = tree_edges(traffic.size, traffic.node)
            sizes = np.tile(parts * float(traffic.tree_part), len(groups))
            yield groups[:, tail].ravel(), groups[:, head].ravel(), sizes
        case Pattern.HIERARCHICAL:
            yield from _hierarchical(fabric, groups, w * traffic.size / (traffic.size - 1))


def _both_ways(tail: Ints, head: Ints, edge_bytes: int) -> Iterator[Edge]:
    """An edge of a chain carries as much forwards as back."""
    yield tail, head, edge_bytes - edge_bytes // 2
    yield head, tail, edge_bytes // 2


def _hierarchical(fabric: Fabric, groups: Ints, payload: float) -> Iterator[Edge]:
    """Rings over the parts of each group, tier by tier, hosts last.

    Hosts are numbered in tree order, so that sorted members of a domain are neighbours.
    """
    members = np.sort(groups, axis=1)
    group = np.repeat(np.arange(len(groups)), groups.shape[1])
    host = members.ravel() // fabric.gpus_per_host
    around = np.zeros_like(host)
    for tier in (*fabric.tiers, None):
        part = host if tier is None else tier.domain_by_host[host]
        yield _ring_of_parts(members.ravel(), group, around, part, payload)
        around = part


def _ring_of_parts(gpus: Ints, group: Ints, around: Ints, part: Ints, payload: float) -> Edge:
    """One level: the parts of a group inside one domain pass shards round a ring.

    `around`, `part`: the domain of each GPU on the level above, and on this one. The
    members of a part share its egress; the longer side of two parts says how finely.
    """
    starts = np.flatnonzero(_changes(group) | _changes(part))
    lengths = np.diff(np.append(starts, len(gpus)))
    begins = np.flatnonzero(_changes(group[starts]) | _changes(around[starts]))
    parts = np.diff(np.append(begins, len(starts)))  # of each ring
    ring = np.repeat(np.arange(len(begins)), parts)
    place = np.arange(len(starts)) - begins[ring]
    following = begins[ring] + (place + 1) % parts[ring]
    pairs = np.where(parts[ring] > 1, np.maximum(lengths, lengths[following]), 0)
    edge = np.repeat(np.arange(len(starts)), pairs)
    nth = np.arange(len(edge)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    source = gpus[starts[edge] + nth * lengths[edge] // pairs[edge]]
    after = following[edge]
    target = gpus[starts[after] + nth * lengths[after] // pairs[edge]]
    rings = parts[ring][edge]
    return source, target, payload * (rings - 1) / rings / pairs[edge]


def _changes(values: Ints) -> Mask:
    """Where a run of equal values begins."""
    return np.append(True, values[1:] != values[:-1])
