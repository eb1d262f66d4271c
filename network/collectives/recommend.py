"""Which algorithm NCCL should take for an axis on a placement.

`nccl_tunings` says that to NCCL, with the algorithms that it has: rings, and for an all-reduce
double binary trees; all-gathers and reduce-scatters of groups with one rank a node may use PAT,
which sends its large messages near by. The algorithm is the one that the count of messages on
the placement finds fastest, the protocol what NCCL's own model takes for it. Its time is the longer
of two: group by group on NVLink and network cards (alpha-beta), and all groups together on the
busiest uplink.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from muster.structs import replace, struct
from network.collectives import nccl
from network.collectives.nccl import Protocol, Ranks, Tuned
from network.collectives.schedules import (
    Algorithm,
    Link,
    Operation,
    leaving,
    schedule_of,
    schedule_seconds,
)
from placement.fabric.constraints import with_gang_view
from placement.fabric.links import seconds_over
from placement.fabric.tree import Fabric, Ints
from placement.objective.axis_loads import BYTES_PER_S
from placement.workload.request import Collective, Request
from placement.workload.traffic import (
    axis_traffic,
    groups_of,
    has_choice,
    is_summed_whole,
)
from placement.workload.trees import ranks_of_node
from placement.workload.volumes import REPLICATE, work_of

ALPHA_S = 10e-6  # seconds for one message between hosts, as alpha-beta tables assume
ALPHA_INSIDE_S = 3.4e-6  # and inside one: NCCL's figure for a ring on NVLink
HALVES = (Operation.ALL_GATHER, Operation.REDUCE_SCATTER)
ALGORITHM_OF = {
    Collective.RING: Algorithm.RING,
    Collective.HIERARCHICAL: Algorithm.HIERARCHICAL,
    Collective.HALVING_DOUBLING: Algorithm.NEAR,
    Collective.HALVING_DOUBLING_FAR: Algorithm.FAR,
    Collective.PAT: Algorithm.NEAR,
    Collective.TREE: Algorithm.TREE,
}
AS_GOOD = 1.1  # times the fastest: what the model cannot tell apart

Group = tuple[Ints, Ints, int]  # zone and host of each rank; how many groups lie like that


@struct(frozen=True, slots=True)
class AxisCollective:
    """A collective that leaves its nodes: what NCCL takes for one, a host or all hosts of a rack
    that share an NVLink.

    `nodes`: of each rank, group by group. `calls`: one after another in a step, which together
    carry the `payload`. `stated`: in the job file; None: the cut takes a ring. `operation`:
    all-reduce where the whole vector is summed; else gathered and scattered apart, which is an
    all-reduce in two halves and sends the same. `per_host`: neighbouring ranks on a host, which
    trees chain up.
    """

    axis: str
    operation: Operation
    stated: Collective | None
    nodes: Ints
    calls: int
    payload: Fraction
    per_host: int

    @property
    def size(self) -> int:
        return int(self.nodes.shape[1])

    @property
    def used(self) -> Algorithm:
        """Return the algorithm that the cut of the job counts."""
        return ALGORITHM_OF[self.stated or Collective.RING]


def _collectives(
    fabric: Fabric, request: Request, hosts: Sequence[int]
) -> Iterator[AxisCollective]:
    """Each axis that is a collective, carries bytes and leaves its nodes, in rank order."""
    joined = fabric.scale_up_by_host[np.asarray(hosts, dtype=np.int64)]
    per_host = request.ranks_per_host(fabric.gpus_per_host)
    by_rank = np.repeat(joined, per_host)
    used = dict(request.collectives)
    for traffic in axis_traffic(replace(request, collectives=())):
        nodes = groups_of(by_rank, traffic)
        if has_choice(request, traffic) and (nodes != nodes[:, :1]).any():
            # The ring's edge carries 2 (n-1)/n of the payload, which gives the payload.
            payload = Fraction(traffic.edge_bytes * traffic.size, 2 * (traffic.size - 1))
            stated = used.get("dp" if traffic.axis == REPLICATE else traffic.axis)
            yield AxisCollective(
                traffic.axis,
                _operation(request, traffic.axis),
                stated,
                nodes,
                calls_per_step(request, traffic.axis),
                payload,
                ranks_of_node(traffic.size, traffic.stride, per_host),
            )


def _operation(request: Request, axis: str) -> Operation:
    is_whole = is_summed_whole(request, axis) or (axis, Collective.TREE) in request.collectives
    return Operation.ALL_REDUCE if is_whole else Operation.ALL_GATHER


def calls_per_step(request: Request, axis: str) -> int:
    """Return the calls of one rank: by layer, and by micro-batch but for FSDP's; tensor parallelism
    calls after attention and after the feed-forward, forward, backward and when recomputing."""
    work = work_of(request)
    if work is None:
        return 1
    layers = -(-work.model.layers // request.parallelism.pp)
    if axis in ("dp", REPLICATE):
        return layers
    return layers * work.micro_batches * (2 * (work.passes + 1) if axis == "tp" else 1)


def _seconds_on(
    fabric: Fabric, axis: AxisCollective, groups: Sequence[Group], algorithm: Algorithm
) -> float:
    """Return the seconds in a step of the algorithm on `groups` of the axis that lie alike."""
    payload, calls = axis.payload, axis.calls
    uplinks = fabric.tiers[0].uplink_bytes_per_s if fabric.tiers else np.array([np.inf])
    inside = Link(ALPHA_INSIDE_S, fabric.scale_up_gbps * BYTES_PER_S)
    outside = Link(ALPHA_S, fabric.nic_gbps * BYTES_PER_S)
    slowest, out = 0.0, np.zeros(len(uplinks))
    for zone_by_rank, host_by_rank, count in groups:
        plan = schedule_of(Operation.ALL_REDUCE, algorithm, zone_by_rank, axis.per_host)
        out += leaving(plan, zone_by_rank, len(uplinks)) * count * float(payload / plan.parts)
        taken = schedule_seconds(plan, float(payload) / calls, inside, outside, host_by_rank)
        slowest = max(slowest, calls * taken)
    return max(slowest, float(seconds_over(out, uplinks).max()))


def _distinct_groups(fabric: Fabric, hosts: Ints) -> list[Group]:
    """Zone and host of each rank, and how many groups lie like that.

    A host goes by the first rank of its group on it, a name that groups of the same form
    share. Shape of `hosts`: (groups, ranks).
    """
    zones = fabric.tiers[0].domain_by_host[hosts] if fabric.tiers else np.zeros_like(hosts)
    keys = hosts + np.arange(len(hosts))[:, None] * (int(hosts.max()) + 1)
    _, first, host = np.unique(keys, return_index=True, return_inverse=True)
    size = hosts.shape[1]
    alike = np.hstack([zones, first[host].reshape(hosts.shape) % size])
    rows, counts = np.unique(alike, axis=0, return_counts=True)
    return [(row[:size], row[size:], int(n)) for row, n in zip(rows, counts, strict=True)]


@struct(frozen=True, slots=True)
class NcclTuning:
    """One collective of one axis: groups of `ranks` on `nodes`, `payload_bytes` a call."""

    axis: str
    operation: Operation
    ranks: int
    nodes: int
    payload_bytes: int
    algorithm: Algorithm
    protocol: Protocol
    seconds: float


@with_gang_view
def nccl_tunings(fabric: Fabric, request: Request, hosts: Sequence[int]) -> tuple[NcclTuning, ...]:
    """Return NCCL settings for each axis that is a collective and leaves its nodes, in rank order;
    one entry for each number of nodes that its groups lie on.

    Cost: 0.1 s for 16,384 ranks in whole replicas, 1 s in random order.
    """
    axes = _collectives(fabric, request, hosts)
    return tuple(tuning for axis in axes for tuning in _of_axis(fabric, axis))


def _of_axis(fabric: Fabric, axis: AxisCollective) -> Iterator[NcclTuning]:
    nodes_of = (np.diff(np.sort(axis.nodes, axis=1), axis=1) != 0).sum(axis=1) + 1
    payload, whole = float(axis.payload) / axis.calls, axis.operation
    for nodes in np.unique(nodes_of[nodes_of > 1]).tolist():
        ranks = Ranks(axis.size, nodes, fabric.nic_gbps * BYTES_PER_S)
        algorithm = _algorithm(fabric, replace(axis, nodes=axis.nodes[nodes_of == nodes]), nodes)
        for operation in (whole,) if whole is Operation.ALL_REDUCE else HALVES:
            # PAT, which stands for near first, knows one protocol; NCCL's model has no times of it.
            timed = Tuned(algorithm, Protocol.SIMPLE, 0.0)
            if algorithm is not Algorithm.NEAR:
                timed = nccl.choice(operation, ranks, payload, (algorithm,))
            yield NcclTuning(
                *(axis.axis, operation, axis.size, nodes, round(payload)),
                *(algorithm, timed.protocol, timed.seconds),
            )


def _algorithm(fabric: Fabric, axis: AxisCollective, nodes: int) -> Algorithm:
    """Return what the job file states, where NCCL has it; else a ring, unless NCCL's alternative is
    clearly faster on the placement."""
    other = Algorithm.TREE if axis.operation is Operation.ALL_REDUCE else Algorithm.NEAR
    if other is Algorithm.NEAR and nodes < axis.size:
        return Algorithm.RING  # PAT is for one rank a node
    if axis.stated is not None:
        return other if axis.used is other else Algorithm.RING
    alike = _distinct_groups(fabric, axis.nodes)
    ring_s, other_s = (_seconds_on(fabric, axis, alike, a) for a in (Algorithm.RING, other))
    return other if other_s * AS_GOOD < ring_s else Algorithm.RING
