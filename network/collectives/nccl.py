"""What NCCL is told of a placement: for each axis the algorithm that the job file states, or that
NCCL's own tuner would take, and the protocol that the tuner takes with it.

    time = latency + payload / algorithm bandwidth

for each protocol (LL: flags in every 8 bytes, LL128: in every 128, simple: large chunks and a
flush), the least of which is taken. NCCL has rings, double binary trees for all-reduces, and PAT,
which sends its large messages near by, for all-gathers and reduce-scatters of groups with one rank
a node. Limits per channel are left out, of which NCCL opens enough. Microseconds and GB/s inside,
as in the source.

Source: NVIDIA/nccl, src/graph/tuning.cc (ncclTopoTuneModel, ncclTopoGetAlgoTime).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from fractions import Fraction
from math import log2

import numpy as np

from muster.structs import replace, struct
from placement.fabric.constraints import with_gang_view
from placement.fabric.tree import Fabric
from placement.objective.axis_loads import BYTES_PER_S
from placement.workload.request import Collective, Request
from placement.workload.traffic import axis_traffic, groups_of, has_choice, is_summed_whole
from placement.workload.volumes import REPLICATE, work_of


class Operation(StrEnum):
    """A collective, by its name in the tuner's file."""

    ALL_REDUCE = "allreduce"
    ALL_GATHER = "allgather"
    REDUCE_SCATTER = "reducescatter"


class Algorithm(StrEnum):
    """An algorithm that NCCL has, by its name in the tuner's file."""

    RING = "ring"
    TREE = "tree"
    PAT = "pat"


class Protocol(StrEnum):
    """How a channel's bytes are packed."""

    LL = "LL"
    LL128 = "LL128"
    SIMPLE = "simple"


HALVES = (Operation.ALL_GATHER, Operation.REDUCE_SCATTER)
NEAR_FIRST = (Collective.HALVING_DOUBLING, Collective.PAT)  # as PAT sends
RING, TREE = Algorithm.RING, Algorithm.TREE
# Microseconds in the order of Protocol: to begin with, a hop on NVLink, a hop on the network.
BASE_US = {RING: (6.6, 14.0, 8.4), TREE: (6.8, 14.0, 8.4)}
NVLINK_US = {RING: (0.6, 1.9, 3.4), TREE: (0.6, 1.25, 4.0)}
NETWORK_US = {RING: (2.7, 4.0, 14.0), TREE: (5.0, 8.5, 14.0)}
NIC_US = 5.0  # through a network card once; twice with the flush of SIMPLE
PLATEAU = 1.4  # latency of a simple ring over several hosts, from 64 bytes a rank
LL_MOST_GB_S = (141.0, 39.0, 20.4)  # on one host, two, more
LL128_SHARE = 0.92  # 120 of 128 bytes, less a little
TREE_SHARE = 0.92
TREE_LL_SHARE = 1 / 3.8
# Measured corrections of the tree, by log2 of the payload over 64 bytes.
TREE_CORRECTION = {
    Protocol.LL: "10 10 10 10 9 8 7 7 7 7 6 5 4 4 5 6 7 8 9 10 10 10 10",
    Protocol.LL128: "10 10 10 10 10 9 8 8 8 7 6 6 6 6 6 6 8 9 9 9 9 10 10",
    Protocol.SIMPLE: "9 9 9 9 9 9 9 8 7 6 6 5 5 5 5 6 7 8 7 7 8 9 9",
}


@struct(frozen=True, slots=True)
class Ranks:
    """A group of ranks as NCCL sees it: so many ranks, evenly on so many hosts.

    `bytes_per_s`: of one rank, over the network or, on one host, inside it.
    """

    ranks: int
    hosts: int
    bytes_per_s: float

    @property
    def bus_gb_s(self) -> float:
        """Return GB/s of a ring through a host, to which all of its network cards add up."""
        lanes = self.ranks / self.hosts if self.hosts > 1 else 1
        return lanes * self.bytes_per_s / 1e9


@struct(frozen=True, slots=True)
class NcclTuning:
    """One collective of one axis: groups of `ranks` on `nodes`, `payload_bytes` a call. A node is a
    host, or all hosts of a rack that share an NVLink."""

    axis: str
    operation: Operation
    ranks: int
    nodes: int
    payload_bytes: int
    algorithm: Algorithm
    protocol: Protocol


@with_gang_view
def nccl_tunings(fabric: Fabric, request: Request, hosts: Sequence[int]) -> tuple[NcclTuning, ...]:
    """Return NCCL settings for each axis that is a collective and leaves its nodes, in rank order;
    one entry for each number of nodes that its groups lie on. What is not summed whole is gathered
    and scattered apart."""
    node = np.repeat(
        fabric.scale_up_by_host[list(hosts)], request.ranks_per_host(fabric.gpus_per_host)
    )
    stated, tunings = dict(request.collectives), list[NcclTuning]()
    for traffic in axis_traffic(replace(request, collectives=())):
        if not has_choice(request, traffic):
            continue
        axis, size = traffic.axis, traffic.size
        used = stated.get("dp" if axis == REPLICATE else axis)
        is_whole = is_summed_whole(request, axis) or used is Collective.TREE
        # The ring's edge carries 2 (n-1)/n of the payload.
        payload = float(Fraction(traffic.edge_bytes * size, 2 * (size - 1)))
        payload /= calls_per_step(request, axis)
        in_order = np.sort(groups_of(node, traffic), axis=1)
        nodes_of = (np.diff(in_order, axis=1) != 0).sum(axis=1) + 1
        for nodes in np.unique(nodes_of[nodes_of > 1]).tolist():
            group = Ranks(size, nodes, fabric.nic_gbps * BYTES_PER_S)
            among = [Algorithm.RING]
            if is_whole and used in (None, Collective.TREE):
                among = [Algorithm.TREE] if used else [Algorithm.RING, Algorithm.TREE]
            elif not is_whole and used in NEAR_FIRST and nodes == size:
                among = [Algorithm.PAT]
            for operation in (Operation.ALL_REDUCE,) if is_whole else HALVES:
                seconds = {
                    (algorithm, protocol): s
                    for algorithm in among
                    for protocol, s in protocol_seconds(
                        operation, algorithm, group, payload
                    ).items()
                }
                fastest = min(seconds, key=seconds.__getitem__)
                tunings.append(NcclTuning(axis, operation, size, nodes, round(payload), *fastest))
    return tuple(tunings)


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


def protocol_seconds(
    operation: Operation, algorithm: Algorithm, group: Ranks, payload_bytes: float
) -> dict[Protocol, float]:
    """Return the time of an algorithm under each protocol; PAT knows one, of which the model says
    nothing."""
    if algorithm is Algorithm.PAT:
        return {Protocol.SIMPLE: 0.0}
    if algorithm is Algorithm.TREE:
        return {each: _tree_us(group, each, payload_bytes) / 1e6 for each in Protocol}
    return {each: _ring_us(operation, group, each, payload_bytes) / 1e6 for each in Protocol}


def _ring_us(operation: Operation, group: Ranks, protocol: Protocol, payload: float) -> float:
    rounds = 2 if operation is Operation.ALL_REDUCE else 1
    steps, between = rounds * (group.ranks - 1), rounds * (group.hosts - 1)
    base, inside, outside = _latencies(RING, protocol)
    latency = base + (steps - between) * inside + between * outside
    is_whole = operation is Operation.ALL_REDUCE and group.hosts > 1
    if is_whole and protocol is Protocol.SIMPLE and payload >= 64 * group.ranks:
        latency *= PLATEAU
    gb_s = group.bus_gb_s
    if protocol is Protocol.LL:
        gb_s = min(LL_MOST_GB_S[min(group.hosts, 3) - 1], gb_s / 2)
    elif protocol is Protocol.LL128:
        gb_s *= LL128_SHARE
    return latency + payload / (1e3 * gb_s * group.ranks / steps)


def _tree_us(group: Ranks, protocol: Protocol, payload: float) -> float:
    base, inside, outside = _latencies(TREE, protocol)
    per_host = group.ranks // group.hosts
    latency = base + 2 * ((per_host - 1) * inside + int(log2(group.hosts)) * outside)
    gb_s = group.bus_gb_s * TREE_SHARE
    if protocol is Protocol.LL:
        gb_s = min(gb_s * TREE_LL_SHARE, LL_MOST_GB_S[min(group.hosts, 3) - 1])
    elif protocol is Protocol.LL128:
        gb_s *= 120 / 128 if group.hosts > 1 else 7 / 9
    corrections = TREE_CORRECTION[protocol].split()
    size = int(log2(payload / 64)) if payload >= 64 else 0
    if size < len(corrections):
        gb_s *= int(corrections[size]) / 10
    return latency + payload / (1e3 * gb_s / 2)


def _latencies(algorithm: Algorithm, protocol: Protocol) -> tuple[float, float, float]:
    """To begin with, per hop inside a host, per hop between hosts. Microseconds."""
    column = list(Protocol).index(protocol)
    through = 2 * NIC_US if protocol is Protocol.SIMPLE else NIC_US
    outside = NETWORK_US[algorithm][column] + through
    return BASE_US[algorithm][column], NVLINK_US[algorithm][column], outside
