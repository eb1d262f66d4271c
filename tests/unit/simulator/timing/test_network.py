"""Stretches of placements and of neighbours, against the step times that they rest on."""

from dataclasses import replace

import pytest

from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from placement.objective.step_time import step_time
from placement.workload.parallelism import Parallelism
from placement.workload.request import Request
from placement.workload.training import Batch, ModelShape
from simulator.timing.network import ALONE, GangLoad, NetworkModel, UplinkLoad

MODEL = ModelShape(
    layers=16, hidden=2048, ffn=8192, heads=16, kv_heads=16, vocab=32_000, sequence=2048
)


def fabric(oversubscription: float = 8, zones: int = 2) -> Fabric:
    return from_spec(
        {
            "name": "two",
            "gpus_per_host": 8,
            "tiers": [
                {"name": "zone", "count": zones, "oversubscription": oversubscription},
                {"name": "host", "count": 8},
            ],
        }
    )


def gang(hosts: int, model: ModelShape | None = MODEL) -> Request:
    if model is None:
        return Request(Parallelism(dp=8 * hosts), traffic=(("dp", 1_000),))
    batch = Batch(global_sequences=hosts * 4)
    return Request(Parallelism(tp=8, dp=hosts), model=model, batch=batch)


def alternating(hosts: int) -> list[str]:
    """Every other rank in the other zone: the worst order for a ring."""
    return [f"z{i % 2}-h{i // 2}" for i in range(hosts)]


def in_order(hosts: int) -> list[str]:
    return [f"z{2 * i // hosts}-h{i % (hosts // 2)}" for i in range(hosts)]


def test_a_gang_inside_a_domain_is_as_fast_as_can_be() -> None:
    network = NetworkModel(fabric(), 0.3)

    assert network.load(gang(8), [f"z0-h{i}" for i in range(8)]) is ALONE
    assert network.load(gang(1), ["z1-h3"]) is ALONE
    wide = NetworkModel(fabric(oversubscription=1), 0.3)  # nor does any placement cost there
    assert wide.load(gang(8), alternating(8)) is ALONE


def test_a_worse_placement_takes_as_much_longer_as_its_step_does() -> None:
    """Against placement.objective.step_time on both fabrics."""
    narrow = fabric()
    one_switch = from_spec(
        {
            "name": "one",
            "gpus_per_host": 8,
            "tiers": [{"name": "zone", "count": 1}, {"name": "host", "count": 8}],
        }
    )
    best_s = step_time(one_switch, gang(8), range(8)).seconds
    hosts = alternating(8)
    expected = step_time(narrow, gang(8), narrow.indices(hosts)).seconds / best_s
    load = NetworkModel(narrow, 0.3).load(gang(8), hosts)

    assert load.stretch == pytest.approx(expected)
    assert load.stretch > NetworkModel(narrow, 0.3).load(gang(8), in_order(8)).stretch >= 1
    assert load.stretch_with({}) == pytest.approx(load.stretch)  # not stretched twice
    assert all(s.mean <= s.peak <= 1 for s in load.sent)


def test_without_a_model_the_share_of_communication_grows_with_the_slowest_uplink() -> None:
    """A ring of one rank a host and rail: every edge of the alternating order crosses, so
    a zone sends as much as its four used hosts do; 8 hosts share an eighth of their rate."""
    request = gang(8, model=None)
    load = NetworkModel(fabric(), 0.25).load(request, alternating(8))

    # 4 of 8 hosts send; the uplink has the rate of one host
    busy = load.sent[0].mean * load.stretch
    assert load.stretch == pytest.approx(0.75 + busy)
    assert load.stretch > 1
    assert NetworkModel(fabric(), 0.0).load(request, alternating(8)).stretch == 1


def test_neighbours_stretch_what_waits_once_the_uplink_is_full() -> None:
    load = GangLoad(
        1.0, 0.2, (UplinkLoad(("zone", 0), 0.6, 0.3), UplinkLoad(("zone", 1), 0.5, 0.3))
    )

    assert load.stretch_with({}) == 1
    assert load.stretch_with({("zone", 0): 0.4}) == 1  # 0.6 while talking + 0.4: just fits
    assert load.stretch_with({("zone", 0): 0.6}) == pytest.approx(1 + 0.2 * 0.2)
    assert load.stretch_with({("zone", 1): 0.9}) == pytest.approx(1.2)  # 0.3 + 0.9 on average


def test_the_same_shape_in_the_same_domains_is_computed_once() -> None:
    network = NetworkModel(fabric(), 0.3)
    first = network.load(gang(8), in_order(8))
    swapped = ["z0-h7", *in_order(8)[1:]]

    assert network.load(gang(8), swapped) is first
    assert network.load(replace(gang(8), batch=Batch(64)), swapped) is not first
