"""Placing near an old placement: never worse than swaps on any tier, nor than afresh."""

from hypothesis import given, settings
from hypothesis import strategies as st

from placement.fabric import hostset
from placement.fabric.tree import Fabric
from placement.objective.check import violations
from placement.placer import place
from placement.replace.near import Hint
from placement.replace.swaps import choose_swaps
from placement.workload.request import Limits, Placement
from tests.build import request, two_tiers

ZONE = st.lists(st.integers(1, 4), min_size=1, max_size=3)
FABRICS = st.builds(lambda zones: two_tiers(*zones), st.lists(ZONE, min_size=1, max_size=3))
LIMITS = Limits(rounds=5, trees=80)


@settings(max_examples=60, deadline=None)
@given(
    on=FABRICS,
    rows=st.integers(1, 3),
    weights=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    share=st.floats(0.2, 0.9),
    slack=st.sampled_from((0.0, 0.0, 0.3)),
    data=st.data(),
)
def test_near_is_never_above_swaps_nor_above_afresh(
    on: Fabric, rows: int, weights: tuple[int, int], share: float, slack: float, data: st.DataObject
) -> None:
    blocks = int(on.host_count * share) // rows * rows
    if not blocks:
        return
    req = request(pp=rows, dp=blocks // rows, traffic={"pp": weights[0], "dp": weights[1]})
    hosts = st.permutations(range(on.host_count))
    old = tuple(data.draw(hosts)[:blocks])
    busy = data.draw(
        st.sets(st.sampled_from(range(on.host_count)), max_size=on.host_count - blocks)
    )
    free = hostset.full(on.host_count) & ~hostset.of(busy)
    again = place(on, free, req, LIMITS, Hint(old, slack))
    fresh = place(on, free, req, LIMITS)
    assert isinstance(again, Placement)
    assert isinstance(fresh, Placement)
    assert violations(on, free, req, again) == []
    assert again == place(on, free, req, LIMITS, Hint(old, slack))
    lost = [block for block, host in enumerate(old) if host in busy]
    assert again.moved == sum(a != b for a, b in zip(again.hosts, old, strict=True)) >= len(lost)
    assert again.cut <= fresh.cut * (1 + slack)
    others = free & ~hostset.of(old)
    swaps = choose_swaps(on, req, old, lost, hostset.of(()), others)
    if swaps is not None and len(lost) < blocks and not slack:
        cuts = [tier.bytes_per_step for tier in again.cuts]
        assert cuts <= [tier.bytes_per_step for tier in swaps.cuts]
