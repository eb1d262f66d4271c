"""Sets of hosts as integers: bit i is host i of the fabric.

A plain int is immutable, hashes, compares and copies for nothing, and unions
3,072 hosts in about 100 ns; numpy sees it as a boolean mask when it has to count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Mask: TypeAlias = npt.NDArray[np.bool_]
    Indices: TypeAlias = npt.NDArray[np.int64]
else:  # numpy is loaded where hosts are counted, not where a request is read
    Mask: TypeAlias = Any
    Indices: TypeAlias = Any

HostSet = int


def of(hosts: Iterable[int]) -> HostSet:
    """Return the set of these host indices."""
    numbers = list(hosts)
    if len(numbers) < 32:
        bits = 0
        for host in numbers:
            bits |= 1 << host
        return bits
    import numpy as np

    mask = np.zeros(max(numbers) + 1, dtype=np.bool_)
    mask[numbers] = True
    return from_mask(mask)


def full(host_count: int) -> HostSet:
    """Return the set of all hosts of a fabric."""
    return (1 << host_count) - 1


def from_mask(mask: Mask) -> HostSet:
    """Return the set whose members are the true positions of `mask`."""
    import numpy as np

    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def to_mask(hosts: HostSet, host_count: int) -> Mask:
    """Return a mask of the set. Shape: (host_count,)."""
    import numpy as np

    raw = hosts.to_bytes((host_count + 7) // 8, "little")
    bits = np.unpackbits(np.frombuffer(raw, dtype=np.uint8), count=host_count, bitorder="little")
    return bits.view(np.bool_)


def indices(hosts: HostSet) -> Indices:
    """Return the indices of the hosts in ascending order. Shape: (hosts,)."""
    return to_mask(hosts, hosts.bit_length()).nonzero()[0]


def members(hosts: HostSet) -> list[int]:
    """Return the members of a set as a list."""
    numbers: list[int] = indices(hosts).tolist()
    return numbers


def first(hosts: HostSet, count: int) -> tuple[int, ...]:
    """Return the `count` members of smallest number, in ascending order; all when there are no
    more."""
    if count >= 32:
        return tuple(members(hosts)[:count])
    numbers = list[int]()
    while hosts and len(numbers) < count:
        lowest = hosts & -hosts
        numbers.append(lowest.bit_length() - 1)
        hosts ^= lowest
    return tuple(numbers)


def choose_below(
    most: float, hosts: HostSet, groups: Iterable[HostSet], amount: Callable[[int], float]
) -> HostSet:
    """Return those of `hosts` whose amounts sum up to `most` at most, from the groups with the most
    of them."""
    kept = 0
    parts = (group & hosts for group in groups if group & hosts)
    for part in sorted(parts, key=lambda part: -part.bit_count()):
        for host in members(part):
            if (more := amount(host)) <= most:
                kept |= 1 << host
                most -= more
    return kept


def has(hosts: HostSet, host: int) -> bool:
    return bool(hosts >> host & 1)
