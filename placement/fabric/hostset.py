"""Sets of hosts as integers: bit i is host i of the fabric.

A plain int is immutable, hashes, compares and copies for nothing, and unions
3,072 hosts in about 100 ns; numpy sees it as a boolean mask when it has to count.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

HostSet = int
Mask = npt.NDArray[np.bool_]


def of(hosts: Iterable[int]) -> HostSet:
    """The set of these host indices."""
    indices = list(hosts)
    if len(indices) < 32:
        bits = 0
        for host in indices:
            bits |= 1 << host
        return bits
    mask = np.zeros(max(indices) + 1, dtype=np.bool_)
    mask[indices] = True
    return from_mask(mask)


def full(host_count: int) -> HostSet:
    """All hosts of a fabric."""
    return (1 << host_count) - 1


def from_mask(mask: Mask) -> HostSet:
    """The set whose members are the true positions of `mask`."""
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def to_mask(hosts: HostSet, host_count: int) -> Mask:
    """Shape: (host_count,)."""
    raw = hosts.to_bytes((host_count + 7) // 8, "little")
    bits = np.unpackbits(np.frombuffer(raw, dtype=np.uint8), count=host_count, bitorder="little")
    return bits.view(np.bool_)


def members(hosts: HostSet) -> list[int]:
    """Host indices in ascending order."""
    return [int(i) for i in np.flatnonzero(to_mask(hosts, hosts.bit_length()))]


def has(hosts: HostSet, host: int) -> bool:
    return bool(hosts >> host & 1)
