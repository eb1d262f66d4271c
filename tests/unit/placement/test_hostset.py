"""Sets of hosts against Python's own."""

import numpy as np
import pytest

from placement.fabric import hostset

SAMPLES: list[set[int]] = [
    set(),
    {0},
    {7},
    {8},
    {63, 64, 65},
    set(range(31)),
    set(range(32)),  # from here on `of` goes through numpy
    set(range(0, 3_072, 3)),
    {99_999, *range(40)},
]


@pytest.mark.parametrize("hosts", SAMPLES, ids=len)
def test_members_and_masks_are_other_writings_of_the_same_set(hosts: set[int]) -> None:
    found = hostset.of(hosts)
    assert hostset.members(found) == sorted(hosts)
    assert found.bit_count() == len(hosts)
    mask = hostset.to_mask(found, 100_003)
    assert (mask.shape, mask.dtype) == ((100_003,), np.bool_)
    assert set(np.flatnonzero(mask)) == hosts
    assert hostset.from_mask(mask) == found


def test_a_set_has_its_hosts_and_naming_one_twice_adds_nothing() -> None:
    everyone = hostset.full(5)
    assert [hostset.has(everyone, i) for i in range(6)] == [True] * 5 + [False]
    assert hostset.full(0) == 0
    # Naming a host twice adds nothing.
    assert hostset.of([3, 3]) == hostset.of([3])
    assert hostset.of([3] * 40) == hostset.of([3])
