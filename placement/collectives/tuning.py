"""What the recommendation says to NCCL: for each collective of a placed gang, which of the
algorithms that NCCL has, and under which protocol.

NCCL has rings, and for an all-reduce double binary trees; all-gathers and reduce-scatters of
groups with one rank a node may use PAT, which sends its large messages near by. The algorithm
is the one that muster's count of messages on the placement finds fastest, the protocol what
NCCL's own model takes for it. A node here is what NCCL takes for one: a host, or all hosts of a
rack that share an NVLink.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from placement.collectives import nccl
from placement.collectives.nccl import Protocol, Ranks
from placement.collectives.recommend import (
    AS_GOOD,
    calls_per_step,
    choice_on,
    distinct_groups,
    has_choice,
    operation_of,
)
from placement.collectives.schedules import Algorithm, Operation
from placement.fabric.constraints import seen_by_gang
from placement.fabric.tree import Fabric, Ints
from placement.objective.axis_loads import BYTES_PER_S
from placement.workload.request import Request
from placement.workload.traffic import AxisTraffic, axis_traffic, groups_of

HALVES = (Operation.ALL_GATHER, Operation.REDUCE_SCATTER)


@dataclass(frozen=True, slots=True)
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


@seen_by_gang
def nccl_tunings(fabric: Fabric, request: Request, hosts: Sequence[int]) -> tuple[NcclTuning, ...]:
    """For each axis that is a collective and leaves its node, in rank order; one entry for each
    number of nodes that its groups lie on. Cost: as `recommend.advice`."""
    joined = fabric.scale_up_by_host[np.asarray(hosts, dtype=np.int64)]
    by_rank = np.repeat(joined, request.ranks_per_host(fabric.gpus_per_host))
    tunings: list[NcclTuning] = []
    for traffic in axis_traffic(request):
        groups = groups_of(by_rank, traffic)
        if has_choice(request, traffic):
            tunings += _of_axis(fabric, request, traffic, groups)
    return tuple(tunings)


def _of_axis(
    fabric: Fabric, request: Request, traffic: AxisTraffic, groups: Ints
) -> Iterator[NcclTuning]:
    whole, calls = operation_of(request, traffic), calls_per_step(request, traffic.axis)
    payload = Fraction(traffic.edge_bytes * traffic.size, 2 * (traffic.size - 1))
    nodes_of = (np.diff(np.sort(groups, axis=1), axis=1) != 0).sum(axis=1) + 1
    for nodes in np.unique(nodes_of[nodes_of > 1]).tolist():
        ranks = Ranks(traffic.size, nodes, fabric.nic_gbps * BYTES_PER_S)
        algorithm = _algorithm(fabric, payload, groups[nodes_of == nodes], whole, calls, nodes)
        for operation in (whole,) if whole is Operation.ALL_REDUCE else HALVES:
            yield _tuning(traffic.axis, operation, ranks, float(payload) / calls, algorithm)


def _algorithm(
    fabric: Fabric, payload: Fraction, groups: Ints, whole: Operation, calls: int, nodes: int
) -> Algorithm:
    """A ring, unless what else NCCL has is clearly faster on the placement."""
    other = Algorithm.TREE if whole is Operation.ALL_REDUCE else Algorithm.NEAR
    if other is Algorithm.NEAR and nodes < groups.shape[1]:
        return Algorithm.RING  # PAT is for one rank a node
    alike = distinct_groups(fabric, groups)
    ring, faster = (choice_on(fabric, payload, alike, a, calls) for a in (Algorithm.RING, other))
    return other if faster.seconds * AS_GOOD < ring.seconds else Algorithm.RING


def _tuning(
    axis: str, operation: Operation, ranks: Ranks, payload: float, algorithm: Algorithm
) -> NcclTuning:
    if algorithm is Algorithm.NEAR:  # PAT knows one protocol
        timed = nccl.Tuned(algorithm, Protocol.SIMPLE, 0.0)
    else:
        options = [t for t in nccl.times(operation, ranks, payload) if t.algorithm is algorithm]
        timed = min(options, key=lambda tuned: tuned.seconds)
    return NcclTuning(
        *(axis, operation, ranks.ranks, ranks.hosts, round(payload)),
        *(algorithm, timed.protocol, timed.seconds),
    )
