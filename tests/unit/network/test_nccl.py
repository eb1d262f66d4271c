"""NCCL's tuner model, worked out by hand from its source."""

import pytest

from network.collectives.nccl import Algorithm, Operation, Protocol, Ranks, protocol_seconds

AR, AG = Operation.ALL_REDUCE, Operation.ALL_GATHER
NIC = 50e9
DP128 = Ranks(128, 128, NIC)
GIB = float(1 << 30)


def timed(operation: Operation, group: Ranks, payload: float) -> dict[tuple[str, str], float]:
    return {
        (algorithm.name, protocol): seconds
        for algorithm in (Algorithm.RING, Algorithm.TREE)
        for protocol, seconds in protocol_seconds(operation, algorithm, group, payload).items()
    }


def fastest(group: Ranks, payload: float) -> str:
    seconds = timed(AR, group, payload)
    return min(seconds, key=seconds.__getitem__)[0]


def test_seconds_of_rings() -> None:
    # 254 steps between hosts at 14 + 2 x 5 us, times 1.4; 50 GB/s x 128/254.
    seconds = timed(AR, DP128, GIB)["RING", "simple"]
    assert seconds == pytest.approx(1.4 * (8.4 + 254 * 24) / 1e6 + GIB * 254 / 128 / 50e9)
    # An all gather has half the steps and no plateau.
    seconds = timed(AG, DP128, GIB)["RING", "simple"]
    assert seconds == pytest.approx((8.4 + 127 * 24) / 1e6 + GIB * 127 / 128 / 50e9)
    # 64 ranks on 8 hosts: 14 of 126 steps leave a host; the ring runs at 8 x 50 GB/s.
    seconds = timed(AR, Ranks(64, 8, NIC), GIB)["RING", "LL128"]
    latency = 14.0 + 112 * 1.9 + 14 * 9.0
    assert seconds == pytest.approx(latency / 1e6 + GIB * 126 / 64 / (400e9 * 0.92))


def test_seconds_of_trees() -> None:
    seconds = timed(AR, DP128, GIB)["TREE", "simple"]
    assert seconds == pytest.approx((8.4 + 2 * 7 * 24) / 1e6 + GIB / (50e9 * 0.92 / 2))
    # 1 MiB is 64 B x 2^14: half of the bandwidth for a simple tree.
    payload = float(1 << 20)
    seconds = timed(AR, DP128, payload)["TREE", "simple"]
    assert seconds == pytest.approx((8.4 + 2 * 7 * 24) / 1e6 + payload / (50e9 * 0.92 / 2 / 2))


def test_small_sums_go_by_tree_large_ones_by_ring() -> None:
    assert fastest(DP128, 1024) == "TREE"
    assert fastest(DP128, 16 * GIB) == "RING"
    # Many hosts go by tree for longer.
    assert fastest(Ranks(16, 16, NIC), GIB) == "RING"
    assert fastest(Ranks(4_096, 4_096, NIC), GIB) == "TREE"


def test_protocols_change_with_the_size() -> None:
    seconds = [protocol_seconds(AG, Algorithm.RING, DP128, float(1 << k)) for k in (10, 24, 34)]
    chosen = [min(each, key=each.__getitem__) for each in seconds]
    assert chosen == [Protocol.LL, Protocol.LL128, Protocol.SIMPLE]


def test_on_one_host_nothing_passes_a_card() -> None:
    seconds = timed(AR, Ranks(8, 1, 450e9), GIB)
    assert min(seconds, key=seconds.__getitem__) == ("RING", "simple")
    assert min(seconds.values()) == pytest.approx((8.4 + 14 * 3.4) / 1e6 + GIB * 14 / 8 / 450e9)
