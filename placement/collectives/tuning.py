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
from dataclasses import dataclass, replace

import numpy as np

from placement.collectives import nccl
from placement.collectives.nccl import Protocol, Ranks
from placement.collectives.recommend import (
    AS_GOOD,
    AxisCollective,
    choice_on,
    collectives_of,
    distinct_groups,
)
from placement.collectives.schedules import Algorithm, Operation
from placement.fabric.constraints import seen_by_gang
from placement.fabric.tree import Fabric
from placement.objective.axis_loads import BYTES_PER_S
from placement.workload.request import Request

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
    """For each axis that is a collective and leaves its nodes, in rank order; one entry for each
    number of nodes that its groups lie on. Cost: as `recommend.advice`."""
    axes = collectives_of(fabric, request, hosts)
    return tuple(tuning for axis in axes for tuning in _of_axis(fabric, axis))


def _of_axis(fabric: Fabric, axis: AxisCollective) -> Iterator[NcclTuning]:
    nodes_of = (np.diff(np.sort(axis.nodes, axis=1), axis=1) != 0).sum(axis=1) + 1
    payload, whole = float(axis.payload) / axis.calls, axis.operation
    for nodes in np.unique(nodes_of[nodes_of > 1]).tolist():
        ranks = Ranks(axis.size, nodes, fabric.nic_gbps * BYTES_PER_S)
        algorithm = _algorithm(fabric, replace(axis, nodes=axis.nodes[nodes_of == nodes]), nodes)
        for operation in (whole,) if whole is Operation.ALL_REDUCE else HALVES:
            # PAT, which stands for near first, knows one protocol; NCCL's model has no times of it.
            timed = nccl.Tuned(algorithm, Protocol.SIMPLE, 0.0)
            if algorithm is not Algorithm.NEAR:
                timed = nccl.choice(operation, ranks, payload, (algorithm,))
            yield NcclTuning(
                *(axis.axis, operation, axis.size, nodes, round(payload)),
                *(algorithm, timed.protocol, timed.seconds),
            )


def _algorithm(fabric: Fabric, axis: AxisCollective, nodes: int) -> Algorithm:
    """A ring, unless what else NCCL has is clearly faster on the placement."""
    other = Algorithm.TREE if axis.operation is Operation.ALL_REDUCE else Algorithm.NEAR
    if other is Algorithm.NEAR and nodes < axis.size:
        return Algorithm.RING  # PAT is for one rank a node
    alike = distinct_groups(fabric, axis.nodes)
    ring, faster = (choice_on(fabric, axis, alike, a) for a in (Algorithm.RING, other))
    return other if faster.seconds * AS_GOOD < ring.seconds else Algorithm.RING
