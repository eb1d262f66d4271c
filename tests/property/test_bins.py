"""Bins keep the integral of any step function, to the nanosecond."""

from hypothesis import given
from hypothesis import strategies as st

from simulator.collectors.bins import MOST, TimeBins

Changes = list[tuple[int, int]]
changes = st.lists(st.tuples(st.integers(0, 10**13), st.integers(-50, 50)), max_size=40)


def area(found: Changes, since: int, until: int) -> int:
    """Value x time between two moments, change by change."""
    return sum(change * (until - max(at, since)) for at, change in found if at < until)


@given(changes, st.integers(1, 10**13))
def test_every_bin_has_its_share_however_changes_are_told(found: Changes, beyond: int) -> None:
    zero_ns, value = 77, 0
    bins, fixed = TimeBins(1, zero_ns), TimeBins(1, zero_ns)
    ordered = sorted(found)
    for at, change in ordered:
        value += change
        bins.add(0, change, zero_ns + at)
        fixed.set(0, value, zero_ns + at)
    end = (ordered[-1][0] if ordered else 0) + beyond
    assert bins.integral(0, zero_ns + end) == area(ordered, 0, end)
    means = bins.means(0, zero_ns + end)
    assert means == fixed.means(0, zero_ns + end)
    assert len(means) == len(bins.starts_s(zero_ns + end)) <= MOST
    for i, mean in enumerate(means):
        since, until = i * bins.width_ns, min(end, (i + 1) * bins.width_ns)
        exact = area(ordered, since, until) / (until - since)
        assert abs(mean - exact) <= 1e-9 * max(1.0, abs(exact))
