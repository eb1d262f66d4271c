"""Seeds of random days: a few in every run, the others in `make test-slow`."""

from collections.abc import Iterable

import pytest


def seeds(few: int, *others: Iterable[int]) -> list[object]:
    """0 to `few - 1`, and the others marked slow, for `pytest.mark.parametrize`."""
    slow = [pytest.param(seed, marks=pytest.mark.slow) for each in others for seed in each]
    return [*range(few), *slow]
