"""Axis by axis, which links carry what: counted edge by edge, and as the papers print it."""

import random
from collections import defaultdict
from itertools import pairwise

import pytest

from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from placement.objective.axis_loads import AxisLoad, axis_loads, kinds_of_link
from placement.workload.request import Request
from tests.build import fabric, fabric_spec, gang, request


def loads(fabric_: Fabric, req: Request, hosts: object) -> dict[str, AxisLoad]:
    return {load.traffic.axis: load for load in axis_loads(fabric_, req, list(hosts))}  # type: ignore[call-overload]


def test_layers_from_the_inside_out() -> None:
    layers = kinds_of_link(fabric(zones=2, racks=3, hosts=4))
    assert [layer.name for layer in layers] == ["scale-up", "nic", "rack uplink", "zone uplink"]
    assert [layer.inside for layer in layers] == ["host", "host", "rack", "zone"]
    scale_up, nic, rack, zone = (float(layer.bytes_per_s[0]) for layer in layers)
    assert (scale_up, nic) == (8 * 450e9, 8 * 50e9)
    assert (rack, zone) == (4 * nic, pytest.approx(3 * 4 * nic / 7))


def test_an_axis_inside_the_host_runs_on_nvlink() -> None:
    f = from_spec({**fabric_spec(), "scale_up_gbps": 800})
    tp = loads(f, gang(4, dp=4), [0, 1, 2, 3])["tp"]
    assert tp.runs_on == "host"
    assert tp.bytes_per_gpu == 1_000
    assert [(load.layer, load.seconds) for load in tp.loads] == [("scale-up", 1_000 / 100e9)]


def test_an_axis_wider_than_a_host_takes_both_layers() -> None:
    """A ring of 16 over two hosts: of its 16 edges two leave a host."""
    f = fabric(zones=1, racks=1, hosts=2)
    tp = loads(f, request(tp=16, traffic={"tp": 800}), [0, 1])["tp"]
    assert tp.runs_on == "rack"
    assert {load.layer: load.bytes_per_step for load in tp.loads} == {
        "scale-up": 14 * 800,
        "nic": 2 * 800,
    }


def test_the_smallest_domain_that_holds_every_group_is_where_an_axis_runs() -> None:
    f = fabric(zones=2, racks=2, hosts=2)
    req = gang(8, dp=2, pp=4)
    stages_in_racks = loads(f, req, range(8))
    assert stages_in_racks["pp"].runs_on == "zone"
    assert stages_in_racks["dp"].runs_on == "fabric"
    assert loads(f, gang(8, dp=4, pp=2), range(8))["pp"].runs_on == "rack"


def test_a_silent_axis_has_no_load() -> None:
    quiet = loads(fabric(), gang(4, dp=4, dp_bytes=0), range(4))["dp"]
    assert (quiet.loads, quiet.seconds, quiet.runs_on) == ((), 0.0, "host")


def test_every_layer_against_edges_counted_one_by_one() -> None:
    f = fabric(zones=2, racks=2, hosts=3, gpus=2)
    req = request(tp=4, pp=3, dp=2, traffic={"tp": 100, "pp": 12, "dp": 7}, order="dp-tp-pp")
    for seed in range(5):
        hosts = random.Random(seed).sample(range(f.host_count), 12)
        found = loads(f, req, hosts)
        for axis, counted in by_hand(f, req, hosts).items():
            mine = {load.layer: load for load in found[axis].loads}
            assert {name: load.bytes_per_step for name, load in mine.items()} == {
                name: sum(out.values()) for name, out in counted.items()
            }
            for name, out in counted.items():
                assert mine[name].busiest_bytes_per_step == max(out.values())


def by_hand(f: Fabric, req: Request, hosts: list[int]) -> dict[str, dict[str, dict[str, float]]]:
    """Bytes by axis, layer and the domain they leave, from the ranks of each group."""
    sent: dict[str, dict[str, dict[str, float]]] = {}
    edge = dict(req.traffic)
    for axis in ("tp", "pp", "dp"):
        out: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for group in req.parallelism.groups(axis):
            pairs = list(pairwise(group))
            if axis == "pp":
                messages = [(a, b, edge[axis] / 2) for a, b in pairs]
                messages += [(b, a, edge[axis] / 2) for a, b in pairs]
            else:
                messages = [(a, b, edge[axis]) for a, b in [*pairs, (group[-1], group[0])]]
            for a, b, size in messages:
                for layer, domain in crossed(f, hosts[a // 2], hosts[b // 2]):
                    out[layer][domain] += size
        sent[axis] = out
    return sent


def crossed(f: Fabric, tail: int, head: int) -> list[tuple[str, str]]:
    """The links that a message takes on its way up."""
    if tail == head:
        return [("scale-up", f.hosts[tail])]
    links = [("nic", f.hosts[tail])]
    for depth, name in ((1, "rack uplink"), (0, "zone uplink")):
        if f.domain(tail, depth) != f.domain(head, depth):
            links.append((name, f.domain(tail, depth)))
    return links
