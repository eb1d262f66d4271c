"""place(): outcomes, spares beside the gang, and the same answer every time."""

from collections import Counter
from dataclasses import replace

import pytest

from placement.fabric import hostset
from placement.fabric.reader import preset
from placement.fabric.tree import Fabric
from placement.notes import request_notes
from placement.placer import place
from placement.workload.request import (
    AUTO,
    NO_SPARES,
    Batch,
    Infeasible,
    Insufficient,
    Limits,
    SpareRule,
    Undecided,
)
from tests.build import (
    LLAMA3,
    everything,
    fabric,
    flat,
    llama3,
    place_checked,
    regular,
    request,
)


def zones(on: Fabric, hosts: tuple[int, ...]) -> Counter[str]:
    return Counter(on.domain(host) for host in hosts)


def test_what_cannot_be_placed_says_whether_it_ever_can() -> None:
    answer = place(fabric(), everything(fabric()), request(dp=9, tp=8))
    assert isinstance(answer, Infeasible)
    assert answer.reason == "needs 9 hosts; small has 8 in all"
    # Required spares count as needed.
    req = request(tp=8, dp=8, spares=SpareRule(hosts=1))
    answer = place(fabric(), everything(fabric()), req)
    assert isinstance(answer, Infeasible)
    assert answer.reason == "needs 8 hosts and 1 spare; small has 8 in all"
    # A job that must wait is insufficient.
    answer = place(fabric(), hostset.of([0, 1, 6]), request(tp=8, dp=4))
    assert answer == Insufficient(
        4, 3, (("z0", 2), ("z1", 1)), "needs 4 hosts; 3 are free, 1 too few"
    )
    # No effort is undecided.
    limits = Limits(rounds=0, trees=0)
    answer = place(fabric(), everything(fabric()), request(tp=8, dp=2), limits)
    assert isinstance(answer, Undecided)


def test_spares_stand_in_the_gangs_zones_under_different_switches() -> None:
    roce = preset("roce-24k")
    answer = place_checked(roce, everything(roce), llama3(1, spares=AUTO))
    # Sixteen stages of 64 hosts on zones of six: one zone must be full to cut but twice.
    assert zones(roce, answer.hosts) == {"z0": 384, "z1": 320, "z2": 320}
    assert set(zones(roce, answer.spares)) == {"z1", "z2"}
    assert max(Counter(roce.domain(host, 1) for host in answer.spares).values()) == 1
    assert answer.is_optimal


def test_spares_never_cost_cut_nor_keep_a_job_waiting() -> None:
    # Two full zones hold the gang exactly: its spares then stand elsewhere.
    on = fabric(zones=3, racks=4, hosts=2)
    req = request(tp=8, pp=2, dp=8, traffic={"pp": 1, "dp": 9}, spares=AUTO)
    answer = place_checked(on, everything(on), req)
    assert answer.cut == place_checked(on, everything(on), replace(req, spares=NO_SPARES)).cut == 64
    assert zones(on, answer.hosts) == {"z0": 8, "z1": 8}
    assert zones(on, answer.spares) == {"z2": 2}
    assert answer.notes == ("2 spares are in zones that the gang does not use",)
    # Auto spares never keep a job waiting.
    req = request(tp=8, dp=8, traffic={"dp": 1}, spares=AUTO)
    answer = place_checked(fabric(), everything(fabric()), req)
    assert answer.spares == ()
    assert answer.notes == ("0 of 2 spares held: the job may take no other free hosts",)


def test_an_axis_without_bytes_is_pointed_out() -> None:
    answer = place_checked(
        fabric(), everything(fabric()), request(tp=8, pp=2, dp=2, traffic={"dp": 1})
    )
    assert "axis pp spans hosts and has no traffic: it was placed as if silent" in answer.notes


@pytest.mark.parametrize(
    ("axes", "virtual", "note"),
    [
        ({"tp": 48, "pp": 2}, 1, "tp 48 does not divide the model's 128 heads"),
        ({"tp": 8, "pp": 16}, 1, None),  # 126 layers, the embedding and the output head
        ({"tp": 8, "pp": 10}, 1, "126 layers do not divide over 10 stages: bytes"),
        ({"tp": 8, "pp": 16}, 3, "126 layers do not divide over 16 stages of 3 chunks each"),
    ],
)
def test_a_model_that_does_not_divide_over_its_axes_is_pointed_out(
    axes: dict[str, int], virtual: int, note: str | None
) -> None:
    batch = Batch(64, virtual_stages=virtual)
    notes = request_notes(fabric(), request(**axes, model=LLAMA3, batch=batch))
    uneven = [line for line in notes if "not divide" in line]
    assert [line[: len(note or "")] for line in uneven] == ([note] if note else [])


def test_ranks_that_form_no_grid_are_placed_and_bounded() -> None:
    """tp 6 does not divide hosts of 8: three blocks, of which one stands alone."""
    on = flat(2, 2, gpus=8, tier="zone")
    req = request(tp=6, dp=4, traffic={"tp": 9, "dp": 1}, spares=NO_SPARES)
    answer = place_checked(on, everything(on), req)
    assert dict(answer.cuts[0].by_axis)["tp"] == 2 * 9  # one group of two blocks is parted
    assert 0 < answer.lower_bound <= answer.cut


def test_buildings_above_zones() -> None:
    """The outermost tier is cut least, then the next: stages stay together on both."""
    on = regular(("building", 2), ("zone", 2), ("rack", 2), ("host", 2), gpus=1)
    req = request(pp=4, dp=4, traffic={"pp": 1, "dp": 100}, spares=NO_SPARES)
    answer = place_checked(on, everything(on), req)
    cuts = {cut.tier: dict(cut.by_axis) for cut in answer.cuts}
    assert cuts["building"] == {"pp": 4}
    assert cuts["zone"] == {"pp": 12}
    assert answer.is_optimal


@pytest.mark.parametrize("zones_", [120, 500])
def test_very_many_zones_alike_are_proved(zones_: int) -> None:
    """Those of one size are counted together, by the proof and by the search."""
    on = fabric(zones=zones_, racks=2, hosts=2)
    answer = place_checked(
        on, everything(on), request(tp=8, pp=4, dp=40, traffic={"dp": 900, "pp": 300})
    )
    assert answer.is_optimal
    assert answer.cut == answer.lower_bound > 0
