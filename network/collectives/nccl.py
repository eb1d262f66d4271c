"""What NCCL would choose by itself: its tuner's model of rings and trees.

    time = latency + payload / algorithm bandwidth

for each algorithm (ring, tree) and protocol (LL: flags in every 8 bytes, LL128: in every
128, simple: large chunks and a flush), the least of which NCCL takes. Left out: NVLS,
CollNet and PAT, which need switches that reduce or one GPU a host; limits per channel,
of which NCCL opens enough. Microseconds and GB/s inside, as in the source.

Source: NVIDIA/nccl, src/graph/tuning.cc (ncclTopoTuneModel, ncclTopoGetAlgoTime).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import StrEnum
from math import log2

from muster.structs import struct
from network.collectives.schedules import Algorithm, Operation


class Protocol(StrEnum):
    """How a channel's bytes are packed."""

    LL = "LL"
    LL128 = "LL128"
    SIMPLE = "simple"


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
class Tuned:
    """One algorithm under one protocol, with its time."""

    algorithm: Algorithm
    protocol: Protocol
    seconds: float


def choice(
    operation: Operation,
    ranks: Ranks,
    payload_bytes: float,
    among: Collection[Algorithm] = tuple(Algorithm),
) -> Tuned:
    """Return the algorithm that NCCL itself reckons to be fastest, the first of equals."""
    options = times(operation, ranks, payload_bytes)
    return min((t for t in options if t.algorithm in among), key=lambda tuned: tuned.seconds)


def times(operation: Operation, ranks: Ranks, payload_bytes: float) -> Iterator[Tuned]:
    """Return the times of each algorithm and protocol: all-reduce by ring and tree, the other two
    operations by ring."""
    for protocol in Protocol:
        yield Tuned(RING, protocol, _ring_us(operation, ranks, protocol, payload_bytes) / 1e6)
        if operation is Operation.ALL_REDUCE:
            yield Tuned(TREE, protocol, _tree_us(ranks, protocol, payload_bytes) / 1e6)


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
