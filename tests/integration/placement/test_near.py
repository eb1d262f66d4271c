"""Placing again near an old placement: what stays, what moves, what it costs."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.errors import BadInput
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.fabric.reader import preset
from placement.fabric.tree import Fabric
from placement.placer import place
from placement.replace.near import Hint
from placement.replace.swaps import choose_swaps
from placement.workload.request import NO_SPARES, Limits, Objective, Request
from tests.build import fabric, flat, place_checked, regular, request, two_tiers

ROCE = preset("roce-24k")
GANG = request(tp=8, pp=8, dp=64, traffic={"dp": 10, "pp": 3})


def swapped_cut(on: Fabric, free: HostSet, req: Request, old: tuple[int, ...]) -> int:
    """What the old placement cuts once every lost host is swapped."""
    lost = [block for block, host in enumerate(old) if not hostset.has(free, host)]
    others = free & ~hostset.of(old)
    swaps = choose_swaps(on, req, old, lost, hostset.of(()), others)
    assert swaps is not None
    return swaps.cuts[0].bytes_per_step


def test_slack_keeps_blocks_where_they_are() -> None:
    free = hostset.of(Random(1).sample(range(ROCE.host_count), 700))
    old = place_checked(ROCE, free, GANG)
    everywhere = hostset.full(ROCE.host_count)
    best = place_checked(ROCE, everywhere, GANG, hint=Hint(old.hosts))
    near = place_checked(ROCE, everywhere, GANG, hint=Hint(old.hosts, slack=10.0))
    assert best.cut < old.cut  # room has come free
    assert best.moved is not None
    assert best.moved > 0
    assert (near.moved, near.cut) == (0, old.cut)
    assert f"keeping every host would cut {old.cut / best.cut:.3g} times as much" in best.notes


def test_the_zones_are_named_and_turned_to_match() -> None:
    """The best layout found afresh starts in z0 and at the first replica; the old one, as
    good, starts elsewhere. When a host in the middle of z1 is gone, one more block moves
    so that the ring crosses three times, not four; the others stay."""
    on = flat(8, 8, 8, tier="zone")
    req = request(dp=16, traffic={"dp": 1})
    old = tuple(8 + (i + 5) % 16 for i in range(16))  # z1 and z2, turned by five
    free = hostset.of(range(8, 24))
    again = place_checked(on, free, req, hint=Hint(old))
    assert again.moved == 0
    without = free & ~hostset.of([old[0]]) | 1
    again = place_checked(on, without, req, hint=Hint(old))
    assert (again.moved, again.cut, swapped_cut(on, without, req, old)) == (2, 3, 4)


def test_only_a_host_that_no_longer_exists_is_replaced() -> None:
    on = fabric()
    again = place_checked(
        on, hostset.full(8), request(tp=8, dp=4, traffic={"dp": 1}), hint=Hint((0, -1, 2, 3))
    )
    assert again.hosts == (0, 1, 2, 3)
    assert again.moved == 1
    # A gang without a grid stays where it is.
    on = flat(3, 3, 3, gpus=8, tier="zone")
    req = request(tp=6, dp=8, traffic={"tp": 9, "dp": 1})
    old = place_checked(on, hostset.full(9), req)
    assert place_checked(on, hostset.full(9), req, hint=Hint(old.hosts)).moved == 0


@pytest.mark.slow
def test_a_gang_placed_by_spread_stays_near_too() -> None:
    req = replace(GANG, objective=Objective.SPREAD)
    free = hostset.of(Random(4).sample(range(ROCE.host_count), 700))
    old = place_checked(ROCE, free, req)
    assert place_checked(ROCE, free, req, hint=Hint(old.hosts)).moved == 0


def test_a_fabric_without_tiers() -> None:
    on = regular(("host", 4), gpus=1)
    again = place_checked(
        on, hostset.full(4), request(dp=3, spares=NO_SPARES), hint=Hint((3, 1, 0))
    )
    assert (again.hosts, again.moved) == ((3, 1, 0), 0)


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        (Hint((0, 1, 2)), "the old placement is of 3, the job of 4 hosts"),
        (Hint((0, 1, 1, 2)), "names a host twice"),
        (Hint((0, 1, 2, 3), slack=-0.5), "slack must not be negative"),
    ],
)
def test_a_hint_that_cannot_be_is_bad_input(hint: Hint, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        place(fabric(), hostset.full(8), request(tp=8, dp=4), hint=hint)


def test_an_old_placement_on_hosts_that_were_never_there_is_refused() -> None:
    hosts = (*range(GANG.hosts_needed(ROCE.gpus_per_host) - 1), ROCE.host_count)
    with pytest.raises(BadInput, match="names a host that roce-24k does not have"):
        place(ROCE, hostset.full(ROCE.host_count), GANG, hint=Hint(hosts))


ZONE = st.lists(st.integers(1, 4), min_size=1, max_size=3)
FABRICS = st.builds(lambda zones: two_tiers(*zones), st.lists(ZONE, min_size=1, max_size=3))
LIMITS = Limits(rounds=5, trees=80)


@settings(max_examples=60)
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
    hosts = range(on.host_count)
    old = tuple(data.draw(st.permutations(hosts))[:blocks])
    busy = data.draw(st.sets(st.sampled_from(hosts), max_size=on.host_count - blocks))
    free = hostset.full(on.host_count) & ~hostset.of(busy)
    again = place_checked(on, free, req, LIMITS, Hint(old, slack))
    assert again == place(on, free, req, LIMITS, Hint(old, slack))
    lost = [block for block, host in enumerate(old) if host in busy]
    assert again.moved == sum(a != b for a, b in zip(again.hosts, old, strict=True)) >= len(lost)
    assert again.cut <= place_checked(on, free, req, LIMITS).cut * (1 + slack)
    swaps = choose_swaps(on, req, old, lost, hostset.of(()), free & ~hostset.of(old))
    if swaps is not None and len(lost) < blocks and not slack:
        cuts = [tier.bytes_per_step for tier in again.cuts]
        assert cuts <= [tier.bytes_per_step for tier in swaps.cuts]
