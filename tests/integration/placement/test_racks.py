"""NVLink racks: what a fabric file says of them, what each layer of links carries, what no layout
beats."""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from network.flows import flows_of
from network.wiring import links
from placement import place
from placement.errors import BadInput
from placement.fabric import hostset
from placement.fabric.constraints import Constraints
from placement.fabric.reader import from_spec, preset
from placement.fabric.tree import Fabric, view_for_gpus
from placement.grid.block_grid import block_grid
from placement.objective.axis_loads import NIC, SCALE_UP, AxisLoad, axis_loads, kinds_of_link
from placement.objective.check import violations
from placement.objective.cut import cut
from placement.objective.step_floor import step_floor
from placement.objective.step_time import step_time
from placement.tiers.stage_bands import banded_layouts
from placement.workload.request import Collective, Infeasible, Insufficient, Placement, Request
from tests.build import fabric, fabric_spec, gang, place_checked, regular, request
from tests.cases import case
from tests.integration.placement.jobs import job_with_model

NVLINK = {"gbps_per_gpu": 7200}


def racks(zones: int = 1, racks_: int = 2, hosts: int = 2, gpus: int = 2) -> Fabric:
    """Zones of NVLink racks."""
    rack = ("rack", racks_, {"scale_up": NVLINK})
    return regular(("zone", zones), rack, ("host", hosts), gpus=gpus)


def mixed() -> dict[str, Any]:
    """A zone of 8-GPU hosts in racks of two, and one of NVLink racks with trays of 4 GPUs."""
    trays = {"count": 2, "hosts": 3, "scale_up": NVLINK}
    return {
        "name": "mixed",
        "gpus_per_host": 8,
        "tiers": [{"name": "zone"}, {"name": "rack"}, {"name": "host"}],
        "domains": [
            {"name": "z0", "domains": {"count": 3, "hosts": 2}, "labels": {"gpu": "h100"}},
            {
                "name": "z1",
                "domains": trays,
                "gpus_per_host": 4,
                "nic_gbps": 800,
                "labels": {"gpu": "gb200"},
            },
        ],
    }


MIXED = from_spec(mixed())


def test_nvl72_24k() -> None:
    """DGX SuperPOD with DGX GB200: 8 racks of 18 trays a unit, 900 GB/s of NVLink a GPU."""
    fabric = preset("nvl72-24k")
    su, rack = fabric.tiers
    assert (len(su.domains), len(rack.domains), fabric.host_count) == (42, 336, 6_048)
    assert fabric.gpu_count == 42 * 576 == 24_192
    assert fabric.hosts[-1] == "s41-r7-h17"
    np.testing.assert_allclose(fabric.by_host.scale_up_gbps, 900e9 * 8 / 1e9)
    np.testing.assert_allclose(rack.uplink_bytes_per_s, 72 * 50e9)
    assert rack.is_scale_up is not None
    assert rack.is_scale_up.all()
    layers = links(fabric).layers
    assert [layer.switch_count for layer in layers] == [1_344, 1_008, 576]
    assert [len(layer.uplinks) for layer in layers] == [24_192, 24_192, 0]


def test_hosts_of_a_rack_reach_each_other_over_nvlink() -> None:
    assert racks(2, 2, 3).scale_up_by_host.tolist() == [0, 0, 0, 3, 3, 3, 6, 6, 6, 9, 9, 9]
    alone = from_spec({"name": "x", "gpus_per_host": 2, "tiers": [{"name": "host", "count": 3}]})
    assert alone.scale_up_by_host.tolist() == [0, 1, 2]


def test_hosts_of_two_kinds_in_one_fabric_of_which_a_gang_sees_those_that_it_may_take() -> None:
    assert MIXED.hosts[4:8] == ("z0-r2-h0", "z0-r2-h1", "z1-r0-h0", "z1-r0-h1")
    assert MIXED.by_host.gpus.tolist() == [8] * 6 + [4] * 6
    assert MIXED.by_host.nic_gbps.tolist() == [400.0] * 6 + [800.0] * 6
    assert MIXED.by_host.scale_up_gbps.tolist() == [3600.0] * 6 + [7200.0] * 6
    assert MIXED.scale_up_by_host.tolist() == [0, 1, 2, 3, 4, 5, 6, 6, 6, 9, 9, 9]
    assert (MIXED.gpu_count, MIXED.is_mixed) == (72, True)
    np.testing.assert_allclose(MIXED.tiers[0].uplink_bytes_per_s, [48 * 50e9, 24 * 100e9])
    assert MIXED.labels["gpu"] == {"gb200": 0b111111000000, "h100": 0b111111}
    # A gang sees the hosts that it may take.
    trays = view_for_gpus(MIXED, 4)
    assert (trays.gpus_per_host, trays.nic_gbps, trays.scale_up_gbps) == (4, 800.0, 7200.0)
    assert trays != MIXED
    assert view_for_gpus(MIXED, 8) is MIXED


def test_an_axis_inside_a_rack_runs_on_nvlink() -> None:
    fabric, job = racks(1, 2, 2, gpus=4), job_with_model({"ep": 8})
    inside, across = (axis_loads(fabric, job, hosts)[0] for hosts in ([0, 1], [0, 2]))
    assert (inside.runs_on, across.runs_on) == ("rack", "zone")
    assert inside.on(NIC) == 0
    each = 7 * inside.traffic.edge_bytes  # to every other rank
    assert inside.on(SCALE_UP) == pytest.approx(each / 900e9)
    assert across.on(SCALE_UP) == pytest.approx(3 * inside.traffic.edge_bytes / 900e9)
    assert across.on(NIC) == pytest.approx(4 * inside.traffic.edge_bytes / 50e9)


FLAT = fabric(zones=2, racks=2, hosts=3, gpus=2)


@pytest.mark.parametrize("on", [racks(2, 2, 3, gpus=2), FLAT], ids=["nvlink racks", "plain"])
def test_each_layer_carries_what_the_flows_do(on: Fabric) -> None:
    """Flow by flow, over pairs of GPUs: none of a rack with NVLink, each network card's bytes, and
    what leaves each rack and zone."""
    for seed in range(10):
        rng = random.Random(seed)
        used = rng.choice([Collective.RING, Collective.HIERARCHICAL])
        req = request(
            tp=2,
            ep=3,
            pp=2,
            dp=2,
            traffic={"tp": 8, "ep": 60, "pp": 40, "dp": 120},
            collectives={"dp": used},
            order=rng.choice(["tp-ep-pp-dp", "tp-pp-dp-ep", "ep-tp-dp-pp"]),
        )
        hosts = rng.sample(range(on.host_count), 12)
        with case(seed=seed):
            sent = bytes_that_leave(on, req, hosts)
            for load in axis_loads(on, req, hosts):
                axis = load.traffic.axis
                for each in load.loads:
                    if each.layer == SCALE_UP:
                        continue
                    out = sent[axis, each.layer].values()
                    assert each.bytes_per_step <= sum(out) * (1 + 1e-9)
                    if axis != "dp" or used is Collective.RING:
                        assert each.bytes_per_step == pytest.approx(sum(out))
                        assert each.busiest_bytes_per_step == pytest.approx(max(out))


def bytes_that_leave(
    on: Fabric, req: Request, hosts: list[int]
) -> dict[tuple[str, str], dict[int, float]]:
    """By axis and layer, those of each host, rack and zone."""
    flows = flows_of(on, req, hosts)
    layers = [(NIC, np.arange(on.host_count))]
    layers += [(f"{tier.name} uplink", tier.domain_by_host) for tier in on.tiers]
    sent: dict[tuple[str, str], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for tail, head, size, axis in zip(
        flows.src_gpu // 2, flows.dst_gpu // 2, flows.bytes, flows.axis, strict=True
    ):
        assert on.scale_up_by_host[tail] != on.scale_up_by_host[head]
        for layer, domain in layers:
            if domain[tail] != domain[head]:
                sent[flows.axes[axis], layer][int(domain[tail])] += float(size)
    return sent


def loads(on: Fabric, req: Request, hosts: Sequence[int]) -> dict[str, AxisLoad]:
    return {load.traffic.axis: load for load in axis_loads(on, req, hosts)}


def test_layers_from_the_inside_out() -> None:
    layers = kinds_of_link(fabric(zones=2, racks=3, hosts=4))
    assert [layer.name for layer in layers] == ["scale-up", "nic", "rack uplink", "zone uplink"]
    assert [layer.inside for layer in layers] == ["host", "host", "rack", "zone"]
    scale_up, nic, rack, zone = (float(layer.bytes_per_s[0]) for layer in layers)
    assert (scale_up, nic) == (8 * 450e9, 8 * 50e9)
    assert (rack, zone) == (4 * nic, pytest.approx(3 * 4 * nic / 7))


def test_an_axis_runs_in_the_smallest_domain_that_holds_its_groups() -> None:
    f = from_spec({**fabric_spec(), "scale_up_gbps": 800})
    tp = loads(f, gang(4, dp=4), [0, 1, 2, 3])["tp"]
    assert tp.runs_on == "host"
    assert tp.bytes_per_gpu == 1_000
    assert [(load.layer, load.seconds) for load in tp.loads] == [("scale-up", 1_000 / 100e9)]
    # A ring of 16 over two hosts: of its 16 edges two leave a host.
    f = fabric(zones=1, racks=1, hosts=2)
    tp = loads(f, request(tp=16, traffic={"tp": 800}), [0, 1])["tp"]
    assert tp.runs_on == "rack"
    assert {load.layer: load.bytes_per_step for load in tp.loads} == {
        "scale-up": 14 * 800,
        "nic": 2 * 800,
    }
    # The smallest domain that holds every group is where an axis runs.
    f = fabric(zones=2, racks=2, hosts=2)
    req = gang(8, dp=2, pp=4)
    stages_in_racks = loads(f, req, range(8))
    assert stages_in_racks["pp"].runs_on == "zone"
    assert stages_in_racks["dp"].runs_on == "fabric"
    assert loads(f, gang(8, dp=4, pp=2), range(8))["pp"].runs_on == "rack"
    # A silent axis has no load.
    quiet = loads(fabric(), gang(4, dp=4, dp_bytes=0), range(4))["dp"]
    assert (quiet.loads, quiet.seconds, quiet.runs_on) == ((), 0.0, "host")


def test_a_hierarchical_collective_shares_what_leaves_a_rack_among_its_members() -> None:
    """Four ranks, three in one rack: S (Z-1)/Z leaves each of two racks."""
    fabric = racks(1, 2, 3, gpus=1)
    req = request(dp=4, traffic={"dp": 300}, collectives={"dp": Collective.HIERARCHICAL})
    load = axis_loads(fabric, req, [0, 1, 2, 3])[0]
    leaves_each = 300 * 4 / 3 / 2
    assert load.on(NIC) == pytest.approx(leaves_each / 50e9)  # of the host that is alone
    nic = next(layer for layer in load.loads if layer.layer == NIC)
    assert nic.bytes_per_step == round(2 * leaves_each)


JOBS = {
    "experts": job_with_model({"ep": 8}),
    "experts and stages": job_with_model({"ep": 4, "pp": 2}),
    "tensors": job_with_model({"tp": 4, "dp": 2}),
    "wide tensors": job_with_model({"tp": 8}),
    "hierarchical": job_with_model({"tp": 2, "dp": 4}, collectives={"dp": "hierarchical"}),
    "stages": job_with_model({"pp": 8}),
    "tensors and stages": job_with_model({"tp": 2, "pp": 4}),
    "stages in chunks": job_with_model(
        {"tp": 2, "pp": 4},
        batch={"global_sequences": 16, "micro_sequences": 1, "virtual_stages": 2},
    ),
}


@pytest.mark.parametrize(
    ("job", "hosts", "some"),
    [
        *((job, 2, 5) for job in ("experts and stages", "tensors", "stages in chunks")),
        *(pytest.param(job, hosts, 6, marks=pytest.mark.slow) for job in JOBS for hosts in (2, 3)),
    ],
)
def test_no_layout_on_racks_is_faster_than_the_floor_or_the_bound(
    job: str, hosts: int, some: int
) -> None:
    fabric, req = racks(2, 2, hosts), JOBS[job]
    floor = step_floor(fabric, req)
    rng = random.Random(f"{job}/{hosts}")
    for _ in range(2):
        free = sorted(rng.sample(range(fabric.host_count), some))
        answer = place_checked(fabric, hostset.of(free), req)
        assert answer.step is not None
        steps = [step_time(fabric, req, layout) for layout in permutations(free, 4)]
        least = min(step.seconds for step in steps)
        tighter = step_floor(fabric, req, np.array(free))
        assert floor.seconds <= answer.step.least_seconds <= least * (1 + 1e-9)
        assert answer.step.seconds <= least * 1.02
        for step in steps:
            for mine, near, other in zip(floor.axes, tighter.axes, step.axes, strict=True):
                assert mine.seconds <= near.seconds <= other.seconds * (1 + 1e-9)
            assert floor.busiest_link_s <= tighter.busiest_link_s
            assert tighter.busiest_link_s <= step.busiest_link_s * (1 + 1e-9)


def test_too_few_whole_racks_raise_the_bound() -> None:
    """Four racks with three free hosts hold no group of four whole: halves are the best."""
    fabric, job = racks(1, 4, 4, gpus=4), job_with_model({"ep": 16, "dp": 2}, 32)
    free = [host for host in range(16) if host % 4]
    answer = place_checked(fabric, hostset.of(free), job)
    assert answer.step is not None
    halves = step_time(fabric, job, [1, 2, 5, 6, 9, 10, 13, 14]).seconds
    assert answer.step.seconds == pytest.approx(halves)
    # Of dp, which crosses racks as well, the bound on the cards knows nothing.
    assert answer.step.least_seconds == pytest.approx(halves, rel=0.07)


def test_stages_share_racks_alike_for_all_replicas() -> None:
    """Three racks of three hosts hold three replicas of three stages: no message leaves them."""
    fabric, job = racks(1, 3, 3), job_with_model({"tp": 2, "pp": 3, "dp": 3}, 18)
    grid, free = block_grid(job, 2), np.arange(9)
    assert grid is not None
    loads = [axis_loads(fabric, job, hosts) for hosts in banded_layouts(fabric, grid, free, free)]
    assert {each[1].traffic.axis for each in loads} == {"pp"}
    assert min(each[1].on(NIC) for each in loads) == 0


def test_racks_cannot_hold_experts_and_stages_at_once() -> None:
    """A rack that holds a stage's experts holds nothing else: all messages of the pipeline leave,
    and the bound knows."""
    fabric, job = racks(1, 4, 3), job_with_model({"ep": 4, "pp": 4}, 32)
    answer = place_checked(fabric, hostset.full(12), job)
    assert answer.step is not None
    floor = step_floor(fabric, job, np.arange(12)).seconds
    assert floor < answer.step.least_seconds
    assert answer.step.seconds == pytest.approx(answer.step.least_seconds)


def test_the_floor_is_reached_where_a_rack_holds_the_experts() -> None:
    fabric, job = racks(1, 2, 4, gpus=4), job_with_model({"ep": 16})
    answer = place_checked(fabric, hostset.of(range(8)), job)
    assert answer.step is not None
    on_nvlink = step_time(fabric, job, range(4)).seconds
    assert answer.step.seconds == on_nvlink
    assert answer.step.least_seconds == pytest.approx(on_nvlink)  # cards would take longer
    halves, three = (step_time(fabric, job, h).seconds for h in ((0, 1, 4, 5), (0, 1, 2, 4)))
    assert on_nvlink < halves < three  # the host that is alone has the busiest network cards


GB200 = Constraints(labels=(("gpu", "gb200"),))


def test_a_gang_lies_on_hosts_with_one_number_of_gpus() -> None:
    """Blocks are those of its hosts: eight ranks by default, four where its labels say so."""
    everything, traffic = hostset.full(MIXED.host_count), {"dp": 8}
    usual, small = request(dp=48, traffic=traffic), request(dp=24, traffic=traffic)
    wide = place_checked(MIXED, everything, usual)
    assert sorted(wide.hosts) == list(range(6))
    trays = replace(small, where=GB200)
    narrow = place_checked(MIXED, everything, trays)
    assert sorted(narrow.hosts) == list(range(6, 12))
    assert narrow.cuts == cut(MIXED, trays, narrow.hosts)
    assert violations(MIXED, everything, trays, narrow) == []
    assert violations(MIXED, everything, small, wide) == ["the gang has 3 blocks, 6 are placed"]
    loads = axis_loads(MIXED, trays, narrow.hosts)[0]
    assert loads.on(NIC) == pytest.approx(8 / (4 * 100e9))  # a ring leaves each rack once


def test_hosts_of_another_kind_are_no_room_and_break_the_constraints() -> None:
    never = place(MIXED, hostset.full(12), replace(request(dp=28), where=GB200))
    assert never == Infeasible(
        "needs 7 hosts of 4 GPUs with gpu=gb200; mixed has 6 of 4 GPUs with gpu=gb200"
    )
    busy = place(MIXED, hostset.of(range(2, 12)), request(dp=48))
    assert isinstance(busy, Insufficient)
    assert busy.reason == "needs 6 hosts of 8 GPUs; free: 4 of 8 GPUs"
    # A host of another kind breaks the constraints.
    req = request(dp=16)
    wrong = Placement((0, 6), cuts=cut(MIXED, req, (0, 6)))
    assert violations(MIXED, hostset.full(12), req, wrong) == ["hosts of another kind: z1-r0-h0"]


def test_unequal_hosts_are_refused_where_labels_leave_both_and_where_switches_are_derived() -> None:
    spec = mixed()
    spec["domains"].append(
        {"name": "z2", "domains": {"count": 1, "hosts": 1}, "gpus_per_host": 2,
         "labels": {"gpu": "gb200"}}
    )  # fmt: skip
    with pytest.raises(BadInput, match="have 2, 4 GPUs") as error:
        place(from_spec(spec), hostset.full(13), replace(request(dp=8), where=GB200))
    assert error.value.field == "constraints.hosts"
    # Switches are derived for equal hosts.
    with pytest.raises(BadInput, match="hosts differ in GPUs"):
        links(MIXED)
